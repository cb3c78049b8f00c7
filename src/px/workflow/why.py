"""Why a package is in the lock: every chain of requirements that leads to it."""

from __future__ import annotations

import re
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from px import bounds
from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from px.project.discovery import Project

# A package of a large lock can be reached in thousands of ways; nobody reads more than this.
MOST = 50


@dataclass(frozen=True)
class Link:
    """One step of a chain: a package, and what of the one before asks for it (an extra, a group, a marker)."""

    name: str
    version: str
    via: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip() + (f" ({self.via})" if self.via else "")


Chain = tuple[Link, ...]
Node = tuple[str, str]
"""A package by name and version: a lock can hold several versions of one."""


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def check_locked(project: Project, requirements: tuple[str, ...]) -> None:
    """Refuse requirements (a name, maybe with a version) whose package the lock does not have."""
    with _reading(project):
        known = {node[0] for node in _packages(_read(project))}
    for requirement in requirements:
        name = re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]
        if normalize(name) not in known:
            raise _unknown(name, known)


def chains(project: Project, name: str) -> tuple[Chain, ...]:
    """The chains from a project of the workspace to ``name``, shortest first; unknown is PX023."""
    with _reading(project):
        return _chains(project, name)


def _chains(project: Project, name: str) -> tuple[Chain, ...]:
    wanted = normalize(name)
    lock = _read(project)
    packages = _packages(lock)
    named: dict[str, list[Node]] = {}
    for node in packages:
        named.setdefault(node[0], []).append(node)
    if wanted not in named:
        raise _unknown(name, named)
    parents: dict[Node, set[tuple[Node, str]]] = {}
    for parent, package in packages.items():
        for child, version, via in _requirements(package):
            # A lock names the version only where it has several of the package, for other markers or extras.
            for node in named.get(child, ()):
                if version in ("", node[1]):
                    parents.setdefault(node, set()).add((parent, via))
    roots = _roots(lock, packages) or {node for node in packages if node not in parents}
    return tuple(islice(_search(named[wanted], parents, roots), MOST))


def _unknown(name: str, known: Iterable[str]) -> PxError:
    import difflib

    near = difflib.get_close_matches(normalize(name), sorted(known), n=3)
    said = f"Close to it: {', '.join(near)}." if near else "Nothing in the lock has a name close to it."
    return PxError("PX023", name=name, near=said)


def _read(project: Project) -> dict[str, Any]:
    try:
        return bounds.read_toml(project.lock)
    except (OSError, ValueError) as e:
        raise PxError("PX101", lock=project.lock.name, problem=str(e)) from e


@contextmanager
def _reading(project: Project) -> Iterator[None]:
    """Other types than a lock has are PX101."""
    try:
        yield
    except (TypeError, KeyError, AttributeError) as e:
        raise PxError("PX101", lock=project.lock.name, problem=f"it has other types than a lock: {e!r}") from e


def _packages(lock: dict[str, Any]) -> dict[Node, dict[str, Any]]:
    """The packages of a uv.lock or a pylock.toml."""
    found = lock.get("package", lock.get("packages", ()))
    return {(normalize(str(p["name"])), str(p.get("version", ""))): p for p in found}


def _roots(lock: dict[str, Any], packages: dict[Node, dict[str, Any]]) -> set[Node]:
    """The workspace's members, or the one project: not other local projects that these depend on."""
    members = {normalize(str(name)) for name in lock.get("manifest", {}).get("members", ())}
    return {
        node
        for node, package in packages.items()
        if node[0] in members or "." in [package.get("source", {}).get(key) for key in ("editable", "virtual")]
    }


def _requirements(package: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(name, version if the lock says which, what asks for it)."""
    for requirement in package.get("dependencies", ()):
        yield (
            normalize(str(requirement["name"])),
            str(requirement.get("version", "")),
            str(requirement.get("marker", "")),
        )
    for table, word in (("optional-dependencies", "extra"), ("dev-dependencies", "group")):
        for label, requirements in package.get(table, {}).items():
            for requirement in requirements:
                yield normalize(str(requirement["name"])), str(requirement.get("version", "")), f"{word} {label}"


def _search(wanted: list[Node], parents: dict[Node, set[tuple[Node, str]]], roots: set[Node]) -> Iterator[Chain]:
    """Breadth first from the package up to a root, so that the shortest chains come first."""
    pending: deque[tuple[Node, Chain]] = deque((node, ()) for node in wanted)
    while pending:
        node, below = pending.popleft()
        if node in roots:
            yield (Link(*node), *below)
            if below:
                continue  # but who needs a member of the workspace is said too
        for parent, via in sorted(parents.get(node, ())):
            if parent != node and parent not in {(step.name, step.version) for step in below}:
                pending.append((parent, (Link(*node, via), *below)))
