"""What a shell gets when Tab is pressed: the right words, cheaply, and nothing that somebody else could smuggle in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from px.cli.complete import answer
from px.cli.main import COMMANDS, GROUPS

MANIFEST = """\
[project]
name = "app"
version = "1"
dependencies = ["psycopg2>=2.9", "Pillow [x] ; python_version > '3'"]
[project.optional-dependencies]
plots = ["matplotlib"]
[dependency-groups]
lint = ["ruff", { include-group = "dev" }]
dev = ["pytest"]
"$(touch pwned)" = []
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "app"
    programs = root / ".px/envs/current/bin"
    programs.mkdir(parents=True)
    for name in ("pytest", "python", "activate", "$(touch pwned)", "a\nb", "\x1b[31m", "-rf"):
        (programs / name).write_text("")
    (root / "pyproject.toml").write_text(MANIFEST)
    (root / "inside").mkdir()
    monkeypatch.chdir(root / "inside")
    return root


def words(line: str) -> list[str]:
    """The candidates for the last word of a line; a space at its end begins a new one."""
    return [word for word, _ in answer(line.split(" ")[1:])]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("px sy", ["sync"]),
        ("px store ", ["verify", "gc"]),
        ("px store g", ["gc"]),
        ("px --js", ["--json"]),
        ("px --vers", ["--version"]),
        ("px -q --project elsewhere store -q ver", ["verify"]),
        ("px --offline sync --res", ["--reset"]),
        ("px completions z", ["zsh"]),
        ("px sync --group ", ["dev", "lint"]),
        ("px sync --group=l", ["--group=lint"]),
        ("px sync --group = l", ["lint"]),
        ("px sync --group =", ["dev", "lint"]),
        ("px sync --extra ", ["plots"]),
        ("px sync --group lint --extra p", ["plots"]),
        ("px add --optional p", ["plots"]),
        ("px remove p", ["psycopg2", "pytest"]),
        ("px remove P", ["Pillow"]),
        ("px sandbox add postg", ["postgres"]),
        ("px sandbox add postgres git --project ", [":directories"]),
        ("px sandbox list --base debian-1", ["debian-12", "debian-13"]),
        ("px run ", ["pytest", "python", ":files"]),
        ("px run --sandbox py", ["pytest", "python", ":files"]),
        ("px run --engine d", ["docker"]),
        ("px run --network ", ["host", "none", "allow"]),
        ("px run pytest --engine ", [":files"]),
        ("px test --sandbox te", [":files"]),
        ("px pack verify ", [":files"]),
        ("px pack image --format ", ["oci", "docker"]),
        ("px --project ", [":directories"]),
        ("px --project ../nowhere sync --group ", []),
        ("px --project=.. sync --group ", ["dev", "lint"]),
        ("px nonsense ", []),
        ("px sync --nonsense ", []),
        ("px pack image --expose ", []),
    ],
)
def test_the_words_of_a_line(line: str, found: list[str]) -> None:
    assert sorted(words(line)) == sorted(found)


def test_every_command_and_group_is_a_word() -> None:
    assert set(words("px ")) == {name for name in COMMANDS if " " not in name} | set(GROUPS)
    for group in GROUPS:
        assert words(f"px {group} ") == [n.split(" ")[1] for n in COMMANDS if n.startswith(group + " ")]


def test_words_have_an_explanation() -> None:
    assert dict(answer(["sandbox", "add", "postgres"]))["postgres"]
    assert dict(answer(["sync", "--group"]))["--group"] == "include a dependency group"


@pytest.mark.parametrize("content", ["[[[", "x = 1\n" * 200_000, "dependency-groups = 1\nproject = []\n", "é" * 10])
def test_a_manifest_that_is_none(project: Path, content: str) -> None:
    (project / "pyproject.toml").write_text(content, encoding="latin-1")
    assert words("px sync --group ") == []


def test_a_manifest_that_never_ends_is_not_read(project: Path) -> None:
    (project / "pyproject.toml").unlink()
    os.mkfifo(project / "pyproject.toml")
    assert words("px sync --group ") == []
    (project / "pyproject.toml").unlink()
    (project / "pyproject.toml").symlink_to("/dev/zero")
    assert words("px sync --group ") == []
