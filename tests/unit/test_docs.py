"""The documentation speaks of what is there: links lead somewhere, every command and variable is described."""

from __future__ import annotations

import re
import subprocess

import pytest

from px.cli.main import COMMANDS
from tests.conftest import REPO

PAGES = sorted([*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md"), *(REPO / "examples").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(REPO)))
def test_links_lead_somewhere(page: object) -> None:
    path = REPO / str(page)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_every_command_is_in_the_reference() -> None:
    page = (REPO / "docs/reference/commands.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        head, _, tail = name.partition(" ")
        assert re.search(rf"`px {head}[^`]*{tail}", page), f"px {name} is not described"


def test_every_variable_that_px_reads_is_documented() -> None:
    source = "\n".join(p.read_text(encoding="utf-8") for p in (REPO / "src/px").rglob("*.py"))
    used = set(re.findall(r"[\"'](PX_[A-Z_]+)[\"']", source)) - {"PX_SUBDIRECTORY"}
    text = "\n".join(p.read_text(encoding="utf-8") for p in PAGES)
    assert {name for name in used if name not in text} == set()


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
