"""``px run``: become the target, in the project's env."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.cli import sandboxed
from px.cli.host import become
from px.errors import PxError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from px.cli.context import Context
    from px.project.record import BuiltEnv

SUMMARY = "Run a file, a script or python in the env"
_EPILOG = """\
The target is, in this order: a file; python, python3 or python3.N; a console script of the env; a program
on the env's PATH. Flags of px come before it; everything after it belongs to the target.

  px run python -c 'import sys; print(sys.prefix)'
  px run scripts/report.py --all
  px run pytest -x

The exit code is the target's own; 128 + n when signal n ended it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    import argparse

    parser.epilog = _EPILOG
    sandboxed.configure(parser)
    parser.add_argument("target", metavar="TARGET", help="what to run")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the target, passed on untouched"
    )


def main(args: argparse.Namespace, context: Context) -> int:
    sandboxed.check_flags(args, "run")
    try:
        if not args.sandbox:
            built = host_env(context, "run")
            become(args.target, args.arguments, built.env, built.variables)
        return run_in_sandbox(args, context, "run", lambda _: (args.target, args.arguments))
    except PxError as e:
        if e.code == "PX020":
            raise _about_scripts(context, e) from None
        raise


def _about_scripts(context: Context, error: PxError) -> PxError:
    """Say more if the target is a script of a project that is not installed: uv has the same rule, and it surprises."""
    from px.project.discovery import discover

    for manifest in discover(context.directory).manifests:
        if error.fields["target"] in manifest.scripts and not manifest.is_package:
            why = f"It is a script of {manifest.name}, which is not installed: its manifest has no [build-system]."
            fix = f"Set [tool.uv] package = true in {manifest.path}, then run: px sync"
            target, look = error.fields["target"], error.fields["look"]
            return PxError("PX020", why=[why], fix=[fix], target=target, look=look)
    return error


def host_env(context: Context, command: str) -> BuiltEnv:
    """The env to run in, built first where the command may."""
    from px.cli.workflow import ensure_env

    return ensure_env(context, command).built


def run_in_sandbox(
    args: argparse.Namespace,
    context: Context,
    command: str,
    target: Callable[[sandboxed.Sandbox], tuple[str, list[str]]],
) -> int:
    """Build the sandbox as far as the command may, then run; try once more with ``--auto-add``."""
    from px.cli.workflow import ensure_env
    from px.project.state import Target

    options = sandboxed.options_from(args)
    more: frozenset[str] = frozenset()
    while True:
        found: list[PxError] = []
        try:
            ready = ensure_env(context, command, Target.SANDBOX, more=more)
            sandbox = sandboxed.Sandbox.from_record(str(ready.project.root), ready.built.as_json())
            if not sandbox.whole:
                ready = ensure_env(context, command, Target.SANDBOX, more=more, force=True)
                sandbox = sandboxed.Sandbox.from_record(str(ready.project.root), ready.built.as_json())
            code = _run_once(sandbox, target(sandbox), options, found)
        except PxError as e:
            if e.code != "PX902" or not _may_add(args, context, e, more):
                raise
            found.append(e)
            code = e.exit_code
        if not found:
            return code
        if not _may_add(args, context, found[0], more):
            import sys

            sys.stderr.write("\n" + "\n".join(found[0].lines()) + "\n")
            return code
        more |= frozenset(str(name) for name in _capabilities(found[0]))
        console.info(f"Adding {', '.join(sorted(more))} for this run (px sandbox add keeps it) …")


def _run_once(
    sandbox: sandboxed.Sandbox, target: tuple[str, list[str]], options: sandboxed.Options, found: list[PxError]
) -> int:
    resolved = sandboxed.resolve(sandbox, *target)
    if resolved is None:
        lacking = sandboxed.missing_program(target[0], sandbox)
        if lacking is not None:
            raise lacking
        raise PxError("PX020", target=target[0], look=f"px run --sandbox ls {sandboxed.BINARIES}")

    def on_failure(text: str) -> None:
        error = sandboxed.missing_capability(text, sandbox)
        if error is not None:
            found.append(error)

    return sandboxed.run(sandbox, resolved, options, on_failure)


def _capabilities(error: PxError) -> list[str]:
    names = error.fields.get("capabilities", [])
    return list(names) if isinstance(names, list | tuple) else []


def _may_add(args: argparse.Namespace, context: Context, error: PxError, more: frozenset[str]) -> bool:
    """Only when asked, never when frozen, and not the same capability twice."""
    if not args.auto_add or not set(_capabilities(error)) - more:
        return False
    if context.frozen:
        console.warn(f"--auto-add does nothing here: {context.frozen_by} is set")
        return False
    from px.project.discovery import discover
    from px.sandbox.manifest import governing_manifest

    manifest = governing_manifest(discover(context.directory).manifest.path)[0]
    refused = [
        f"[tool.px.sandbox.capabilities].{name}" for name in sorted(manifest.disabled & set(_capabilities(error)))
    ]
    refused += [] if manifest.auto else ["[tool.px.sandbox].auto"]
    if refused:
        console.warn(f"--auto-add does nothing here: {refused[0]} is false")
    return not refused
