"""The steps from a project's lock to its sandbox: the same for a run, a packed image and an explanation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px import console
from px.debian.lock import file_name
from px.platforms import host_architecture
from px.project.discovery import try_discover
from px.project.state import Target
from px.sandbox.definition import Derived, derive
from px.sandbox.image import Image, check_links, ensure_image, image_directory
from px.sandbox.layers.base import ensure_base, ensure_bytecode_layer, known_bases, load_base_lock
from px.sandbox.layers.project import ensure_project_layer, siblings
from px.warm.record import BuiltSandbox, look_at_table
from px.warm.spec import PATH

if TYPE_CHECKING:
    from pathlib import Path

    from px.project.selection import Selection
    from px.project.situation import Situation
    from px.sandbox.layers.layer import Layer
    from px.store.objects import Store

# What px knows about packages and interpreters, and derives a sandbox from.
_TABLES = ("capabilities.toml", "distributions.toml", "sonames.toml", "pythons.toml")


@dataclass(frozen=True)
class Steps:
    """A sandbox with everything that was found out on the way to it, for those who need more than to run it."""

    derived: Derived
    image: Image
    project_layer: Layer | None
    """The project's own metadata and scripts: on top of the image, and no part of its id."""


def build_sandbox(situation: Situation, selection: Selection, more: frozenset[str] = frozenset()) -> BuiltSandbox:
    """Make the sandbox that the lock and the manifest describe, and say what it was made from."""
    steps = take_steps(situation, selection, more=more)
    derived, image, own = steps.derived, steps.image, steps.project_layer
    if derived.warning:
        console.warn(derived.warning)
    layers = [*image.layers, *([own] if own else [])]
    # A project with pins of its own does not depend on px's lock.
    pins, lock = derived.base.lock.pins, file_name(derived.base.name, derived.base.architecture)
    return BuiltSandbox(
        inputs=situation.made_from(Target.SANDBOX),
        selection=selection.as_json(),
        profile_oid=derived.profile.oid,
        directory=os.fspath(image_directory(situation.context.home, image.sbx_id)),
        variables=image.variables,
        objects=(*image.refs, *derived.profile.refs, *([own.ref] if own else [])),
        root=os.fspath(situation.project.root),
        sbx_id=image.sbx_id,
        base=derived.base.name,
        base_os_oid=derived.base.oid,
        capabilities=derived.definition.sorted_capabilities,
        python=derived.profile.runtime.python,
        layers=tuple(os.fspath(layer.tree) for layer in layers),
        project_layer=own.oid if own else "",
        git_write=derived.manifest.git_write,
        siblings={
            inside: os.fspath(path) for inside, path in siblings(situation.project.root, derived.profile).items()
        },
        read_only=derived.manifest.read_only,
        tables={name: look_at_table(name) for name in (os.fspath(pins) if pins else f"bases/{lock}", *_TABLES)},
    ).marked()


def project_around(directory: Path) -> Path | None:
    """The root of the project around a directory, if it has a lock or a ``[tool.px]`` table; None without one."""
    found = try_discover(directory)
    if found is None:
        return None
    has_table = b"[tool.px" in found.manifest.path.read_bytes()
    return found.root if has_table or found.lock.is_file() else None


def bare_bases() -> tuple[str, ...]:
    """The names that :func:`bare_sandbox` takes, the default first."""
    return known_bases()


def bare_sandbox(store: Store, base_name: str) -> BuiltSandbox:
    """A base without any project, for those who only need an operating system and its Python."""
    base = ensure_base(store, load_base_lock(base_name, host_architecture()))
    layers = (base, ensure_bytecode_layer(store, base))
    return BuiltSandbox(
        inputs={},
        selection={},
        profile_oid="",
        directory="",
        variables={"PATH": ":".join(PATH.split(":")[1:]), "LANG": "C.UTF-8"},
        objects=tuple(layer.ref for layer in layers),
        sbx_id=base.oid,
        base=base.name,
        base_os_oid=base.oid,
        python=f"python{base.python.major}.{base.python.minor}",
        layers=tuple(os.fspath(layer.tree) for layer in layers),
    )


def take_steps(
    situation: Situation,
    selection: Selection,
    *,
    architecture: str | None = None,
    more: frozenset[str] = frozenset(),
) -> Steps:
    """From the lock to the layers, for this machine's architecture or another one."""
    if situation.context.store.remote is not None:
        from px.workflow.supply.remote import expect  # needs an HTTP client: not for those who have no cache

        expect(situation, selection, architecture or host_architecture())
    derived = derive(situation, selection, architecture=architecture, more=more)
    image = ensure_image(derived)
    own, store = ensure_project_layer(derived.builder, derived.profile.editables), situation.context.store
    if own is not None and own.contents(store).records(store.home):
        check_links(store, [*image.layers, own], image.base, derived.manifest.disabled)
    return Steps(derived, image, own)
