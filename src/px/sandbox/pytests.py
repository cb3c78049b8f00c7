"""pytest in the sandbox keeps its byte code apart from that of this machine.

pytest rewrites assertions and writes the result into ``__pycache__``, with the absolute paths of whoever ran first.
Before its release 9.2 it believes what it finds there.  The working tree has another path in the sandbox, so tracebacks
here would name ``/app``, and tests that look at their own paths would fail.  A plugin of a few lines gives the files of
the sandbox another name.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from px.warm.spec import ENV, DataFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.warm.record import BuiltSandbox
    from px.warm.spec import RunSpec

PLUGIN = "_px_pytest"
CODE = '''\
"""From px, for this run: what pytest compiles here gets a name of its own, for it has paths of the sandbox in it."""

from _pytest.assertion import rewrite

# Where pytest has no such name any more, its byte code is as it comes.
if getattr(rewrite, "PYC_TAIL", "").endswith(".pyc"):
    rewrite.PYC_TAIL = rewrite.PYC_TAIL[:-4] + "-px.pyc"
'''


def kept_apart(spec: RunSpec, built: BuiltSandbox) -> RunSpec:
    """The same run; if it is pytest, with the plugin."""
    at = _arguments(spec.argv)
    if not at:
        return spec
    file = DataFile(f"{ENV}/lib/{built.python}/site-packages/{PLUGIN}.py", CODE.encode())
    argv = (*spec.argv[:at], "-p", PLUGIN, *spec.argv[at:])
    return spec.replace(argv=argv, files=(*spec.files, file))


def _arguments(argv: Sequence[str]) -> int:
    """Where the arguments of pytest begin; 0 if something else is run."""
    if os.path.basename(argv[0]) in ("pytest", "py.test"):
        return 1
    return 3 if os.path.basename(argv[0]).startswith("python") and tuple(argv[1:3]) == ("-m", "pytest") else 0
