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
import textwrap
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

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
    "sync": Command("sync", "Lock if the manifest changed, and build the env"),
    "run": Command("run", "Run a file, a program or python in the env or the sandbox"),
    "test": Command("test", "Run the project's tests in the env"),
    "status": Command("status", "Show the project's state and what to do next"),
    "pack image": Command("pack_image", "Make a deployable OCI image of the project and its sandbox"),
    "pack verify": Command("pack_verify", "Build an image again from its commit, and compare"),
    "sandbox explain": Command("sandbox_explain", "Show the sandbox: base, capabilities and why, packages, ids"),
    "sandbox diff": Command("sandbox_diff", "Compare two sandboxes: of commits, images or ids"),
    "sandbox add": Command("sandbox_add", "Add system capabilities to the sandbox"),
    "sandbox remove": Command("sandbox_remove", "Remove system capabilities from the sandbox"),
    "sandbox pin": Command("sandbox_pin", "Give the project its own pins of system packages"),
    "sandbox update": Command("sandbox_update", "Take newer system packages into the project's pins"),
    "sandbox outdated": Command("sandbox_outdated", "Show which system packages have newer versions"),
    "sandbox audit": Command("sandbox_audit", "Compare what is in the sandbox with known vulnerabilities"),
    "sandbox list": Command("sandbox_list", "List the bases and capabilities that there are"),
    "sandbox ps": Command("sandbox_ps", "List the sandboxes of Metaflow steps that are running"),
    "sandbox reap": Command("sandbox_reap", "End the sandboxes that killed runs left behind"),
    "sandbox templates": Command("sandbox_templates", "List or remove what px made of images at E2B and Daytona"),
    "base lock": Command("base_lock", "Make a base's lock again (for px's maintainers)"),
    "base check": Command("base_check", "Ask the archives for a base's pins (for px's maintainers)"),
    "why": Command("why", "Show why a package is in the lock"),
    "bundle export": Command("bundle_export", "Write all that the sandbox and the image need to one file"),
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
# What uv, pip and docker call it.
ELSEWHERE = {
    "build": ("sync --sandbox", "pack image"),
    "check": ("status --check",),
    "clean": ("store gc",),
    "exec": ("run --sandbox bash",),
    "info": ("status", "doctor"),
    "inspect": ("sandbox explain",),
    "install": ("add", "sync"),
    "list": ("status -v", "sandbox list"),
    "lock": ("sync", "update"),
    "pip": ("add", "sync"),
    "prune": ("store gc",),
    "pull": ("sync --sandbox",),
    "push": ("pack image --push", "cache push"),
    "python": ("run python",),
    "shell": ("run --sandbox bash",),
    "tree": ("why", "status -v"),
    "uninstall": ("remove",),
    "venv": ("sync",),
}
_WITH_VALUE = ("--project",)
_ALONE = ("-q", "--quiet", "-v", "--verbose", "--debug", "--json", "--no-color", "--offline", "--frozen")


def main() -> None:
    """Run px the full way."""
    try:
        code = run(sys.argv[1:])
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
        return _unknown(name, as_json="--json" in argv)
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
    try:
        args = parser.parse_args(module.arrange(parser, argv) if hasattr(module, "arrange") else argv)
    except _UsageError as e:
        return _refused(f"{parser.prog}: {e}", _flag_hint(parser, str(e)), as_json="--json" in argv)
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
    from px.project.context import Context, named_directory  # not at the top: `px COMMAND --help` needs none

    directory = named_directory(Path(here()), args.project or "")
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


class _UsageError(Exception):
    """What the parser of a command refuses."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(message.removesuffix(", ..."))  # the target's own arguments are not missing


class _Help(argparse.HelpFormatter):
    """Paragraphs as wide as the terminal; a line that starts with a blank stays as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for line in text.splitlines():
            if lines and lines[-1][:1].strip() and line[:1].strip():
                lines[-1] += f" {line}"
            else:
                lines.append(line)
        fill = textwrap.TextWrapper(width, indent, indent, break_on_hyphens=False).fill  # px-pins.json stays whole
        return "\n".join(fill(line) if line[:1].strip() else line for line in lines)


def make_parser(name: str) -> argparse.ArgumentParser:
    """A parser for one command that has the flags that all commands have."""
    parser = _Parser(
        prog=f"px {name}",
        description=COMMANDS[name].summary + ".",
        allow_abbrev=False,
        formatter_class=_Help,
    )
    common = parser.add_argument_group("flags of every command")
    common.add_argument("-q", "--quiet", action="store_true", help="say only warnings, errors and what was asked for")
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
    lines += ["", "`px COMMAND --help` explains one of them. Flags of every command: -q -v --debug"]
    lines += ["--json --no-color --offline --frozen --project DIR. `px --version`: the version."]
    return "\n".join(lines) + "\n"


def _group_help(group: str) -> str:
    rows = {n: c for n, c in COMMANDS.items() if n.split(" ")[0] == group}
    width = max(map(len, rows)) + 2
    lines = [f"px {group}: {GROUPS[group]}", "", "Commands:"]
    return "\n".join(lines + [f"  {n:<{width}}{c.summary}" for n, c in rows.items()]) + "\n"


def _unknown(name: str, *, as_json: bool) -> int:
    lines = ELSEWHERE.get(name) or [c for c in COMMANDS if c.endswith(f" {name}")]
    lines = lines or difflib.get_close_matches(name, [*COMMANDS, *GROUPS], n=1)
    width = max(map(len, lines), default=0)
    rows = "".join(f"\n  px {line:<{width}}  {_summary(line)}" for line in lines)
    hint = f"did you mean:{rows}" if rows else "`px --help` lists the commands"
    return _refused(f"px: there is no command {name!r}", hint, as_json=as_json)


def _summary(line: str) -> str:
    """What the command at the start of a command line does."""
    first, _, rest = line.partition(" ")
    command = COMMANDS.get(first) or COMMANDS.get(f"{first} {rest.partition(' ')[0]}")
    return command.summary if command else GROUPS[first]


def _flag_hint(parser: argparse.ArgumentParser, message: str) -> str:
    given = message.removeprefix("unrecognized arguments: ").split(" ")[0]
    near = difflib.get_close_matches(given.partition("=")[0], parser._option_string_actions, n=1, cutoff=0.8)
    return f"did you mean {near[0]}?" if near else f"`{parser.prog} --help` lists what it takes"


def _refused(message: str, hint: str, *, as_json: bool) -> int:
    """Say that a command line cannot be understood; the exit code."""
    sys.stderr.write(f"{message}\nhint: {hint}\n")
    if as_json:
        emit_json("error", message, {"code": "usage", "hint": hint})
    return 2
