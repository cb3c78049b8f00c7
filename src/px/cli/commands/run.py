"""``px run``: become the target, in the project's env."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from px.engines.gpu.asked import ALL, parse_asked
from px.engines.network.modes import parse_flags
from px.engines.options import RunOptions, parse_env, parse_limits, parse_volume
from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.project.context import Context

_EPILOG = """\
The target is, in this order: a file; python, python3 or python3.N; a console script of the env; a directory with a
__main__.py; a program on the env's PATH. Flags of px come before it. Everything after it belongs to the target.

  px run python -c 'import sys; print(sys.prefix)'
  px run scripts/report.py --all
  px run pytest -x

The exit code is the target's own; 128 + n when signal n ended it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_sandbox(parser)
    parser.add_argument("target", metavar="TARGET", help="what to run")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the target, passed on untouched"
    )


def arrange(parser: argparse.ArgumentParser, argv: Sequence[str]) -> list[str]:
    """px's own flags, up to the target, as argparse wants them."""
    known = {flag: action for action in parser._actions for flag in action.option_strings}
    words, done = list(argv), []
    while words and words[0] != "--" and words[0].startswith("-"):
        done.append(first_flag(words))
        action = known.get(done[-1])
        if action is not None and action.nargs is None and words:
            done.append(words.pop(0))
    return [*done, *words]


def first_flag(words: list[str]) -> str:
    """Take the first flag; ``--gpu`` with its value, because argparse would take a target for the number."""
    word = words.pop(0)
    if word != "--gpu":
        return word
    given = words and (words[0] == ALL or words[0].isdecimal())
    return f"--gpu={words.pop(0) if given else ALL}"


def main(args: argparse.Namespace, context: Context) -> int:
    # Not at the top: `px run --help`, and a target on this machine, need nothing of what makes sandboxes.
    from px.workflow.door import ensure_host
    from px.workflow.run import become, run_in_sandbox

    check_sandbox(args, "run")
    beside = context.directory / args.target
    if args.project and not os.path.exists(args.target) and beside.exists():
        args.target = str(beside)  # a file of the project that was named, seen from elsewhere
    try:
        if not args.sandbox:
            become(args.target, args.arguments, ensure_host(context, "run").built)
        return run_in_sandbox(context, "run", run_options(args), lambda _: (args.target, args.arguments))
    except PxError as e:
        if e.code == "PX020":
            raise _about_volumes(args) or _about_scripts(context, e) from None
        raise


def _about_volumes(args: argparse.Namespace) -> PxError | None:
    """Say more if the target is what docker's -v would take: px's own -v says more of what px does."""
    if not args.verbose or ":/" not in args.target:
        return None
    example = f"px run --sandbox --volume {args.target} {' '.join(args.arguments[:1]) or 'TARGET'}"
    return PxError(
        "PX040", option="-v", value=args.target, problem="-v is --verbose; a volume is --volume", example=example
    )


def _about_scripts(context: Context, error: PxError) -> PxError:
    """Say more if the target is a script of a project that is not installed: uv has the same rule, and it surprises."""
    for manifest in context.project.manifests:
        if error.fields["target"] in manifest.scripts and not manifest.is_package:
            why = f"It is a script of {manifest.name}, which is not installed: its manifest has no [build-system]."
            fix = f"Set [tool.uv] package = true in {manifest.path}, then run: px sync"
            target, look = error.fields["target"], error.fields["look"]
            return PxError("PX020", why=[why], fix=[fix], target=target, look=look)
    return error


# --- flags that `px test` has too ------------------------------------------------------------------------------

_SANDBOX_FLAGS = (
    *("engine", "volume", "env", "network", "no_network", "allow_net", "publish"),
    *("read_only", "read_write", "git_write", "no_cache", "memory", "cpus", "pids", "gpu", "auto_add"),
)


def add_sandbox(parser: argparse.ArgumentParser) -> None:
    """The flags that only mean something with ``--sandbox``."""
    group = parser.add_argument_group("sandbox")
    group.add_argument("--sandbox", action="store_true", help="run in the project's sandbox instead of on this machine")
    group.add_argument("--engine", metavar="NAME", help="bubblewrap, docker or podman (also: PX_ENGINE)")
    group.add_argument(
        "--volume",
        action="append",
        default=[],
        metavar="SRC:DST[:ro]",
        help="mount a file or directory of this machine",
    )
    group.add_argument(
        "-e",
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="set a variable, or pass on its value here",
    )
    group.add_argument("--network", metavar="MODE", help="host (the default), none, or allow: only named hosts")
    group.add_argument("--no-network", action="store_true", help="--network none: not even this machine's loopback")
    group.add_argument(
        "--allow-net",
        action="append",
        default=[],
        metavar="HOST[:PORT]",
        help="--network allow, and this host: a name, *.name, an address or a range (10.0.0.0/8:5432)",
    )
    group.add_argument(
        "--publish",
        action="append",
        default=[],
        metavar="[HOST:]PORT[:INSIDE]",
        help="let a port of this machine lead to a server in the sandbox",
    )
    mode = group.add_mutually_exclusive_group()
    mode.add_argument("--read-only", action="store_true", help="the project cannot be written to")
    mode.add_argument("--read-write", action="store_true", help="it can, though [tool.px.sandbox] says read-only")
    group.add_argument("--git-write", action="store_true", help="the target may write to the project's git repository")
    group.add_argument("--no-cache", action="store_true", help="without the project's ~/.cache, which outlives runs")
    group.add_argument("--memory", metavar="SIZE", help="a limit such as 512m or 2g")
    group.add_argument("--cpus", metavar="N", help="a limit such as 1.5")
    group.add_argument("--pids", metavar="N", help="the most processes at once")
    group.add_argument(
        "--gpu",
        metavar="[N|all]",
        help="give the sandbox GPUs of this machine: --gpu all that can be seen, --gpu=1 one of them, --gpu=0 none",
    )
    group.add_argument(
        "--auto-add", action="store_true", help="if an error asks for a capability, add it for this run and try again"
    )


def check_sandbox(args: argparse.Namespace, command: str) -> None:
    """Refuse sandbox flags without ``--sandbox``: silence would look like obedience."""
    given = [f"--{name.replace('_', '-')}" for name in _SANDBOX_FLAGS if getattr(args, name)]
    if given and not args.sandbox:
        raise PxError("PX041", command=command, flag=given[0])


def run_options(args: argparse.Namespace) -> RunOptions:
    return RunOptions(
        engine=args.engine,
        volumes=tuple(parse_volume(text, Path.cwd()) for text in args.volume),
        env=parse_env(args.env, os.environ),
        network=parse_flags(args.network, args.no_network, args.allow_net, args.publish),
        read_only=True if args.read_only else False if args.read_write else None,
        git_write=args.git_write,
        cache=not args.no_cache,
        limits=parse_limits(memory=args.memory, cpus=args.cpus, pids=args.pids),
        memory=args.memory,
        gpu=None if args.gpu is None else parse_asked(args.gpu),
        auto_add=args.auto_add,
    )
