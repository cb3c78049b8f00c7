"""The entry point: find the command, parse its flags, run it, and turn what happens into an exit code.

Only the module of the command that was asked for is imported; the table below carries the summaries so
that ``px --help`` imports none.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import io
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from px import __version__, console
from px.cli.answer import emit_json
from px.errors import EXIT_INTERNAL, PxError
from px.warm.record import here

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.project.context import Context


@dataclass(frozen=True)
class Command:
    """A row of the command table."""

    module: str
    summary: str


COMMANDS: dict[str, Command] = {
    "init": Command("init", "Start a project here"),
    "add": Command("add", "Add packages to the project"),
    "remove": Command("remove", "Remove packages from the project"),
    "update": Command("update", "Lock newer versions"),
    "sync": Command("sync", "Build the env that the lock describes"),
    "run": Command("run", "Run a file, a script or python in the env"),
    "test": Command("test", "Run the project's tests in the env"),
    "status": Command("status", "Show the project's state and what to do next"),
    "pack image": Command("pack_image", "Make a deployable OCI image of the project and its sandbox"),
    "pack verify": Command("pack_verify", "Build an image again from its commit, and compare"),
    "sandbox explain": Command("sandbox_explain", "Show the sandbox: base, capabilities and why, packages, ids"),
    "sandbox diff": Command("sandbox_diff", "Compare two sandboxes: of commits, images or ids"),
    "sandbox add": Command("sandbox_add", "Add system capabilities to the sandbox"),
    "sandbox remove": Command("sandbox_remove", "Remove system capabilities from the sandbox"),
    "sandbox pin": Command("sandbox_pin", "Give the project its own pins of the system packages that it uses"),
    "sandbox update": Command("sandbox_update", "Take newer versions of system packages into the project's pins"),
    "sandbox outdated": Command("sandbox_outdated", "Show which system packages have newer versions"),
    "sandbox audit": Command("sandbox_audit", "Compare what is in the sandbox with known vulnerabilities"),
    "sandbox list": Command("sandbox_list", "List the bases and capabilities that there are"),
    "sandbox ps": Command("sandbox_ps", "List the sandboxes of Metaflow steps that are running"),
    "sandbox reap": Command("sandbox_reap", "End the sandboxes that killed runs left behind"),
    "sandbox templates": Command("sandbox_templates", "List or remove what px made of images at E2B and Daytona"),
    "base lock": Command(
        "base_lock", "Make a base's lock again from the archive's signed index (for px's maintainers)"
    ),
    "base check": Command("base_check", "Ask every archive for every pin of a base (for px's maintainers)"),
    "why": Command("why", "Show why a package is in the lock"),
    "bundle export": Command("bundle_export", "Write everything that the sandbox and the image need to one file"),
    "bundle import": Command("bundle_import", "Bring a bundle into this machine's store"),
    "cache push": Command("cache_push", "Fill the shared cache with what the sandbox consists of"),
    "store verify": Command("store_verify", "Check every object in the store, and repair what is damaged"),
    "store gc": Command("store_gc", "Remove what no project uses"),
    "doctor": Command("doctor", "Check this machine and say what to do"),
    "completions": Command("completions", "Print a completion script for your shell"),
}
GROUPS = {
    "pack": "Deployable images",
    "sandbox": "The project's sandbox: what is in it and why",
    "base": "Sandbox bases, for px's maintainers",
    "bundle": "The sandbox as a file, for machines without a network",
    "cache": "The shared cache in a registry",
    "store": "The content-addressed store under PX_HOME",
}
_WITH_VALUE = ("--project",)
_ALONE = ("-q", "--quiet", "-v", "--verbose", "--debug", "--json", "--no-color", "--offline", "--frozen")


def main() -> None:
    """Run px the full way."""
    try:
        code = run(sys.argv[1:])
        if sys.stdout is not None:  # None where the caller closed it
            sys.stdout.flush()
    except OSError as e:  # what a command meets is handled where it runs: only our own output is left
        code = _unwritten(e)
    sys.exit(code)


def _unwritten(error: OSError) -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered must not fail again at the end
    if isinstance(error, BrokenPipeError):
        return 141  # the reader of our output is gone: not an error of ours
    sys.stderr.write(f"px: the answer cannot be written: {error.strerror}\n")
    return EXIT_INTERNAL


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    leading, rest = _split(argv)
    if not rest:
        return _without_command(leading)
    name, rest = rest[0], rest[1:]
    if name in GROUPS:
        more, rest = _split(rest)
        leading += more
        if not rest:
            sys.stdout.write(_group_help(name))
            return 0 if {"-h", "--help"} & set(leading) else 2
        name, rest = f"{name} {rest[0]}", rest[1:]
    if name == "help":
        return run([*rest, "--help"])
    if name not in COMMANDS:
        return _unknown(name)
    return _run_command(name, [*leading, *rest])


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate the flags in front of the command from the rest."""
    i = 0
    while i < len(argv) and argv[i].startswith("-"):
        i += 2 if argv[i] in _WITH_VALUE else 1
    return list(argv[:i]), list(argv[i:])


