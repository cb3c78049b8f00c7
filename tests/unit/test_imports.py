"""What px imports on its fast paths, and which way imports point: both are lists that a change must argue with."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPO

if TYPE_CHECKING:
    from px.home import Home

SRC = REPO / "src"

VERSION_ALLOWED = {"px", "px.cli", "px.cli.main"}
RUN_ALLOWED = VERSION_ALLOWED | {
    "px.cli.host", "px.cli.target", "px.project", "px.project.fingerprint", "px.project.warm", "px.store",
    "px.store.hold",
}  # fmt: skip
SANDBOX_ALLOWED = RUN_ALLOWED | {
    "px.cli.sandboxed", "px.console", "px.engines", "px.engines.arguments", "px.engines.binary",
    "px.engines.bubblewrap", "px.engines.hostfiles", "px.engines.paths", "px.engines.spec", "px.engines.streams",
    "px.engines.supervise", "px.errors", "px.record",
}  # fmt: skip
# Modules of the standard library that cost milliseconds and that these paths have no use for.
HEAVY = {
    "argparse",
    "asyncio",
    "collections",
    "concurrent.futures",
    "contextlib",
    "ctypes",
    "dataclasses",
    "email",
    "enum",
    "functools",
    "http.client",
    "importlib.metadata",
    "inspect",
    "json",
    "logging",
    "multiprocessing",
    "pathlib",
    "re",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "tomllib",
    "traceback",
    "typing",
    "unittest",
    "urllib.request",
    "uuid",
    "xml",
    "zipfile",
}
THIRD_PARTY = {"packaging", "tomlkit", "urllib3", "uv", "elftools", "pysequoia", "pathspec", "metaflow"}


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
    check(imported("from px.cli.main import run\nrun(['--version'])", tmp_path), VERSION_ALLOWED)


@pytest.mark.network
def test_the_warm_run_imports_only_what_it_uses(tmp_path: Path) -> None:
    from tests.support.px import run_px

    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.11"\n')
    run_px("sync", cwd=tmp_path)
    code = (
        "import os\nos.execve = lambda *a: (_ for _ in ()).throw(SystemExit)\n"
        "from px.cli.main import run\n"
        "try:\n    run(['run', 'python', '-c', 'pass'])\nexcept SystemExit:\n    pass"
    )
    check(imported(code, tmp_path), RUN_ALLOWED)


@pytest.mark.network
def test_the_warm_sandboxed_run_imports_only_what_it_uses(tmp_path: Path, warm_home: Home) -> None:
    from tests.support.px import run_px
    from tests.support.rootfs import bubblewrap

    bubblewrap()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.11,<3.12"\n')
    home = str(warm_home.root)
    run_px("sync", "--sandbox", cwd=tmp_path, PX_HOME=home)
    run_px("run", "--sandbox", "python", "-c", "pass", cwd=tmp_path, PX_HOME=home)  # remembers the engine
    code = (
        "import os\nos._exit = lambda code: (_ for _ in ()).throw(SystemExit)\n"
        f"os.environ['PX_HOME'] = {home!r}\n"
        "from px.cli.main import run\n"
        "try:\n    run(['run', '--sandbox', 'python', '-c', 'pass'])\n    raise AssertionError('it was not warm')\n"
        "except SystemExit:\n    pass"
    )
    check(imported(code, tmp_path), SANDBOX_ALLOWED)


# Lower layers never import higher ones; what stands at the same height is named in both directions or in none.
BELOW: dict[str, set[str]] = {
    "store": set(),
    "project": {"store"},
    "env": {"project", "store"},
    "debian": {"store"},
    "alpine": {"store", "debian"},
    "engines": {"store"},
    "oci": {"store"},
    "sandbox": {"project", "env", "debian", "alpine", "store", "oci", "engines"},
    "cli": {"project", "env", "debian", "alpine", "sandbox", "oci", "engines", "store"},
}


def packages_imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
        found |= {n.split(".")[1] for n in names if n.startswith("px.")}
        if isinstance(node, ast.ImportFrom) and node.module == "px":
            found |= {a.name for a in node.names}
    return found


@pytest.mark.parametrize("package", BELOW)
def test_imports_point_down(package: str) -> None:
    folders = set(BELOW) | {"metaflow_extensions"}
    for path in sorted((SRC / "px" / package).rglob("*.py")):
        wrong = (packages_imported(path) & folders) - BELOW[package] - {package}
        assert not wrong, f"{path.relative_to(SRC)} imports {wrong}"


def test_px_never_imports_the_metaflow_extension() -> None:
    for path in (SRC / "px").rglob("*.py"):
        assert "metaflow_extensions" not in path.read_text(), path
