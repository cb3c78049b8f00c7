"""The Python that runs in the sandbox: the base's own where the project accepts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.env.runtime import Runtime
from px.errors import PxError

if TYPE_CHECKING:
    from px.project.discovery import Project
    from px.project.selection import Selection
    from px.sandbox.bases import Base

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_BASE_PYTHONS = {"debian-12": "3.11", "debian-13": "3.13"}


def base_runtime(base: Base) -> Runtime:
    """The base's CPython as a runtime: its tags follow from the base's C library, not from this machine's."""
    libc = next(p.version for p in base.packages if p.name == "libc6").split("-")[0]
    return Runtime(
        version=base.python.full,
        abi=f"cp{base.python.major}{base.python.minor}",
        system="Linux",
        machine=MACHINES[base.architecture],
        libc=f"glibc-{libc}",
    )


def sandbox_runtime(project: Project, selection: Selection, base: Base) -> Runtime:
    """The runtime for this project on this base; a Python that the base does not have is PX900."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    runtime = base_runtime(base)
    for wanted, where in _wishes(project, selection):
        try:
            accepted = SpecifierSet(wanted).contains(runtime.version, prereleases=True)
        except InvalidSpecifier as e:
            raise PxError("PX003", path=project.manifest.path, problem=f"{where} = {wanted!r}: {e}") from e
        if not accepted:
            raise _incompatible(base, runtime, wanted, where)
    return runtime


def _wishes(project: Project, selection: Selection) -> list[tuple[str, str]]:
    """Every statement about the Python version: requires-python of all members, then the pin or flag."""
    found = [(m.requires_python, f"requires-python of {m.name}") for m in project.manifests]
    wishes = [(text, where) for text, where in found if text]
    pin = project.root / ".python-version"
    if selection.python:
        wishes.append((_specifier(selection.python), "--python"))
    elif pin.is_file():
        lines = [line.strip() for line in pin.read_text().splitlines() if line.strip() and not line.startswith("#")]
        wishes += [(_specifier(lines[0]), ".python-version")] if lines else []
    return wishes


def _specifier(version: str) -> str:
    """``3.12`` means any 3.12; a full version asks for the minor, for the patch level is the base's to fix."""
    numbers = version.removeprefix("cpython").lstrip("@-").split("-")[0].split(".")
    if not all(part.isdecimal() for part in numbers):
        return version if version[:1] in "<>=!~" else ""
    return f"=={'.'.join(numbers[:2])}.*" if len(numbers) > 1 else f"=={numbers[0]}.*"


def _incompatible(base: Base, runtime: Runtime, wanted: str, where: str) -> PxError:
    from packaging.specifiers import SpecifierSet

    others = [
        name
        for name, minor in _BASE_PYTHONS.items()
        if name != base.name and SpecifierSet(wanted).contains(f"{minor}.99", prereleases=True)
    ]
    fix = [f'Use a base that has it: [tool.px.sandbox] base = "{name}"' for name in others]
    why = [f"The base has Python {runtime.version}; the project asks for {wanted} ({where})."]
    problem = "it has no Python that this project accepts"
    return PxError("PX900", base=base.name, problem=problem, why=why, fix=fix)
