"""``px sandbox add``, ``remove`` and ``list`` as commands: what they print, change and refuse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from px.cli.commands import sandbox_add, sandbox_list, sandbox_remove
from px.cli.main import make_parser
from px.errors import PxError
from px.project.context import Context
from px.store.objects import Store
from tests.support.px import run_px

if TYPE_CHECKING:
    from pathlib import Path

    from px.home import Home

PROJECT = "[project]\nname = 'x'\nversion = '1'\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "a project"
    directory.mkdir()
    (directory / "pyproject.toml").write_text(PROJECT)
    return directory


def run(
    command: Any, home: Home, directory: Path, *argv: str, frozen_by: str | None = None, as_json: bool = False
) -> int:
    parser = make_parser(f"sandbox {command.__name__.rpartition('_')[2]}")
    command.configure(parser)
    context = Context(Store(home, offline=True), directory, frozen_by)
    code: int = command.main(parser.parse_args([*argv, *(["--json"] if as_json else [])]), context)
    return code


def test_add_then_remove(
    home: Home, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project / "pyproject.toml"
    monkeypatch.chdir(project)
    assert run(sandbox_add, home, project, "postgres", "curl") == 0
    assert capsys.readouterr().out == "Added to pyproject.toml: curl, postgres\n"
    assert path.read_text() == PROJECT + "\n[tool.px.sandbox.capabilities]\ncurl = true\npostgres = true\n"
    assert run(sandbox_add, home, project, "curl") == 0
    assert capsys.readouterr().out == "Already there: nothing was changed.\n"
    assert run(sandbox_remove, home, project, "curl") == 0
    assert "Removed from pyproject.toml: curl" in capsys.readouterr().out
    assert run(sandbox_remove, home, project, "curl") == 0
    assert "px sandbox remove --disable curl" in capsys.readouterr().out
    assert run(sandbox_remove, home, project, "--disable", "postgres") == 0
    assert "postgres = false\n" in path.read_text()


def test_a_member_of_a_workspace_edits_the_root(home: Home, project: Path) -> None:
    (project / "pyproject.toml").write_text(PROJECT + "[tool.uv.workspace]\nmembers = ['m']\n")
    member = project / "m"
    member.mkdir()
    (member / "pyproject.toml").write_text(PROJECT.replace("x", "m"))
    assert run(sandbox_add, home, member, "curl") == 0
    assert "curl = true" in (project / "pyproject.toml").read_text()
    assert (member / "pyproject.toml").read_text() == PROJECT.replace("x", "m")


@pytest.mark.parametrize("command", [sandbox_add, sandbox_remove])
@pytest.mark.parametrize("frozen_by", ["--frozen", "CI"])
def test_frozen_changes_nothing(command: Any, frozen_by: str, home: Home, project: Path) -> None:
    with pytest.raises(PxError) as caught:
        run(command, home, project, "curl", frozen_by=frozen_by)
    assert caught.value.code == "PX011"
    assert (project / "pyproject.toml").read_text() == PROJECT


def test_list(home: Home, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(sandbox_list, home, project) == 0
    out = capsys.readouterr().out
    assert "  debian-12  (default)\n" in out
    assert "  postgres     PostgreSQL client library (libpq)\n" in out
    assert run(sandbox_list, home, project, "--base", "debian-13", as_json=True) == 0
    details = json.loads(capsys.readouterr().out)["details"]
    assert details["default_base"] == "debian-12"
    (postgres,) = [c for c in details["capabilities"] if c["name"] == "postgres"]
    assert postgres["packages"]["debian-13"]["runtime"] == ["libpq5"]
    with pytest.raises(PxError, match="PX900"):
        run(sandbox_list, home, project, "--base", "debian-99")


def test_add_names_the_manifest_that_it_changed(tmp_path: Path) -> None:
    member = tmp_path / "packages/m"
    member.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.uv.workspace]\nmembers = ["packages/*"]\n')
    (member / "pyproject.toml").write_text('[project]\nname = "m"\nversion = "1"\n')
    assert run_px("sandbox", "add", "xml", cwd=member).stdout == f"Added to {tmp_path / 'pyproject.toml'}: xml\n"
    assert run_px("sandbox", "remove", "xml", cwd=tmp_path).stdout == "Removed from pyproject.toml: xml\n"
    assert (tmp_path / "pyproject.toml").read_text() == '[tool.uv.workspace]\nmembers = ["packages/*"]\n'


@pytest.mark.parametrize(
    ("table", "code", "said"),
    [
        ('bse = "debian-12"', "PX003", "did you mean 'base'?"),
        ('auto = "yes"', "PX003", "must be true or false"),
        ('base = "debian-9"', "PX900", "px has these bases"),
        ('base = "debian-12-py311"', "PX900", 'Set base = "debian-12".'),
        ('base = "px/base:debian-12-py313"', "PX900", "px sync --sandbox --python 3.13"),
        ("capabilities = { nonsense = true }", "PX901", "nonsense"),
    ],
)
def test_status_checks_the_sandboxs_table(tmp_path: Path, table: str, code: str, said: str) -> None:
    manifest = f'[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.11"\n[tool.px.sandbox]\n{table}\n'
    (tmp_path / "pyproject.toml").write_text(manifest)
    done = run_px("status", cwd=tmp_path, check=False)
    assert done.stderr.startswith(code)
    assert said in done.stderr
