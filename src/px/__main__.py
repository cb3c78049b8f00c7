"""Where px starts: the console script, and ``python -m px``."""

from __future__ import annotations

import io
import os
import sys

from px import __version__


def main() -> None:
    """Serve the command line: the warm way if it can, else the full way."""
    # None where the caller closed it.  Not /dev/null: a target would get its descriptor.
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    if sys.argv[1:] in (["--version"], ["-V"]):
        sys.stdout.write(f"px {__version__}\n")
        return
    if sys.argv[1:3] == ["completions", "--"]:
        from px.cli.complete import main as complete

        complete(sys.argv[3:])
        return
    ended = None
    if sys.argv[1:2] in (["run"], ["sync"]):
        from px.warm.start import serve

        try:
            ended = serve(sys.argv[1:])
        except Exception as e:  # noqa: BLE001 - as in the full way: no traceback reaches a user
            from px.cli.main import failed

            sys.exit(failed(e))
    if ended is None:
        from px.cli.main import main as full

        full()
        return
    if ended.code != 0 and ended.said and ended.built is not None:
        from px.workflow.run import explain_failure

        explain_failure(ended.said, ended.built)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended.code)  # nothing is left to do, and an orderly end of the interpreter takes milliseconds


if __name__ == "__main__":
    main()
