"""What a warm ``px run`` imports, after a real ``px sync``; the lists are in tests/unit/test_imports.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from px.home import Home
from tests.support.needs import need
from tests.support.px import run_px
from tests.support.terminal import Terminal
from tests.unit.test_imports import RUN_ALLOWED, SANDBOX_ALLOWED, TERMINAL_ALLOWED, THIRD_PARTY, check, imported


@pytest.mark.network
def test_the_warm_run_imports_only_what_it_uses(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.11"\n')
    run_px("sync", cwd=tmp_path)
    code = (
        "import os\nos.execve = lambda *a: (_ for _ in ()).throw(SystemExit)\n"
        "sys.argv = ['px', 'run', 'python', '-c', 'pass']\n"
        "from px.__main__ import main\ntry:\n    main()\nexcept SystemExit:\n    pass"
    )
    check(imported(code, tmp_path), RUN_ALLOWED)


@pytest.mark.network
def test_the_warm_sandboxed_run_imports_only_what_it_uses(tmp_path: Path, warm_home: Home) -> None:
    need("bubblewrap")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.11,<3.12"\n')
    home = str(warm_home.root)
    run_px("sync", "--sandbox", cwd=tmp_path, PX_HOME=home)
    run_px("run", "--sandbox", "python", "-c", "pass", cwd=tmp_path, PX_HOME=home)  # remembers the engine
    code = (
        "import os\nos._exit = lambda code: (_ for _ in ()).throw(SystemExit)\n"
        f"os.environ['PX_HOME'] = {home!r}\n"
        "sys.argv = ['px', 'run', '--sandbox', 'python', '-c', 'pass']\n"
        "from px.__main__ import main\n"
        "try:\n    main()\n    raise AssertionError('it was not warm')\nexcept SystemExit:\n    pass"
    )
    check(imported(code, tmp_path), SANDBOX_ALLOWED)
    # On a terminal only the module for that, and what it needs of the standard library, come with it.
    terminal = Terminal(
        [sys.executable, "-c", f"import sys\n{code}\nprint('modules', *sys.modules)"], os.environ, cwd=tmp_path
    )
    modules = set(terminal.expect(r"modules (.*)\r\n")[1].split())
    assert "px.warm.terminal" in modules
    check(modules, TERMINAL_ALLOWED)
    assert terminal.wait() == 0
    # A flag leads the full way, and where nothing changed, that imports nothing that locks, builds or edits.
    quiet = code.replace("'--sandbox', ", "'--sandbox', '--no-network', ")
    found = imported(quiet.replace("    raise AssertionError('it was not warm')\n", ""), tmp_path)
    assert "px.workflow.door" in found
    assert not {m for m in found if m.startswith(("px.sandbox.layers", "px.sandbox.build", "px.debian", "px.oci"))}
    assert not {m for m in found if m.split(".")[0] in THIRD_PARTY - {"packaging"}}
