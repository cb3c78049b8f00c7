"""The documentation speaks of what is there: links lead somewhere, every command and variable is described."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest

from docs import generate
from px.cli.main import COMMANDS, make_parser
from px.sandbox.needs import capabilities
from tests.conftest import REPO

if TYPE_CHECKING:
    from pathlib import Path

PAGES = sorted([*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md"), *(REPO / "examples").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(REPO)))
def test_links_lead_somewhere(page: object) -> None:
    path = REPO / str(page)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(REPO)))
def test_links_to_a_part_of_a_page_lead_to_a_heading(page: Path) -> None:
    for target, part in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            headings = re.findall(r"^#+ (.+)$", (page.parent / target if target else page).read_text(), re.MULTILINE)
            assert part in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}, f"{target}#{part}"


def test_what_is_made_is_fresh() -> None:
    """If this fails: make docs."""
    made = generate.files()
    assert {path.name for path in (REPO / "docs/man").iterdir()} == {p.name for p in made if p.parent.name == "man"}
    assert [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text] == []


def shown_commands() -> list[tuple[str, list[str]]]:
    """Every ``px`` command line in a block of code: the page, and its words as far as they are px's."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```.*?\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for line in re.findall(r"^(?:\$ | *- run: )?((?:[A-Z_]+=\S+ )*px [a-z].*)$", block, re.MULTILINE):
                for part in re.split(r" && | [<>] | [|] ", line):
                    words = shlex.split(part, comments=True)
                    while words and "=" in words[0]:
                        words = words[1:]
                    if words and words[0] == "px":
                        found.append((page.name, words[1:]))
    return found


def test_commands_in_the_pages_are_commands_of_px(capsys: pytest.CaptureFixture[str]) -> None:
    shown = shown_commands()
    assert len(shown) > 40
    for page, words in shown:
        name = next((n for n in (" ".join(words[:2]), words[0]) if n in COMMANDS), None)
        assert name, f"{page}: px {' '.join(words)}"
        arguments = words[len(name.split()) :]
        parser = make_parser(name)
        module = importlib.import_module(f"px.cli.commands.{COMMANDS[name].module}")
        module.configure(parser)
        try:
            parser.parse_args(module.arrange(parser, arguments) if hasattr(module, "arrange") else arguments)
        except SystemExit:
            pytest.fail(f"{page}: px {' '.join(words)}\n{capsys.readouterr().err}")


def test_every_command_is_in_the_reference() -> None:
    page = (REPO / "docs/reference/commands.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        head, _, tail = name.partition(" ")
        assert re.search(rf"`px {head}[^`]*{tail}", page), f"px {name} is not described"


def test_every_capability_has_a_row_in_the_reference() -> None:
    page = (REPO / "docs/reference/capabilities.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.MULTILINE)) >= set(capabilities.table())


def test_every_variable_that_px_reads_is_documented() -> None:
    source = "\n".join(p.read_text(encoding="utf-8") for p in (REPO / "src/px").rglob("*.py"))
    used = set(re.findall(r"[\"'](PX_[A-Z_]+)[\"']", source)) - {"PX_CONFIG_SETTINGS", "PX_SUBDIRECTORY"}
    text = "\n".join(p.read_text(encoding="utf-8") for p in PAGES)
    assert {name for name in used if name not in text} == set()


def test_every_variable_of_the_extension_is_documented() -> None:
    sources = (REPO / "src/metaflow_extensions").rglob("*.py")
    text = "\n".join(p.read_text(encoding="utf-8") for p in sources)
    used = set(re.findall(r"\bMETAFLOW_SANDBOX_[A-Z_]*[A-Z]\b", text))
    used |= {f"METAFLOW_{name}" for name in re.findall(r"from_conf\(\"(SANDBOX_[A-Z_]+)", text)}
    page = (REPO / "docs/reference/metaflow-configuration.md").read_text(encoding="utf-8")
    assert len(used) > 5
    assert {name for name in used if name not in page} == set()


def test_every_page_is_reachable_from_the_readme() -> None:
    seen, pending = set(), [REPO / "README.md"]
    while pending:
        page = pending.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        pending += [(page.parent / link).resolve() for link in links if "://" not in link]
    missing = {p for p in PAGES if p.is_relative_to(REPO / "docs")} - seen
    assert not missing, sorted(str(p.relative_to(REPO)) for p in missing)


def test_no_lock_with_addresses_is_committed() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=False).stdout.split()
    assert not [name for name in tracked if name.endswith(("uv.lock", "pylock.toml"))]


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[^\w-]", requirement, maxsplit=1)[0] for requirement in project["dependencies"]}
    page = (REPO / "docs/reference/dependencies.md").read_text(encoding="utf-8").partition("## Written by hand")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == wanted
    assert all(f"`{extra}`" in page for extra in project["optional-dependencies"])
