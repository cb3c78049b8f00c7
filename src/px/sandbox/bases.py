"""Sandbox bases and the layers of system packages on them, as objects of the store.

A base is what its lock pins: ``base_os_oid`` is the hash of the whole payload, file tree included.  A layer
holds the packages that a base lacks for some capabilities, or for building; layers only add or replace
files, so a root file system is the trees on top of each other.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from px.debian import toolchain
from px.debian.lock import BaseLock, PinnedPackage, file_name, read
from px.debian.recipe import recipe
from px.errors import PxError
from px.store.canonical import oid_of
from px.store.files import write_json
from px.store.objects import tree_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet
    from types import ModuleType

    from px.debian.bytecode import Interpreter
    from px.debian.image import Below
    from px.debian.toolchain import Rules
    from px.store.canonical import Value
    from px.store.objects import Draft, Payload, Store

SHIPPED = Path(__file__).parent.parent / "data" / "bases"
DEFAULT = "debian-12"
# Bases that px can make but ships no pins for.
OPT_IN = ("alpine-3.20",)
DIRECTORY_VARIABLE = "PX_BASES"
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}


@dataclass(frozen=True)
class Python:
    """The interpreter that a base brings: ``/usr/bin/python3``."""

    major: int
    minor: int
    full: str
    """The upstream version, such as 3.11.2."""


@dataclass(frozen=True)
class Layer:
    """One tree of a root file system."""

    oid: str
    kind: str
    what: str
    """``base``, ``bytecode``, ``system``, ``compiler`` or ``build``."""
    tree: Path = field(compare=False)
    packages: tuple[PinnedPackage, ...] = field(repr=False)


@dataclass(frozen=True)
class Base(Layer):
    """A base that is in the store, ready to use."""

    lock: BaseLock = field(repr=False)
    python: Python

    @property
    def name(self) -> str:
        return self.lock.name

    @property
    def architecture(self) -> str:
        return self.lock.architecture

    @property
    def library_directories(self) -> tuple[str, ...]:
        """Where its loader looks without being told, as paths from the root."""
        if is_alpine(self.name):
            return ("/lib", "/usr/local/lib", "/usr/lib")
        triplet = TRIPLETS[self.architecture]
        return (f"/usr/local/lib/{triplet}", f"/usr/lib/{triplet}", "/usr/local/lib", "/usr/lib")


def host_architecture() -> str:
    """The architecture of this machine, in Debian's word for it."""
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise PxError("PX900", base=DEFAULT, problem=f"px has no base for the architecture {machine}")
    return _MACHINES[machine]


def locks_directory() -> Path:
    """Where base locks are read from: px's own data, unless ``PX_BASES`` names a directory."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    return Path(named) if named else SHIPPED


def known_bases() -> tuple[str, ...]:
    """The names that ``[tool.px.sandbox].base`` can have, default first."""
    names = {path.stem.rpartition("-")[0] for path in locks_directory().glob("*-*.json")}
    return tuple(sorted(names, key=lambda name: (name != DEFAULT, name)))


def load_base_lock(name: str, architecture: str) -> BaseLock:
    """Read the lock of a base; an unknown name is an error with the nearest one that exists."""
    directory = locks_directory()
    if not (directory / file_name(name, architecture)).is_file():
        known = known_bases()
        if name in OPT_IN and name not in known:
            raise _not_pinned(name)
        if name in known:
            raise PxError("PX900", base=name, problem=f"px has no lock of it for {architecture}")
        raise unknown_base(name, known)
    try:
        return read(directory, name, architecture)
    except (ValueError, KeyError, TypeError) as e:
        raise PxError("PX900", base=name, problem=f"its lock in {directory} cannot be read: {e}") from e


def _not_pinned(name: str) -> PxError:
    return PxError(
        "PX900",
        base=name,
        problem="px has no pins of it yet",
        why=["It is an opt-in base that nobody has locked against Alpine's archive; px does not guess versions."],
        fix=[
            f"Lock it yourself: PX_ALPINE_MIRROR=URL PX_ALPINE_KEYS=DIR px base lock {name} --out LOCKS",
            "Then use these locks: export PX_BASES=LOCKS",
        ],
    )


def unknown_base(name: str, known: Sequence[str]) -> PxError:
    """The error for a name that is no base, with the nearest one that is."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    fix = [f'Did you mean {near[0]!r}? Set base = "{near[0]}".'] if near else []
    return PxError(
        "PX900", base=name, problem="px does not know it", why=[f"px has these bases: {', '.join(known)}."], fix=fix
    )


