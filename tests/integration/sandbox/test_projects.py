"""The project in its sandbox: live code, console scripts, metadata, workspaces; manifests and locks untouched."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from px.home import Home
from px.oci.image import layer_files
from tests.integration.pack.projects import image_in
from tests.integration.sandbox.conftest import lock
from tests.support.index import Index
from tests.support.px import run_px, snapshot
from tests.support.wheels import WheelSpec

VERSION = "import importlib.metadata as m; print(m.version('plain-project'))"
MEMBER = """\
[project]
name = "{name}"
version = "{version}"
requires-python = ">=3.11"
dependencies = ["{needs}"]
[project.scripts]
{name}-cli = "{name}:main"
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
"""


def files(root: Path) -> dict[str, Any]:
    """All but what a Python that runs the project's code leaves, inside a sandbox or not."""
    return {name: content for name, content in snapshot(root).items() if "__pycache__" not in name}


def images(home: Home) -> set[str]:
    return {p.name for p in (home.sandbox / "images").iterdir() if not p.name.startswith(".")}


def test_code_edits_are_live(plain: Path, alone: Home) -> None:
    done = run_px("run", "--sandbox", "plain-cli", cwd=plain, check=False)
    assert (done.returncode, done.stdout) == (7, "one\n")
    before = images(alone)
    (plain / "src/plain_project/__init__.py").write_text("def main():\n    print('two')\n")
    (plain / "src/plain_project/more.py").write_text("MORE = 1\n")
    again = run_px("run", "--sandbox", "plain-cli", cwd=plain)
    assert (again.stdout, again.stderr) == ("two\n", "")
    assert run_px("run", "--sandbox", "python", "-c", "import plain_project.more", cwd=plain).stderr == ""
    assert images(alone) == before
    assert run_px("run", "--sandbox", "python", "-c", VERSION, cwd=plain).stdout == "1.2.3\n"
    assert run_px("run", "--sandbox", "printenv", "MODE", cwd=plain).stdout == "tested\n"


