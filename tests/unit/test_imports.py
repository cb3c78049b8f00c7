"""What px imports on its fast paths: lists that a change must argue with.  test_architecture.py has the arrows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import REPO

WARM = REPO / "src" / "px" / "warm"
VERSION_ALLOWED = {"px", "px.__main__"}
RUN_ALLOWED = VERSION_ALLOWED | {
    f"px.{name}" for name in ("warm", "warm.hold", "warm.record", "warm.spec", "warm.start", "warm.target")
}
SANDBOX_ALLOWED = RUN_ALLOWED | {
    f"px.warm.{name}" for name in ("arguments", "bubblewrap", "links", "places", "streams", "supervise")
}
# Where px's streams are one terminal.
TERMINAL_ALLOWED = SANDBOX_ALLOWED | {"px.warm.terminal"}
# Modules of the standard library that cost milliseconds and that these paths have no use for.
HEAVY = {
    *("argparse", "asyncio", "collections", "concurrent.futures", "contextlib", "ctypes", "dataclasses", "email"),
    *("enum", "functools", "http.client", "importlib.metadata", "inspect", "json", "logging"),
    *("multiprocessing", "pathlib", "re", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading"),
    *("tomllib", "traceback", "typing", "unittest", "urllib.request", "uuid", "xml", "zipfile"),
}
THIRD_PARTY = {"packaging", "tomlkit", "urllib3", "uv", "pysequoia", "pathspec", "metaflow"}


def imported(code: str, cwd: Path) -> set[str]:
    probe = f"import sys\n{code}\nsys.stderr.write('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], cwd=cwd, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return set(done.stderr.split("\n"))


def check(modules: set[str], allowed: set[str]) -> None:
    ours = {m for m in modules if m.split(".")[0] == "px"}
    assert ours <= allowed, f"not needed here: {sorted(ours - allowed)}"
    assert not modules & HEAVY, f"not needed here: {sorted(modules & HEAVY)}"
    assert not {m for m in modules if m.split(".")[0] in THIRD_PARTY}


def test_version_imports_almost_nothing(tmp_path: Path) -> None:
    code = "sys.argv = ['px', '--version']\nfrom px.__main__ import main\nmain()"
    check(imported(code, tmp_path), VERSION_ALLOWED)


def test_a_tab_imports_almost_nothing(tmp_path: Path) -> None:
    code = "sys.argv = ['px', 'completions', '--', 'sandbox', 'add', 'po']\nfrom px.__main__ import main\nmain()"
    check(imported(code, tmp_path), VERSION_ALLOWED | {"px.cli", "px.cli.complete"})


def test_help_of_a_command_imports_nothing_that_makes_sandboxes(tmp_path: Path) -> None:
    code = "sys.argv = ['px', 'run', '--help']\nfrom px.__main__ import main\n"
    code += "try:\n    main()\nexcept SystemExit:\n    pass"
    found = imported(code, tmp_path)
    assert not {m for m in found if m.startswith(("px.sandbox", "px.workflow", "px.debian", "px.oci"))}
    assert not {m for m in found if m.split(".")[0] in THIRD_PARTY}


def test_the_warm_folder_has_what_warm_runs_import_and_nothing_else() -> None:
    there = {f"px.warm.{path.stem}" for path in WARM.glob("*.py") if path.stem != "__init__"} | {"px.warm"}
    assert there == {m for m in TERMINAL_ALLOWED if m.startswith("px.warm")}