def _run_command(name: str, argv: list[str]) -> int:
    module = importlib.import_module(f"px.cli.commands.{COMMANDS[name].module}")
    parser = make_parser(name)
    module.configure(parser)
    args = parser.parse_args(module.arrange(parser, argv) if hasattr(module, "arrange") else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr is: a terminal may lack a sign that we print
    level = console.QUIET if args.quiet else console.DEBUG if args.debug else console.NORMAL + min(args.verbose, 1)
    console.configure(level=level, color=False if args.no_color else None)
    try:
        code: int = module.main(args, context_from(args))
        return code
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted.\n")
        return 130
    except BrokenPipeError as e:
        return _unwritten(e)
    except Exception as e:  # noqa: BLE001 - the last resort: no traceback reaches a user
        if isinstance(e, OSError) and e.errno == errno.ENOSPC and e.filename is None:
            return _unwritten(e)  # a full disk under px's home has been said as PX810
        return failed(e, debug=args.debug, as_json=args.json)


def context_from(args: argparse.Namespace) -> Context:
    """The common flags and the places, computed once from the command line and the environment."""
    from px.project.context import Context  # not at the top: `px COMMAND --help` needs none

    directory = Path(args.project).absolute() if args.project else Path(here())
    if args.project and not directory.is_dir():
        problem, example = "there is no such directory", "px --project path/to/project sync"
        raise PxError("PX040", option="--project", value=args.project, problem=problem, example=example)
    return Context.from_environment(directory, offline=args.offline, frozen=args.frozen)


def failed(error: Exception, *, debug: bool = False, as_json: bool = False) -> int:
    """Say what went wrong; the exit code."""
    if debug:
        traceback.print_exc()
    if isinstance(error, PxError):
        lines = [console.redact(line) for line in error.lines()]
        details: dict[str, object] = error.as_json()
        message, code = f"{error.code}  {error.what}", error.exit_code
    else:
        message = f"px failed unexpectedly: {type(error).__name__}: {error}"
        lines = [message, "", "Fix:", "  • Run it again with --debug and report what it prints: this is a bug in px."]
        details, code = {"code": "internal"}, EXIT_INTERNAL
    lines[0] = console.paint(lines[0], "red")
    sys.stderr.write("\n".join(lines) + "\n")
    if as_json:
        emit_json("error", console.redact(message), details)
    return code


def make_parser(name: str) -> argparse.ArgumentParser:
    """A parser for one command that has the flags that all commands have."""
    parser = argparse.ArgumentParser(
        prog=f"px {name}",
        description=COMMANDS[name].summary + ".",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common = parser.add_argument_group("flags of every command")
    common.add_argument("-q", "--quiet", action="store_true", help="say only warnings and errors")
    common.add_argument("-v", "--verbose", action="count", default=0, help="say more: what px decides, and why")
    common.add_argument("--debug", action="store_true", help="say everything, with tracebacks")
    common.add_argument("--json", action="store_true", help="answer with one JSON object on standard output")
    common.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR)")
    common.add_argument("--offline", action="store_true", help="use only what is already on this machine")
    common.add_argument("--frozen", action="store_true", help="change no manifest and no lock (also: CI=1)")
    common.add_argument("--project", metavar="DIR", help="look for the project in DIR instead of here")
    return parser


def _without_command(flags: Sequence[str]) -> int:
    if "--version" in flags or "-V" in flags:
        sys.stdout.write(f"px {__version__}\n")
        return 0
    sys.stdout.write(_help())
    if {"-h", "--help"} & set(flags):
        return 0
    unknown = [f for f in flags if f.startswith("-") and f.partition("=")[0] not in (*_WITH_VALUE, *_ALONE)]
    if unknown:
        sys.stderr.write(f"px: unknown flag {unknown[0]}\n")
    elif flags:
        sys.stderr.write("px: the command is missing\n")
    return 2


def _help() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = [f"px {__version__}: deterministic sandboxes for Python", "", "Usage: px [flags] COMMAND [arguments]", ""]
    lines += ["Commands:"]
    lines += [f"  {name:<{width}}{command.summary}" for name, command in COMMANDS.items()]
    lines += ["", "`px COMMAND --help` explains one of them. Flags of every command: -q -v --debug --json"]
    lines += ["--no-color --offline --frozen --project DIR. `px --version` prints the version."]
    return "\n".join(lines) + "\n"


def _group_help(group: str) -> str:
    rows = {n: c for n, c in COMMANDS.items() if n.split(" ")[0] == group}
    width = max(map(len, rows)) + 2
    lines = [f"px {group}: {GROUPS[group]}", "", "Commands:"]
    return "\n".join(lines + [f"  {n:<{width}}{c.summary}" for n, c in rows.items()]) + "\n"


def _unknown(name: str) -> int:
    near = difflib.get_close_matches(name, [*COMMANDS, *GROUPS], n=1)
    sys.stderr.write(f"px: there is no command {name!r}\n")
    sys.stderr.write(f"hint: did you mean `px {near[0]}`?\n" if near else "hint: `px --help` lists the commands\n")
    return 2