def test_editable_siblings_are_live(tmp_path: Path, warm: Home) -> None:
    """A dependency beside the project: mounted, with its scripts, and copied into an image."""
    app, lib = tmp_path / "app", tmp_path / "lib"
    (lib / "src/lib").mkdir(parents=True)
    app.mkdir()
    (lib / "pyproject.toml").write_text(MEMBER.format(name="lib", version="3.1", needs="").replace('[""]', "[]"))
    (lib / "src/lib/__init__.py").write_text("def main():\n    print('one')\n")
    source = '[tool.uv.sources]\nlib = { path = "../lib", editable = true }\n'
    head = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["lib"]\n'
    (app / "pyproject.toml").write_text(head + source)
    run_px("sync", "--sandbox", cwd=app)
    assert run_px("run", "--sandbox", "lib-cli", cwd=app).stdout == "one\n"
    (lib / "src/lib/__init__.py").write_text("def main():\n    print('two')\n")
    again = run_px("run", "--sandbox", "lib-cli", cwd=app)
    assert (again.stdout, again.stderr) == ("two\n", "")
    # The lock names it, and a target may have written the lock: it must not get at other projects so.
    write = ("run", "--sandbox", "python", "-c", "import lib; open(lib.__file__, 'w')")
    assert "Read-only file system" in run_px(*write, cwd=app, check=False).stderr
    assert (
        run_px("run", "--sandbox", "python", "-c", VERSION.replace("plain-project", "lib"), cwd=app).stdout == "3.1\n"
    )
    for args in (("init", "-q"), ("add", "-A"), ("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "a")):
        subprocess.run(["git", *args], cwd=tmp_path, check=True)
    archive = tmp_path / "x.tar"
    run_px("pack", "image", "--out", archive, cwd=app)
    assert "opt/px/src/lib/src/lib/__init__.py" in layer_files(image_in(archive).layers[-1])
    (lib / "src/lib/more.py").touch()
    refused = run_px("pack", "image", cwd=app, check=False).stderr
    assert refused.startswith("PX920")
    assert f"{lib}: " in refused


@pytest.mark.network
def test_packages_for_the_sandbox_alone(plain: Path, warm: Home) -> None:
    """What this machine cannot build is added, updated and removed without building anything here."""
    before = snapshot(plain)
    failed = run_px("add", "--sandbox", "psycopg2<0.1", cwd=plain, check=False)
    assert "PX100" in failed.stderr
    assert snapshot(plain) == before
    made = run_px("add", "--sandbox", "--json", "psycopg2", cwd=plain)
    details = json.loads(made.stdout)["details"]
    assert (details["target"], details["capabilities"]) == ("sandbox", "postgres")
    assert (
        run_px("run", "--frozen", "--sandbox", "python", "-c", "import psycopg2; print(1)", cwd=plain).stdout == "1\n"
    )
    run_px("update", "--sandbox", "psycopg2", cwd=plain)
    run_px("remove", "--sandbox", "psycopg2", cwd=plain)
    assert run_px("run", "--frozen", "--sandbox", "python", "-c", "import psycopg2", cwd=plain, check=False).returncode
    states = json.loads(run_px("status", "--json", cwd=plain).stdout)["details"]
    assert (states["host"]["state"], states["sandbox"]["state"]) == ("NeedsEnv", "Consistent")


def test_a_script_whose_interpreter_is_not_there(plain: Path, warm: Home) -> None:
    script = plain / "bad"
    script.write_text("#!/no/such/program\n")
    script.chmod(0o755)
    run_px("sync", "--sandbox", cwd=plain)
    for flags in ((), ("--no-network",)):  # the warm way, and the full one
        done = run_px("run", "--sandbox", *flags, "./bad", cwd=plain, check=False)
        assert done.returncode == 126
        assert "PX021  './bad' was found but cannot be executed: its first line names /no/such/program" in done.stderr
    script.write_text("#!/bin/sh\necho good\n")
    assert run_px("run", "--sandbox", "./bad", cwd=plain).stdout == "good\n"


def test_a_link_that_leads_out_of_the_project(plain: Path, tmp_path: Path, warm: Home) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x.txt").write_text("hello\n")
    (plain / "data").symlink_to("../data")
    for target in (("cat", "data/x.txt"), ("python", "-c", "open('/app/data/x.txt')")):
        done = run_px("run", "--sandbox", *target, cwd=plain, check=False)
        assert "PX024  data is a link that leads out of the project, to ../data" in done.stderr
        assert f"--volume {tmp_path / 'data'}:/data" in done.stderr
    volume = f"{tmp_path / 'data'}:/data"
    assert run_px("run", "--sandbox", "--volume", volume, "cat", "data/x.txt", cwd=plain).stdout == "hello\n"
    assert "PX024" not in run_px("run", "--sandbox", "cat", "nothing/x.txt", cwd=plain, check=False).stderr


def test_a_file_of_the_project_that_is_named(plain: Path, tmp_path: Path, warm: Home) -> None:
    (plain / "show.py").write_text("print('shown')\n")
    for flags in ((), ("--sandbox",)):
        done = run_px("--project", plain, "run", *flags, "show.py", cwd=tmp_path)
        assert done.stdout == "shown\n"
    said = run_px("--project", plain, "sync", "--force", cwd=tmp_path).stderr
    assert f"env ready at {plain}/.px/envs/current" in said


def test_targets_are_what_they_are_without_the_sandbox(plain: Path, warm: Home) -> None:
    (plain / "tools").mkdir()
    script = plain / "tools/show.sh"
    script.write_text('#!/bin/sh\necho "$PWD $*"\n')
    script.chmod(0o755)
    (plain / "tools/__main__.py").write_text("import sys; print('package', *sys.argv[1:])\n")
    run = ["run", "--sandbox"]
    assert run_px(*run, "tools/show.sh", "--sandbox", "-q", cwd=plain).stdout == "/app --sandbox -q\n"
    assert run_px(*run, "show.sh", cwd=plain / "tools").stdout == "/app/tools \n"
    assert run_px(*run, str(script), "x", cwd=plain).stdout == "/app x\n"
    assert run_px(*run, "tools", "a", cwd=plain).stdout == "package a\n"
    assert run_px(*run, "python3.11", "-V", cwd=plain).stdout.startswith("Python 3.11")
    assert run_px(*run, "sed", "--version", cwd=plain).stdout.split()[0] == "/usr/bin/sed"
    missing = run_px(*run, "no-such-thing", cwd=plain, check=False)
    assert missing.returncode == 127
    assert "px run --sandbox ls /opt/px/env/bin" in missing.stderr
    assert run_px(*run, "/etc/hostname-of-the-host", cwd=plain, check=False).returncode == 127
    for flags in (run, ["run"]):
        missing = run_px(*flags, "tools/no-such.py", cwd=plain, check=False)
        assert missing.returncode == 127
        assert f"it counts from {plain}" in missing.stderr
        assert "px add" not in missing.stderr


def test_px_test(plain: Path, warm: Home) -> None:
    manifest = plain / "pyproject.toml"
    without = run_px("test", "--sandbox", cwd=plain, check=False)
    assert without.stderr.startswith("PX022")
    assert "px add --sandbox --dev pytest" in without.stderr
    manifest.write_text(manifest.read_text() + '\n[tool.px]\ntest = ["python", "-m", "unittest", "-q"]\n')
    lock(plain)
    (plain / "test_it.py").write_text(
        "import os, unittest\nclass T(unittest.TestCase):\n"
        "    def test_a(self): self.assertEqual(os.getcwd(), '/app')\n    def test_b(self): self.fail()\n"
    )
    assert run_px("test", "--sandbox", "test_it.T.test_a", cwd=plain).returncode == 0
    done = run_px("test", "--sandbox", cwd=plain, check=False)
    assert done.returncode == 1
    assert "failures=1" in done.stderr


@pytest.fixture
def workspace(tmp_path: Path, index: Index) -> Path:
    root = tmp_path / "w"
    for name, version, needs in (("first", "1.1", "hello"), ("second", "2.2", "ns-one")):
        member = root / "packages" / name
        (member / f"src/{name}").mkdir(parents=True)
        (member / "pyproject.toml").write_text(MEMBER.format(name=name, version=version, needs=needs))
        (member / f"src/{name}/__init__.py").write_text(f"def main():\n    print('{name}')\n")
    (root / "pyproject.toml").write_text(
        '[project]\nname = "root"\nversion = "1"\nrequires-python = ">=3.11"\n'
        '[tool.uv.workspace]\nmembers = ["packages/*"]\n[tool.px.sandbox.capabilities]\nmagic = true\n'
    )
    return lock(root)


def test_members_run_against_the_workspaces_env(workspace: Path, warm: Home) -> None:
    before = files(workspace)
    code = "import hello, ns.one, first, second, os; from importlib.metadata import version as v; "
    code += "print(os.getcwd(), v('first'), v('second'))"
    for where in (".", "packages/first", "packages/second"):
        done = run_px("run", "--sandbox", "python", "-c", code, cwd=workspace / where)
        assert done.stdout == f"{os.path.normpath(f'/app/{where}')} 1.1 2.2\n"
        assert run_px("run", "--sandbox", "second-cli", cwd=workspace / where).stdout == "second\n"
    ids = {
        json.loads(run_px("sandbox", "explain", "--json", cwd=workspace / where).stdout)["details"]["sbx_id"]
        for where in (".", "packages/first")
    }
    assert len(ids) == 1
    assert files(workspace) == before
    assert sorted(p.name for p in (workspace / "packages/first").iterdir()) == ["pyproject.toml", "src"]
    ignored = workspace / "packages/first/pyproject.toml"
    ignored.write_text(ignored.read_text() + '[tool.px.sandbox]\nbase = "debian-13"\n')
    assert "[tool.px.sandbox] is ignored" in run_px("status", cwd=ignored.parent).stderr
    assert run_px("run", "--sandbox", "python", "-V", cwd=ignored.parent).stdout.startswith("Python 3.11")


COMMANDS = (
    ("sandbox", "explain"), ("sync", "--sandbox"), ("run", "--sandbox", "python", "-c", "pass"),
    ("run", "--sandbox", "--auto-add", "python", "-c", "import ctypes; ctypes.CDLL('libmagic.so.1')"),
    ("run", "--sandbox", "--read-only", "python", "-c", "pass"), ("test", "--sandbox", "-h"),
    ("sync", "--sandbox", "--force"), ("sandbox", "list"), ("status",), ("pack", "image", "--allow-dirty"),
)  # fmt: skip


@pytest.mark.parametrize("kind", ["project", "workspace"])
def test_manifests_and_locks_stay_as_they_are(kind: str, request: pytest.FixtureRequest, warm: Home) -> None:
    root: Path = request.getfixturevalue("plain" if kind == "project" else "workspace")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    before = files(root)
    for command in COMMANDS:
        for where in (root, *root.glob("packages/first")):
            done = run_px(*command, cwd=where, check=False)
            assert "px failed in a way" not in done.stderr, done.stderr
            assert files(root) == before, command
    tracked = subprocess.run(
        ["git", "status", "--porcelain", "-uall"], cwd=root, capture_output=True, text=True, check=True
    )
    assert ".px" not in tracked.stdout


def test_a_module_with_dots_in_its_file_name_is_compiled_like_any_other(tmp_path: Path, warm: Home) -> None:
    """PyInstaller's hooks are called so (hook-dotted.part.py), and any wheel may bring some."""
    wheel = WheelSpec("dotted", files={"dotted/hook-dotted.part.py": b"PART = 1\n"}).write(tmp_path / "wheels")
    root = tmp_path / "uses-dotted"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        '[project]\nname = "uses-dotted"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["dotted"]\n'
        f'[tool.uv.sources]\ndotted = {{ path = "{wheel}" }}\n'
    )
    lock(root)
    code = "import dotted, os; print(*sorted(os.listdir(dotted.__path__[0] + '/__pycache__')))"
    done = run_px("run", "--sandbox", "python", "-c", code, cwd=root)
    assert done.stdout == "__init__.cpython-311.pyc hook-dotted.part.cpython-311.pyc\n"
