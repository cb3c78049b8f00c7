"""Why a package is in the lock: every chain of requirements that leads to it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def chains(project: Project, name: str) -> tuple[Chain, ...]:
    """The chains from a project of the workspace to ``name``, shortest first; unknown is PX023."""
    wanted = normalize(name)
    packages = _packages(project)
    if wanted not in packages:
        import difflib

        near = difflib.get_close_matches(wanted, packages, n=3)
        said = f"Close to it: {', '.join(near)}." if near else "Nothing in the lock has a name close to it."
        raise PxError("PX023", name=name, near=said)
    parents: dict[str, list[tuple[str, str]]] = {}
    for parent, package in packages.items():
        for child, via in _requirements(package):
            parents.setdefault(child, []).append((parent, via))
    roots = {n for n, p in packages.items() if _is_local(p)} or {n for n in packages if n not in parents}
    return tuple(_search(wanted, packages, parents, roots))


def _packages(project: Project) -> dict[str, dict[str, Any]]:
    try:
        document = tomllib.loads(project.lock.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as e:
        raise PxError("PX101", lock=project.lock.name, problem=str(e)) from e
    found: dict[str, dict[str, Any]] = {}
    for package in document.get("package", document.get("packages", ())):
        found[normalize(str(package["name"]))] = package
    return found


def _is_local(package: dict[str, Any]) -> bool:
    source = package.get("source", {})
    return any(key in source for key in ("editable", "virtual")) or "directory" in package


def _requirements(package: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for requirement in package.get("dependencies", ()):
        marker = str(requirement.get("marker", ""))
        yield normalize(str(requirement["name"])), marker
    for table, word in (("optional-dependencies", "extra"), ("dev-dependencies", "group")):
        for label, requirements in package.get(table, {}).items():
            for requirement in requirements:
                yield normalize(str(requirement["name"])), f"{word} {label}"


def _search(
    wanted: str, packages: dict[str, dict[str, Any]], parents: dict[str, list[tuple[str, str]]], roots: set[str]
) -> Iterator[Chain]:
    """Breadth first from the package up to a root, so that the shortest chains come first."""

    def link(name: str, via: str = "") -> Link:
        return Link(name, str(packages[name].get("version", "")), via)

    pending: list[tuple[str, Chain]] = [(wanted, ())]
    found = 0
    while pending and found < MOST:
        name, below = pending.pop(0)
        if name in roots and (below or name == wanted):
            yield (link(name), *below)
            found += 1
            continue
        for parent, via in sorted(set(parents.get(name, ()))):
            if parent not in {step.name for step in below} and parent != name:
                pending.append((parent, (link(name, via), *below)))
