"""Running a target in the project's sandbox: ``px run --sandbox``, ``px test --sandbox`` and their warm path."""

from __future__ import annotations

import os

from px.cli.host import here
from px.cli.target import is_python
from px.record import Record

TYPE_CHECKING = False  # typing's own would import it, and a warm run pays for every import
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping
    from typing import Any

    from px.engines.spec import ImageSource, Mount, RunSpec

APP = "/app"
BINARIES = "/opt/px/env/bin"
_SEARCHED = (BINARIES, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
_PYTHON_FILES = (".py", ".pyw", ".pyz", ".pyc")
# Of the host's environment only what a terminal program needs to draw.
_PASSED = ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
_KEPT_OF_STDERR = 64 * 1024
_KILLED = 128 + 9


class Options(Record):
    """What the flags of the command ask for; without flags, the defaults."""

    engine: str | None = None
    volumes: tuple[Mount, ...] = ()
    env: Mapping[str, str] = {}
    network: bool = True
    read_only: bool = False
    memory: str | None = None
    cpus: str | None = None
    pids: str | None = None


class Sandbox(Record):
    """A built sandbox of a project, from its record."""

    root: str
    layers: tuple[str, ...]
    variables: dict[str, str]
    image: str
    details: dict[str, str]

    @classmethod
    def from_record(cls, root: str, raw: dict[str, Any]) -> Sandbox:
        return cls(root, tuple(raw["layers"]), raw["variables"], raw["env"], raw["details"])

    @property
    def whole(self) -> bool:
        """The cheap check of the warm path; ``px store verify`` reads every byte."""
        return all(os.path.isdir(layer) for layer in self.layers)


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags that only mean something with ``--sandbox``."""
    group = parser.add_argument_group("sandbox")
    group.add_argument("--sandbox", action="store_true", help="run in the project's sandbox instead of on this machine")
    group.add_argument("--engine", metavar="NAME", help="bubblewrap, docker or podman (also: PX_ENGINE)")
    group.add_argument("--volume", action="append", default=[], metavar="SRC:DST[:ro]", help="mount something more")
    group.add_argument(
        "-e", "--env", action="append", default=[], metavar="NAME[=VALUE]", help="set or pass a variable"
    )
    group.add_argument("--no-network", action="store_true", help="no network, not even this machine's loopback")
    group.add_argument("--read-only", action="store_true", help="the project cannot be written to")
    group.add_argument("--memory", metavar="SIZE", help="a limit such as 512m or 2g")
    group.add_argument("--cpus", metavar="N", help="a limit such as 1.5")
    group.add_argument("--pids", metavar="N", help="the most processes at once")
    group.add_argument("--auto-add", action="store_true", help="add a capability that an error asks for, and try again")


def options_from(args: argparse.Namespace) -> Options:
    from pathlib import Path

    from px.engines.options import parse_env, parse_volume

    return Options(
        engine=args.engine,
        volumes=tuple(parse_volume(text, Path.cwd()) for text in args.volume),
        env=parse_env(args.env, os.environ),
        network=not args.no_network,
        read_only=args.read_only,
        memory=args.memory,
        cpus=args.cpus,
        pids=args.pids,
    )


def check_flags(args: argparse.Namespace, command: str) -> None:
    """Refuse sandbox flags without ``--sandbox``: silence would look like obedience."""
    names = ("engine", "volume", "env", "no_network", "read_only", "memory", "cpus", "pids", "auto_add")
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name)]
    if given and not args.sandbox:
        from px.errors import PxError

        raise PxError("PX041", command=command, flag=given[0])


def run_warm(target: str, arguments: list[str]) -> int | None:
    """Run in the sandbox if nothing changed since it was built; None if there is anything to decide or to say."""
    from px.project import warm

    try:
        found = warm.find(here(), "sandbox")
        if found is None:
            return None
        sandbox = Sandbox.from_record(*found)
    except (OSError, KeyError, TypeError, AttributeError):
        return None
    command = resolve(sandbox, target, arguments)
    if command is None or not sandbox.whole:
        return None
    return run(sandbox, command, Options())


def run(sandbox: Sandbox, command: list[str], options: Options, on_failure: Callable[[str], None] | None = None) -> int:
    """Run to the end and return the target's code; what it said on standard error is searched when it fails."""
    from px.engines import choose
    from px.engines.streams import tee
    from px.project.fingerprint import home_root
    from px.store.hold import hold_across_exec, use_lock

    engine = choose(options.engine, home_root())
    hold_across_exec(use_lock(sandbox.image))
    kept = bytearray()

    def keep(piece: bytes) -> None:
        kept.extend(piece)
        del kept[:-_KEPT_OF_STDERR]

    wanted = spec(sandbox, command, options)
    if engine.name != "bubblewrap":
        wanted = wanted._replace(image=image_source(sandbox))
    code = engine.run(wanted, stderr=tee(2, keep))
    if code == _KILLED and options.memory:
        from px import console

        console.warn(f"the target was killed, as happens when it needs more than --memory {options.memory}")
    if code != 0 and kept:
        (on_failure or (lambda text: explain_failure(text, sandbox)))(kept.decode("utf-8", "replace"))
    return code


def image_source(sandbox: Sandbox) -> ImageSource:
    """The sandbox as an image, for engines that cannot run unpacked layers; packed once."""
    from px.engines.spec import ImageSource
    from px.errors import PxError
    from px.home import Home
    from px.sandbox.encode import encode, write
    from px.store.objects import Store

    store = Store(Home.from_environment())
    sbx_id = os.path.basename(sandbox.image)
    built = encode(store, sbx_id, sandbox.details["project_layer"])
    if built is None:
        raise PxError("PX801", kind="image", oid=sbx_id)
    path = store.home.cache / "archives" / f"{built.config.digest.removeprefix('sha256:')}.tar"
    return ImageSource((built.config.digest, built.digest), lambda: write(store, built, path))


def explain_failure(text: str, sandbox: Sandbox) -> None:
    """Say which capability would have helped, if the output of a failed target shows it."""
    error = missing_capability(text, sandbox)
    if error is not None:
        import sys

        sys.stderr.write("\n" + "\n".join(error.lines()) + "\n")


def missing_capability(text: str, sandbox: Sandbox) -> Any:
    """The PX902 for what a failed target said was missing, or None."""
    from px.sandbox import patterns

    have = set(sandbox.details["capabilities"].split(","))
    found = [s for s in patterns.match(text, sandbox.details["base"]) if s.capability not in have]
    return patterns.missing_error(found, [s.line.strip() for s in found]) if found else None


def missing_program(name: str, sandbox: Sandbox) -> Any:
    """The PX902 for a target that is a program of a capability which the sandbox does not have, or None."""
    from px.sandbox import patterns

    capability = patterns.capability_of("program", name, sandbox.details["base"])
    if capability is None or capability in sandbox.details["capabilities"].split(","):
        return None
    found = patterns.Suggestion(capability, name, "program", "")
    return patterns.missing_error([found], [f"{name} is a program of the capability {capability}."])


def spec(sandbox: Sandbox, command: list[str], options: Options) -> RunSpec:
    """One run of one command, complete."""
    from px.engines.spec import Mount, RunSpec

    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    base = RunSpec(
        layers=sandbox.layers,
        argv=tuple(command),
        env={**passed, "HOME": "/home/px", "USER": "px", **sandbox.variables, **options.env},
        cwd=inside(sandbox, os.getcwd()) or APP,
        mounts=(Mount(sandbox.root, APP, options.read_only), *options.volumes),
        network=options.network,
        tty=any(os.isatty(fd) for fd in (0, 1, 2)),
        label=os.path.basename(sandbox.image),
    )
    if options.memory or options.cpus or options.pids:
        from px.engines.options import parse_limits

        base = base._replace(limits=parse_limits(memory=options.memory, cpus=options.cpus, pids=options.pids))
    if os.environ.get("PX_EXTRA_CA"):
        from px.engines.options import extra_ca

        base = base._replace(extra_ca=extra_ca(os.environ))
    return base


def inside(sandbox: Sandbox, path: str) -> str | None:
    """Where a path of the host is in the sandbox; None if it is not part of the project."""
    for candidate in (path, os.path.realpath(path)):
        for root in (sandbox.root, os.path.realpath(sandbox.root)):
            if candidate == root:
                return APP
            if candidate.startswith(root + os.sep):
                return APP + candidate[len(root) :]
    return None


def resolve(sandbox: Sandbox, target: str, arguments: list[str]) -> list[str] | None:
    """The command line that a target stands for inside: the rules of ``px run``, applied to the image's files."""
    if os.path.isabs(target):
        placed = inside(sandbox, target) if os.path.exists(target) else None
        path = placed or (target if in_image(sandbox, target) else None)
        python_file = placed is not None and _wants_python(target, target)
        return None if path is None else [*([f"{BINARIES}/python"] if python_file else []), path, *arguments]
    file = os.path.join(os.getcwd(), target)
    if os.path.isfile(file) and inside(sandbox, file):
        if _wants_python(target, file):
            return [f"{BINARIES}/python", target, *arguments]
        return [target if os.sep in target else os.path.join(".", target), *arguments]
    if os.path.isfile(os.path.join(file, "__main__.py")):
        return [f"{BINARIES}/python", target, *arguments]
    for directory in (BINARIES,) if is_python(target) else () if os.sep in target else _SEARCHED:
        if in_image(sandbox, f"{directory}/{target}"):
            return [f"{directory}/{target}", *arguments]
    return None


def _wants_python(name: str, file: str) -> bool:
    return name.endswith(_PYTHON_FILES) or not os.access(file, os.X_OK)


def in_image(sandbox: Sandbox, path: str) -> bool:
    return any(os.path.lexists(layer + path) for layer in reversed(sandbox.layers))
