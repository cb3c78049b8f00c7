"""Sandbox bases: which there are, and what their locks pin as objects of the store.

``base_os_oid`` is the hash of the whole payload, file tree included: not of a name.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from px import DATA
from px.debian.bytecode import Compiler, compile_sources, is_test
from px.debian.image import Image, View
from px.debian.lock import BaseLock, file_name, read
from px.debian.locking.pins import find_pins
from px.errors import PxError
from px.home import Home
from px.platforms import DEFAULT_BASE, host_architecture
from px.sandbox.layers.layer import Layer
from px.store.canonical import oid_of
from px.store.files import write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from px.debian.image import Below
    from px.debian.lock import BaseLock, PinnedPackage
    from px.store.canonical import Value
    from px.store.objects import Draft, Payload, Store


SHIPPED = Path(DATA, "bases")
# Bases that px can make but ships no pins for.
OPT_IN = ("alpine-3.20",)
DIRECTORY_VARIABLE = "PX_BASES"
# Raised by hand when the code in px.debian or px.alpine, its fix-ups or their data make something else of the same
# packages.
RECIPE_DEBIAN = 1
RECIPE_ALPINE = 2
# How the specification of sandboxes writes bases in its examples: px/base:debian-12-py311.
_WITH_PYTHON = re.compile(r"(px/base:)?(?P<base>[a-z]+-[0-9.]+)-py(?P<major>3)(?P<minor>[0-9]+)")


def locks_directories() -> tuple[Path, ...]:
    """Where base locks are looked for: where ``PX_BASES`` says, if it does, in px's home, then in px's own data."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    return (*([Path(named)] if named else []), Home.from_environment().bases, SHIPPED)


def lock_directory(name: str) -> Path:
    """Where a new lock of a base goes if nobody says it: px's home, for a base that px ships no pins of."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    return Path(named) if named else Home.from_environment().bases if name in OPT_IN else SHIPPED


def known_bases() -> tuple[str, ...]:
    """The names that ``[tool.px.sandbox].base`` can have, default first."""
    names = {path.stem.rpartition("-")[0] for place in locks_directories() for path in place.glob("*-*.json")}
    return tuple(sorted(names, key=lambda name: (name != DEFAULT_BASE, name)))


def load_base_lock(name: str, architecture: str, pins: Path | None = None) -> BaseLock:
    """Read the lock of a base; an unknown name is an error with the nearest one that exists.

    ``pins`` is the project's own file, if it has one: then px's locks do not count.
    """
    if pins is not None:
        return find_pins(pins, name, architecture)
    places = [d for d in locks_directories() if (d / file_name(name, architecture)).is_file()]
    if not places:
        known = known_bases()
        if name in OPT_IN and name not in known:
            raise _not_pinned(name)
        if name in known:
            raise PxError("PX900", base=name, problem=f"px has no lock of it for {architecture}")
        raise unknown_base(name, known)
    try:
        return read(places[0], name, architecture)
    except (ValueError, KeyError, TypeError) as e:
        raise PxError("PX900", base=name, problem=f"its lock in {places[0]} cannot be read: {e}") from e


def _not_pinned(name: str) -> PxError:
    return PxError(
        "PX900",
        base=name,
        problem="px has no pins of it yet",
        why=["It is an opt-in base that nobody has locked against Alpine's archive; px does not guess versions."],
        fix=[
            f"Make them, from a mirror of your choice: PX_ALPINE_MIRROR=URL px base lock {name}",
            "For everybody who has the project, then also: px sandbox pin",
        ],
        whole_fix=True,
    )


def unknown_base(name: str, known: Sequence[str]) -> PxError:
    """The error for a name that is no base, with the nearest one that is."""
    with_python = _WITH_PYTHON.fullmatch(name)
    if with_python and with_python["base"] in known:
        version = f"{with_python['major']}.{with_python['minor']}"
        why = "A base's name has no Python in it: the project says which one it runs with."
        fix = [
            f'Set base = "{with_python["base"]}".',
            f"For Python {version}: px sync --sandbox --python {version}, or requires-python in [project].",
        ]
        return PxError("PX900", base=name, problem="px does not know it", why=[why], fix=fix, whole_fix=True)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    fix = [f'Did you mean {near[0]!r}? Set base = "{near[0]}".'] if near else []
    return PxError(
        "PX900", base=name, problem="px does not know it", why=[f"px has these bases: {', '.join(known)}."], fix=fix
    )


@dataclass(frozen=True)
class BasePython:
    """The interpreter that a base brings: ``/usr/bin/python3``."""

    major: int
    minor: int
    full: str
    """The upstream version, such as 3.11.2."""


@dataclass(frozen=True)
class Base(Layer):
    """A base that is in the store, ready to use."""

    lock: BaseLock = field(kw_only=True, repr=False)
    python: BasePython = field(kw_only=True)

    @property
    def name(self) -> str:
        return self.lock.name

    @property
    def architecture(self) -> str:
        return self.lock.architecture

    @property
    def is_alpine(self) -> bool:
        return self.lock.is_alpine


def ensure_base(store: Store, lock: BaseLock) -> Base:
    """The base that ``lock`` pins, made if it is not in the store: no root, no scripts, no other tools."""
    packages = lock.pinned(lock.base)

    def make(draft: Draft) -> Payload:
        # Only here: a base is looked up far more often than it is made.
        if lock.is_alpine:
            from px.alpine.build import build_base
        else:
            from px.debian.build import build_base
        tree = build_base(store, lock, packages, Image(draft.tree()))
        return {
            "name": lock.name,
            "variant": lock.variant,
            "px_base_version": lock.px_base_version,
            "os_release": _os_release(draft.path / "tree"),
            "packages": [package_row(p) for p in packages],
            "fs_tree": tree,
        }

    oid = store.ensure("sandbox-base", inputs_key(lock, packages, []), make, label=f"the base {lock.name}")
    tree = store.tree("sandbox-base", oid)
    base = Base(oid, "sandbox-base", "base", tree, packages, lock=lock, python=_python(packages))
    _publish(store, base)
    return base


def inputs_key(lock: BaseLock, packages: Sequence[PinnedPackage], more: Sequence[str]) -> str:
    """What a tree of the distribution's packages depends on: the pins, and the code that unpacks them."""
    inputs: dict[str, Value] = {
        "name": lock.name,
        "architecture": lock.architecture,
        "variant": lock.variant,
        "px_base_version": lock.px_base_version,
        "packages": [p.sha256 for p in packages],
        "more": list(more),
        "recipe": RECIPE_ALPINE if lock.is_alpine else RECIPE_DEBIAN,
    }
    return oid_of("tree-inputs", inputs)


