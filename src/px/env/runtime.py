"""Runtimes: the Python that an env is for, its environment markers and the wheels that it accepts."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from px import process
from px.errors import PxError
from px.project import uv
from px.store.files import write_json

if TYPE_CHECKING:
    from packaging.markers import Environment
    from packaging.tags import Tag

    from px.home import Home
    from px.project.context import Context
    from px.store.objects import Payload

_PROBE = """
import json, platform, sys
print(json.dumps({
    "executable": sys.executable,
    "implementation": sys.implementation.name,
    "version": platform.python_version(),
    "abiflags": getattr(sys, "abiflags", ""),
    "machine": platform.machine(),
    "system": platform.system(),
    "release": platform.release(),
    "platform_version": platform.version(),
    "libc": platform.libc_ver(),
}))
"""


@dataclass(frozen=True)
class Runtime:
    """A CPython, by what it can run: equal runtimes accept the same wheels and give equal profiles."""

    version: str
    """The full version, such as 3.11.2."""
    abi: str
    """Such as cp311, or cp313t for a free-threaded build."""
    system: str
    machine: str
    libc: str
    """glibc or musl, with its version where wheels depend on it: glibc-2.36."""
    release: str = ""
    platform_version: str = ""

    @property
    def minor(self) -> tuple[int, int]:
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    @property
    def python(self) -> str:
        """The directory name under ``lib``: python3.11."""
        return f"python{self.minor[0]}.{self.minor[1]}" + ("t" if self.abi.endswith("t") else "")

    @property
    def site_packages(self) -> str:
        return f"lib/{self.python}/site-packages"

    def payload(self) -> Payload:
        """The identity: nothing of where the interpreter lies or which kernel runs it."""
        return {
            "implementation": "cpython",
            "version": self.version,
            "abi": self.abi,
            "system": self.system,
            "machine": self.machine,
            "libc": self.libc.split("-")[0],
        }

    def markers(self) -> Environment:
        sys_platform = {"Linux": "linux", "Darwin": "darwin"}.get(self.system, self.system.lower())
        return {
            "implementation_name": "cpython",
            "implementation_version": self.version,
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_release": self.release,
            "platform_system": self.system,
            "platform_version": self.platform_version,
            "python_full_version": self.version,
            "platform_python_implementation": "CPython",
            "python_version": f"{self.minor[0]}.{self.minor[1]}",
            "sys_platform": sys_platform,
        }

    def tags(self) -> list[Tag]:
        """Every wheel tag that this runtime accepts, best first."""
        from packaging.tags import compatible_tags, cpython_tags

        platforms = list(self._platforms())
        interpreter = f"cp{self.minor[0]}{self.minor[1]}"
        found = list(cpython_tags(self.minor, abis=[self.abi], platforms=platforms))
        return found + list(compatible_tags(self.minor, interpreter=interpreter, platforms=platforms))

    def _platforms(self) -> list[str]:
        if self.system != "Linux":
            from packaging.tags import platform_tags

            return list(platform_tags())
        name, _, version = self.libc.partition("-")
        major, minor = (int(part) for part in version.split(".")[:2])
        if name == "musl":
            return [f"linux_{self.machine}"] + [f"musllinux_{major}_{m}_{self.machine}" for m in range(minor, -1, -1)]
        return [f"linux_{self.machine}", *_manylinux(minor, self.machine)]


def _manylinux(minor: int, machine: str) -> list[str]:
    # The old names stand for fixed versions of glibc (PEP 600); machines other than x86 start at 2.17.
    aliases = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    lowest = 5 if machine in ("x86_64", "i686") else 17
    found = []
    for m in range(minor, lowest - 1, -1):
        found.append(f"manylinux_2_{m}_{machine}")
        if m in aliases:
            found.append(f"{aliases[m]}_{machine}")
    return found


@dataclass(frozen=True)
class HostPython:
    """A Python of this machine."""

    executable: Path
    runtime: Runtime


def find_interpreter(context: Context, wanted: str | None) -> HostPython:
    """The interpreter that uv chooses for the project: ``--python``, ``.python-version``, requires-python."""
    request, requires = wanted or os.environ.get("UV_PYTHON"), context.project.manifest.requires_python
    done = context.uv.run("python", "find", "--system", *([request] if request else []))
    path = Path(done.stdout.strip())
    if not done.ok or not done.stdout.strip():
        asked, reason = request or requires or "python", uv.explain(done.stderr)
        raise PxError("PX205", requires=asked, reason=reason, install=_install_command(request, requires))
    found = probe(context.home, path)
    if requires and not _satisfies(found.runtime.version, requires):
        reason = f"{path} is {found.runtime.version}, which the project's requires-python excludes."
        raise PxError("PX205", requires=requires, reason=reason, install=_install_command(None, requires))
    return found


def _install_command(request: str | None, requires: str | None) -> str:
    """The command that installs an interpreter which fits; a request that names a file says nothing of versions."""
    wanted = request if request and os.sep not in request else requires
    return f"uv python install {shlex.quote(wanted)}" if wanted else "uv python install"


def _satisfies(version: str, requires: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(requires).contains(version, prereleases=True)


def probe(home: Home, executable: Path) -> HostPython:
    """Ask an interpreter what it is, once: the answer is kept until the file changes."""
    st = executable.stat()
    key = f"{os.fspath(executable)}\0{st.st_mtime_ns}\0{st.st_size}"
    cached = home.cache("interpreters") / (hashlib.sha256(key.encode()).hexdigest()[:32] + ".json")
    try:
        raw: dict[str, Any] = json.loads(cached.read_bytes())
    except (FileNotFoundError, ValueError):
        raw = _ask(executable)
        write_json(cached, raw, durable=False)
    return HostPython(executable, _runtime(raw))


def _ask(executable: Path) -> dict[str, Any]:
    done = process.run([executable, "-I", "-S", "-c", _PROBE])
    if not done.ok:
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        reason = f"{executable} does not run: {reason}"
        raise PxError("PX205", requires=str(executable), reason=reason, install=_install_command(None, None))
    raw: dict[str, Any] = json.loads(done.stdout)
    if raw["implementation"] != "cpython":
        reason = f"{executable} is {raw['implementation']}; px builds envs for CPython."
        raise PxError("PX205", requires="cpython", reason=reason, install=_install_command(None, None))
    return raw


def _runtime(raw: dict[str, Any]) -> Runtime:
    major, minor = raw["version"].split(".")[:2]
    name, version = raw["libc"]
    if not name:
        name, version = _musl() if raw["system"] == "Linux" else ("system", "0")
    return Runtime(
        version=raw["version"],
        abi=f"cp{major}{minor}{'t' if 't' in raw['abiflags'] else ''}",
        system=raw["system"],
        machine=raw["machine"],
        libc=f"{name}-{version}",
        release=raw["release"],
        platform_version=raw["platform_version"],
    )


def _musl() -> tuple[str, str]:
    """An interpreter that does not know its libc runs on musl, whose loader is named after it."""
    return "musl", "1.2"