def ensure_base(store: Store, lock: BaseLock, *, offline: bool = False) -> Base:
    """The base that ``lock`` pins, made if it is not in the store: no root, no scripts, no other tools."""
    packages = lock.pinned(lock.base)

    def make(draft: Draft) -> Payload:
        tree = _maker(lock).build_base(store, lock, packages, draft.tree(), offline=offline)
        return {
            "name": lock.name,
            "variant": lock.variant,
            "px_base_version": lock.px_base_version,
            "os_release": _os_release(draft.path / "tree"),
            "packages": [_package_row(p) for p in packages],
            "fs_tree": tree,
        }

    oid = store.ensure("sandbox-base", _key(lock, packages, []), make, label=f"the base {lock.name}")
    base = Base(oid, "sandbox-base", "base", store.tree("sandbox-base", oid), packages, lock, _python(packages))
    _publish(store, base)
    return base


def ensure_bytecode_layer(store: Store, base: Base, *, offline: bool = False) -> Layer:
    """The compiled modules of the base's standard library, as a layer: a third of the start-up time of programs.

    Not part of the base, whose identity needs nothing to be run; it follows from the base alone.
    """

    def make(draft: Draft) -> Payload:
        from px.debian.bytecode import compile_sources

        writer = draft.tree()
        if is_alpine(base.name):  # its python3-pyc package has them
            return {"what": "bytecode", "python": base.python.full, "tree": writer.finish()}
        interpreter = interpreter_of(store, base, offline=offline)
        files = _modules(_below(store, base), f"usr/lib/python{base.python.major}.{base.python.minor}/")
        for path, content in sorted(compile_sources(interpreter, files, draft.path)):
            writer.file(path, content)
        return {"what": "bytecode", "python": base.python.full, "tree": writer.finish()}

    key = oid_of("bytecode-inputs", {"base": base.oid, "recipe": recipe()})
    oid = store.ensure("layer", key, make, label=f"the bytecode of {base.name}")
    return Layer(oid, "layer", "bytecode", store.tree("layer", oid), ())


def _modules(base: Below, library: str) -> list[tuple[str, Path]]:
    """Every module of the library and the file that has its source, links followed inside the base."""
    from px.debian.bytecode import is_test
    from px.debian.image import View

    view = View([base])
    sources = [path for path in sorted(base.entries) if path.startswith(library) and path.endswith(".py")]
    modules = [path for path in sources if not is_test(path)]
    files = [(path, view.resolve(path)) for path in modules]
    return [(path, base.root / real) for path, real in files if real in base.entries]


def interpreter_of(store: Store, base: Base, *, offline: bool) -> Interpreter:
    """The base's Python for this machine: its own, or that of the same base for this architecture."""
    from px.debian.bytecode import Interpreter

    native = base
    if base.architecture != host_architecture():
        native = ensure_base(store, load_base_lock(base.name, host_architecture()), offline=offline)
    if native.python != base.python:
        problem = f"its Python is {base.python.full}, that for {native.architecture} is {native.python.full}"
        raise PxError("PX900", base=base.name, problem=problem, fix=["Lock both again: px base lock"])
    return Interpreter(native.tree, native.architecture, f"{base.python.major}.{base.python.minor}")


def ensure_system_layer(
    store: Store, base: Base, capabilities: Iterable[str], *, offline: bool = False
) -> Layer | None:
    """The packages that these capabilities need at run time, or None where the base has them all."""
    names = {n for c in sorted(set(capabilities)) for n in closure(base.lock, c)[0]}
    return _ensure_layer(store, base, "system", names, [], offline=offline)


def ensure_builder_layers(
    store: Store,
    base: Base,
    capabilities: Iterable[str],
    *,
    parts: Sequence[str] = toolchain.ALL,
    offline: bool = False,
) -> tuple[Layer, ...]:
    """What turns sdists into wheels, bottom layer first: the compiler set, then headers for these capabilities.

    The parts of the compiler are the same for every project, so they are made once.
    """
    from concurrent.futures import ThreadPoolExecutor, wait

    lock, wanted = base.lock, sorted(set(capabilities))
    with ThreadPoolExecutor(1) as beside:
        # The libraries as the image will have them, most likely: then they are unpacked only once.
        libraries = beside.submit(ensure_system_layer, store, base, wanted, offline=offline)
        if any(n in lock.compiler for c in wanted for n in closure(lock, c)[0]):
            wait([libraries])  # the two would fetch the same package at once
        layers: list[Layer] = []
        for part in parts:
            names, rules = _compiler_part(lock, part)
            made = _ensure_layer(store, base, part, names, layers, rules=rules, offline=offline)
            layers += [made] if made is not None else []
        system = libraries.result()
    below = [*layers[:1], *([system] if system else [])]
    # On the first part only, so that a build that needs the others finds the same headers made already.
    dev = {n for c in wanted for n in closure(lock, c)[1]} - {p.name for layer in below for p in layer.packages}
    headers = _ensure_layer(store, base, "build", dev - set(lock.compiler), below, offline=offline)
    return tuple(layer for layer in (*layers, system, headers) if layer is not None)