def package_row(package: PinnedPackage) -> Value:
    return {
        "name": package.name,
        "version": package.version,
        "architecture": package.architecture,
        "sha256": package.sha256,
    }


def _os_release(tree: Path) -> Value:
    found = [tree / name for name in ("usr/lib/os-release", "etc/os-release") if (tree / name).is_file()]
    text = found[0].read_text(encoding="utf-8") if found else ""
    rows = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: "".join(shlex.split(value)) for name, _, value in rows}


def _python(packages: Iterable[PinnedPackage]) -> BasePython:
    # Debian's python3 has the version of the default, python3.N-minimal that of the interpreter.
    found = [p for p in packages if re.fullmatch(r"python3\.\d+-minimal|python3", p.name)]
    full = max(found, key=lambda p: len(p.name)).version.partition("-")[0]
    major, minor = full.split(".")[:2]
    return BasePython(int(major), int(minor), full)


def _publish(store: Store, base: Base) -> None:
    """``sandbox/bases/<base_os_oid>``: a manifest, and the root file system for people to look at."""
    view = store.home.sandbox / "bases" / base.oid
    if (view / "manifest.json").exists():
        return
    payload = store.payload("sandbox-base", base.oid)
    manifest = {key: value for key, value in payload.items() if key != "fs_tree"}
    view.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):  # another process was faster
        (view / "rootfs").symlink_to(os.path.relpath(base.tree, view))
    write_json(view / "manifest.json", manifest | {"base_os_oid": base.oid}, durable=False)


# --- its compiled modules --------------------------------------------------------------------------------------


def ensure_bytecode_layer(store: Store, base: Base) -> Layer:
    """The compiled modules of the base's standard library, as a layer: a third of the start-up time of programs.

    Not part of the base, whose identity needs nothing to be run; it follows from the base alone.
    """

    def make(draft: Draft) -> Payload:
        writer = draft.tree()
        library = f"usr/lib/python{base.python.major}.{base.python.minor}/"
        files = _modules(base.below(store), library)
        for path, content in sorted(compile_sources(compiler_of(store, base), files, draft.path)):
            writer.file(path, content)
        return {"what": "bytecode", "python": base.python.full, "tree": writer.finish()}

    key = oid_of("bytecode-inputs", {"base": base.oid, "recipe": BYTECODE_RECIPE})
    return Layer.of(store, store.ensure("layer", key, make, label=f"the bytecode of {base.name}"), "bytecode")


BYTECODE_RECIPE = 1
"""Raised by hand when what is compiled of a base, or how, changes."""


def _modules(base: Below, library: str) -> list[tuple[str, Path]]:
    """Every module of the library and the file that has its source, links followed inside the base."""
    view = View([base])
    sources = [path for path in sorted(base.entries) if path.startswith(library) and path.endswith(".py")]
    files = [(path, view.resolve(path)) for path in sources if not is_test(path)]
    return [(path, base.root / real) for path, real in files if real in base.entries]


def compiler_of(store: Store, base: Base) -> Compiler:
    """The base's Python for this machine: its own, or that of the same base for this architecture."""
    native = base
    if base.architecture != host_architecture():
        native = ensure_base(store, load_base_lock(base.name, host_architecture(), base.lock.pins))
    if native.python != base.python:
        problem = f"its Python is {base.python.full}, that for {native.architecture} is {native.python.full}"
        raise PxError("PX900", base=base.name, problem=problem, fix=["Lock both again: px base lock"])
    version = f"{base.python.major}.{base.python.minor}"
    return Compiler(native.tree, native.architecture, version, is_musl=base.is_alpine)
