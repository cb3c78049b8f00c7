"""The Python that runs in the sandbox: the base's own where the project accepts it, else one that a layer brings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px import console
from px.env.runtime import Runtime
from px.errors import PxError
from px.platforms import host_architecture, machine_of
from px.sandbox.layers.base import compiler_of, known_bases, load_base_lock
from px.warm.spec import PYTHON

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from px.debian.bytecode import Compiler
    from px.project.context import Context
    from px.project.discovery import Project
    from px.project.selection import Selection
    from px.sandbox.layers.base import Base
    from px.sandbox.layers.layer import Layer
    from px.store.objects import Payload

# What uv understands as a version: 3, 3.12, 3.12.4, cpython@3.12, python3.12, cpython-3.12.4-linux-x86_64-gnu.
_REQUEST = re.compile(r"(?:c?python)?[@-]?(?P<version>\d+(?:\.\d+){0,2})(?:-\w.*)?")
_ANY = ("", "any", "default", "python", "cpython")


@dataclass(frozen=True)
class SandboxPython:
    """The interpreter of a sandbox: the base's own, or one that a layer brings."""

    runtime: Runtime
    layer: Layer | None = None

    @property
    def directory(self) -> str:
        """Where the program lies, inside the sandbox."""
        return f"{PYTHON}/bin" if self.layer else "/usr/bin"

    @property
    def program(self) -> str:
        return f"{self.directory}/{self.runtime.python}"

    @property
    def payload(self) -> Payload | None:
        """What stands for the runtime in the profile; None where the runtime's own payload says it all."""
        return {**self.runtime.payload(), "layer": self.layer.oid} if self.layer else None

    @property
    def identity(self) -> Payload:
        return self.payload or self.runtime.payload()


@dataclass(frozen=True)
class Ground:
    """What the packages of a sandbox stand on: a base and an interpreter, for one project."""

    context: Context
    base: Base
    python: SandboxPython


def compiler_for(ground: Ground) -> Compiler:
    """What compiles modules for the sandbox's Python on this machine."""
    layer = ground.python.layer
    if layer is None:
        return compiler_of(ground.context.store, ground.base)
    from px.sandbox.layers.runtime import LayeredPython, layered_compiler

    return layered_compiler(ground.context, ground.base, LayeredPython(ground.python.runtime, layer))


def ensure_runtime_layers(ground: Ground) -> tuple[Layer, ...]:
    """The layers that bring the interpreter, its compiled standard library second; none if it is the base's."""
    layer = ground.python.layer
    if layer is None:
        return ()
    from px.sandbox.layers.runtime import LayeredPython, ensure_bytecode

    return (layer, ensure_bytecode(ground.context, ground.base, LayeredPython(ground.python.runtime, layer)))


@dataclass(frozen=True)
class Wish:
    """One statement about the Python version, as a specifier."""

    specifier: SpecifierSet
    where: str
    exact: str | None = None
    """The full version, if it names one; a base that has its minor version will do all the same."""

    def accepts(self, version: str) -> bool:
        return self.specifier.contains(version, prereleases=True)


def base_runtime(base: Base) -> Runtime:
    """The base's CPython as a runtime: its tags follow from the base's C library, not from this machine's."""
    return Runtime(
        version=base.python.full,
        abi=f"cp{base.python.major}{base.python.minor}",
        system="Linux",
        machine=machine_of(base.architecture),
        libc=_libc(base),
    )


def _libc(base: Base) -> str:
    name, package = ("musl", "musl") if base.is_alpine else ("glibc", "libc6")
    found = next((p.version for p in base.packages if p.name == package), None)
    if found is None:
        raise PxError("PX900", base=base.name, problem=f"its lock has no C library, the package {package}")
    return f"{name}-{found.partition('-')[0]}"


def choose_python(context: Context, selection: Selection, base: Base) -> Ground:
    """The base with the interpreter that this project gets on it; one that cannot be had is PX900."""
    wishes = _wishes(context.project, selection, base)
    own = base_runtime(base)
    refusals = [wish for wish in wishes if not wish.accepts(own.version)]
    if not refusals:
        return Ground(context, base, SandboxPython(own))
    console.detail(f"runtime: {base.name} has Python {own.version}; {refusals[0].where} asks for another")
    return Ground(context, base, _layered(context, base, wishes, refusals[0]))


