"""What a task of Metaflow needs beside the project's packages: chosen by uv, pinned, and made for the image.

Metaflow itself comes with the code package of every run, always in the version of the run.  What it imports to reach
the datastore would be installed by pip when a task starts; here it is in the image.  The project's lock goes first: a
package that it has is taken from there, and the others are chosen to fit it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from px import DATA, bounds
from px.env.artifacts import Artifact, pick
from px.env.packages import Packages
from px.errors import PxError
from px.project import uv
from px.store.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from px.env.packages import Package
    from px.env.runtime import Runtime
    from px.project.context import Context
    from px.sandbox.definition import Derived

FORMAT = 1
_PIN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,98}[a-z0-9])?==[A-Za-z0-9.!+_-]{1,100}")
_REMEDY = (
    "Correct what uv names: a version that your lock has and the others do not fit, or the way to the index. "
    "What the project locks itself is taken from there: px add PACKAGE"
)


@dataclass(frozen=True)
class Tasks:
    """The kind of tasks that an image is for."""

    datastore: str
    pins: tuple[str, ...] = ()
    """The packages as an image has them (``boto3==1.40.1``); without any, they are chosen."""
    apt: bool = False
    """Whether apt shall find what is installed: E2B installs programs of its own into every image."""

    def __post_init__(self) -> None:
        if self.datastore not in _table()["datastores"]:
            known = ", ".join(datastores())
            raise PxError(
                "PX040", option="--metaflow", value=self.datastore, problem=f"it is none of {known}", example="s3"
            )
        for pin in self.pins:
            if _PIN.fullmatch(pin) is None:
                raise PxError("PX923", source="the image", problem=f"{pin[:100]!r} is not a pinned package")


def datastores() -> tuple[str, ...]:
    """The datastores that a task elsewhere can have."""
    return tuple(_table()["datastores"])


def task_pins() -> dict[str, str]:
    """The version that px prefers of each package."""
    return dict(_table()["pins"])


def task_programs() -> dict[str, bytes]:
    """What Metaflow runs in a container besides the task itself, by its path there."""
    with open(os.path.join(DATA, "tasks", "killall5"), "rb") as f:
        return {"usr/sbin/killall5": f.read()}


@cache
def _table() -> dict[str, Any]:
    with open(os.path.join(DATA, "tasks.toml"), "rb") as f:
        return tomllib.load(f)


def task_packages(derived: Derived, tasks: Tasks) -> tuple[Package, ...]:
    """The packages that the tasks need and the project's lock lacks."""
    context, runtime = derived.ground.context, derived.ground.python.runtime
    own = {p.name: p.version for p in derived.profile.packages}
    wanted = tasks.pins or tuple(_table()["datastores"][tasks.datastore])
    artifacts = _chosen(context, runtime, wanted, tuple(f"{n}=={v}" for n, v in sorted(own.items())))
    return Packages(context, derived.builder).ensure([a for a in artifacts if a.name not in own])


def _chosen(
    context: Context, runtime: Runtime, wanted: tuple[str, ...], constraints: tuple[str, ...]
) -> list[Artifact]:
    """Chosen once, and remembered: a second run asks no index."""
    facts = [FORMAT, wanted, constraints, task_pins(), runtime.payload(), runtime.libc, str(context.root)]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:40]
    cached = context.home.cache("selections") / f"tasks-{key}.json"
    try:
        return [Artifact(**raw) for raw in json.loads(cached.read_bytes())]
    except (FileNotFoundError, ValueError, TypeError):
        pass
    with context.store.draft() as draft:
        document = _resolved(context, runtime, draft.path, wanted, constraints)
    found = pick(context, document, runtime)
    write_atomically(cached, json.dumps([asdict(a) for a in found]).encode(), durable=False)
    return found


def _resolved(
    context: Context, runtime: Runtime, scratch: Path, wanted: Sequence[str], constraints: Sequence[str]
) -> dict[str, Any]:
    """uv's choice as a PEP 751 document.  Wheels only: so nothing is built, and no code of a package runs here."""
    asked, given, out = (scratch / name for name in ("tasks.in", "constraints.txt", "pylock.toml"))
    asked.write_text("\n".join(wanted), encoding="utf-8")
    given.write_text("\n".join(constraints), encoding="utf-8")
    # uv keeps the versions of a file that it is to write, as far as they fit.
    out.write_text(_preferred(), encoding="utf-8")
    libc = "musl" if runtime.libc.startswith("musl") else "gnu"
    flags = ["--format", "pylock.toml", "--only-binary", ":all:", "--no-header", "--no-annotate", "--quiet"]
    flags += ["--python-version", ".".join(runtime.version.split(".")[:2])]
    flags += ["--python-platform", f"{runtime.machine}-unknown-linux-{libc}"]
    flags += ["--constraint", str(given), "--output-file", str(out), str(asked)]
    done = context.uv.run("pip", "compile", *flags)
    if not done.ok:
        raise uv.failure("choose the packages that tasks of Metaflow need", done, _REMEDY)
    try:
        return bounds.read_toml(out)
    except ValueError as e:
        raise PxError("PX100", action="choose packages for tasks", reason=str(e), remedy=_REMEDY) from e


def _preferred() -> str:
    lines = ['lock-version = "1.0"', 'created-by = "px"']
    for name, version in sorted(task_pins().items()):
        lines += ["[[packages]]", f'name = "{name}"', f'version = "{version}"']
    return "\n".join(lines) + "\n"