def _compiler_part(lock: BaseLock, part: str) -> tuple[frozenset[str], Rules | None]:
    """The packages of a part of the compiler set, and which of their files it has."""
    if is_alpine(lock.name):
        return frozenset(lock.compiler if part in toolchain.C else ()), None
    return toolchain.part_of(lock.compiler, part, TRIPLETS[lock.architecture])


def closure(lock: BaseLock, capability: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of a capability's runtime and build packages beyond the base."""
    found = lock.capabilities.get(capability)
    if found is None:
        raise PxError("PX901", capability=capability, base=lock.name, problem="the base's lock has no packages for it")
    return found.runtime, found.build


def _ensure_layer(
    store: Store,
    base: Base,
    what: str,
    names: AbstractSet[str],
    on: Sequence[Layer],
    *,
    rules: Rules | None = None,
    offline: bool,
) -> Layer | None:
    packages = base.lock.pinned(names - frozenset(base.lock.base))
    if not packages:
        return None

    def make(draft: Draft) -> Payload:
        draft.refs.extend(f"{layer.kind}/{layer.oid}" for layer in (base, *on))
        below = [_below(store, layer) for layer in (base, *on)]
        more = {"rules": rules} if rules else {}
        tree = _maker(base.lock).build_layer(store, base.lock, packages, draft.tree(), below, offline=offline, **more)
        rows: list[Value] = [_package_row(p) for p in packages]
        payload: Payload = {"what": what, "base": base.oid, "packages": rows, "tree": tree}
        return payload | ({"on": [layer.oid for layer in on]} if on else {})

    ruled = [repr(rules)] if rules else []
    key = _key(base.lock, packages, [what, base.oid, *(layer.oid for layer in on), *ruled])
    oid = store.ensure("layer", key, make, label=f"the {what} layer of {base.name}")
    return Layer(oid, "layer", what, store.tree("layer", oid), packages)


def _maker(lock: BaseLock) -> ModuleType:
    """The module that makes this distribution's trees."""
    import importlib

    return importlib.import_module(f"px.{'alpine' if is_alpine(lock.name) else 'debian'}.build")


def is_alpine(name: str) -> bool:
    return name.startswith("alpine-")


def _below(store: Store, layer: Layer) -> Below:
    from px.debian.image import Below

    return Below(layer.tree, tree_spec(store.payload(layer.kind, layer.oid)))


def _key(lock: BaseLock, packages: Sequence[PinnedPackage], more: Sequence[str]) -> str:
    """What the tree depends on: the pins, and the code that unpacks them."""
    inputs: dict[str, Value] = {
        "name": lock.name,
        "architecture": lock.architecture,
        "variant": lock.variant,
        "px_base_version": lock.px_base_version,
        "packages": [p.sha256 for p in packages],
        "more": list(more),
        "recipe": recipe(),
    }
    return oid_of("tree-inputs", inputs)


def _package_row(package: PinnedPackage) -> Value:
    return {
        "name": package.name,
        "version": package.version,
        "architecture": package.architecture,
        "sha256": package.sha256,
    }


def _os_release(tree: Path) -> Value:
    import shlex

    text = (tree / "usr/lib/os-release").read_text(encoding="utf-8")
    rows = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: "".join(shlex.split(value)) for name, _, value in rows}


def _python(packages: Iterable[PinnedPackage]) -> Python:
    # Debian's python3 has the version of the default, python3.N-minimal that of the interpreter.
    found = [p for p in packages if re.fullmatch(r"python3\.\d+-minimal|python3", p.name)]
    full = max(found, key=lambda p: len(p.name)).version.partition("-")[0]
    major, minor = full.split(".")[:2]
    return Python(int(major), int(minor), full)


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


def installed(store: Store, layer: Layer) -> list[str]:
    """``name version`` of every package in a layer, read back from the store."""
    rows = cast("list[dict[str, str]]", store.payload(layer.kind, layer.oid)["packages"])
    return [f"{row['name']} {row['version']}" for row in rows]