def _layered(context: Context, base: Base, wishes: list[Wish], refusal: Wish) -> SandboxPython:
    from px.sandbox.layers import pythons
    from px.sandbox.layers.runtime import ensure_python

    if base.is_alpine:
        raise _incompatible(base, wishes, refusal, None, "px has builds of CPython for glibc, and the base has musl")
    exact = next((wish.exact for wish in wishes if wish.exact), None)
    version = None
    try:
        choice = pythons.choose(context, base.architecture, lambda v: all(w.accepts(v) for w in wishes), exact)
        version = choice.version
        found = ensure_python(context, choice, _libc(base))
    except pythons.UnavailableError as e:
        raise _incompatible(base, wishes, refusal, version, str(e)) from e
    console.detail(f"runtime: CPython {choice.version} from a layer of its own")
    return SandboxPython(found.runtime, found.layer)


def _wishes(project: Project, selection: Selection, base: Base) -> list[Wish]:
    """Every statement about the Python version: requires-python of all members, then the pin or flag."""
    stated = [(m.requires_python, f"requires-python of {m.name}") for m in project.manifests]
    wishes = [Wish(_specifiers(text, where, project), where) for text, where in stated if text]
    pin = project.root / ".python-version"
    if selection.python:
        wishes += _requested(selection.python, "--python", project, base)
    elif pin.is_file():
        lines = [line.strip() for line in pin.read_text().splitlines() if line.strip() and not line.startswith("#")]
        wishes += _requested(lines[0], ".python-version", project, base) if lines else []
    return wishes


def _specifiers(text: str, where: str, project: Project) -> SpecifierSet:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(text)
    except InvalidSpecifier as e:
        raise PxError("PX003", path=project.manifest.path, problem=f"{where} = {text!r}: {e}") from e


def _requested(text: str, where: str, project: Project, base: Base) -> list[Wish]:
    """``3.12`` means any 3.12; a full version asks a base for the minor only, for the patch level is the base's."""
    if text[:1] in "<>=!~":
        return [Wish(_specifiers(text, where, project), where)]
    if text in _ANY or "/" in text:
        return []  # a path on this machine says nothing about the sandbox
    found = _REQUEST.fullmatch(text)
    if found is None:
        why = [f"{where} asks for {text!r}; px runs stable releases of CPython with their global lock in sandboxes."]
        fix = [f"Ask for a version such as 3.12 for the sandbox: px … --python 3.12, or in {where}"]
        raise PxError("PX900", base=base.name, problem="px has no such Python for it", why=why, fix=fix)
    numbers = found["version"].split(".")
    specifier = _specifiers(f"=={'.'.join(numbers[:2])}.*", where, project)
    return [Wish(specifier, where, found["version"] if len(numbers) == 3 else None)]


def _minor_version(base: str) -> str:
    """3.11 for the variant py311, which is in the base's lock."""
    digits = load_base_lock(base, host_architecture()).variant.removeprefix("py")
    return f"{digits[:1]}.{digits[1:]}"


def _incompatible(base: Base, wishes: list[Wish], refusal: Wish, version: str | None, reason: str) -> PxError:
    others = [
        name
        for name in known_bases()
        if name != base.name and all(wish.accepts(f"{_minor_version(name)}.99") for wish in wishes)
    ]
    fix = [f'Use a base that has it: [tool.px.sandbox] base = "{name}"' for name in others]
    why = [f"The base has Python {base.python.full}; the project asks for {refusal.specifier} ({refusal.where})."]
    if version is None:
        why.append(f"px can add none either: {reason}")
        fix = fix or ["Name a full version, which px takes without a pin of its own: --python, or .python-version"]
    else:
        why.append(f"uv could not provide CPython {version}: {reason}")
        fix.append("Where the network allows, keep what uv downloads, then run px with the same variable:")
        fix[-1] += f" UV_PYTHON_CACHE_DIR=DIR uv python install {version}"
    problem = "it has no Python that this project accepts"
    return PxError("PX900", base=base.name, problem=problem, why=why, fix=fix, whole_fix=True)
