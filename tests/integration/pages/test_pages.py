"""The pages in a real Chromium: they open, are searched, and a reason is followed, all by keyboard.

``PX_TEST_PICTURES=DIR`` keeps pictures of them: in light, in dark, on a phone and on paper.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from px.home import Home
from px.sandbox.manifest import SandboxManifest
from px.sandbox.report.page.explain import explain_page
from tests.support.chromium import Chromium
from tests.support.px import run_px
from tests.unit.sandbox.report.test_explain import explanation
from tests.unit.sandbox.report.test_page import contents, hostile_page, large_explanation

pytestmark = pytest.mark.slow
SHOWN = (
    "[...document.querySelectorAll('#packages tbody tr')].filter((row) => !row.hidden).map((r) => r.cells[0].innerText)"
)


def opened(browser: Chromium, page: Path) -> None:
    browser.look()
    browser.open(page)
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()], "a page loads nothing but itself"


def pictures(browser: Chromium, name: str, tmp_path: Path) -> None:
    """Every look of a page; none of them is wider than the window."""
    directory = Path(os.environ.get("PX_TEST_PICTURES", tmp_path / "pictures"))
    directory.mkdir(parents=True, exist_ok=True)
    for look, options in {
        "light": {},
        "dark": {"dark": True},
        "phone": {"width": 390, "height": 844, "phone": True},
    }.items():
        browser.look(**options)  # type: ignore[arg-type]
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth"), f"{look}: too wide"
        browser.picture(directory / f"{name}-{look}.png")
    browser.look()
    browser.printed(directory / f"{name}.pdf")
    assert (directory / f"{name}.pdf").read_bytes().startswith(b"%PDF-")


def text(browser: Chromium, identifier: str) -> str:
    return str(browser.run(f"document.getElementById('{identifier}').innerText"))


def search(browser: Chromium, words: str) -> list[str]:
    browser.press("/")
    browser.type(words)
    return list(browser.run(SHOWN))


@pytest.mark.network
def test_the_page_of_a_project_with_compiled_parts(shop: Path, browser: Chromium, warm: Home, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run_px("sandbox", "explain", "--html", page, cwd=shop, timeout=600)
    opened(browser, page)
    pictures(browser, "explain", tmp_path)

    # Searching.
    assert search(browser, "numpy") == ["numpy"]
    assert text(browser, "count").startswith("1 of ")
    browser.press("Escape")
    assert len(browser.run(SHOWN)) > 80

    # Areas.
    browser.run("document.querySelector('#map button').focus()")
    browser.press("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight")
    assert browser.run("document.activeElement.closest('#map') !== null")
    assert "MB" in text(browser, "map-note") or "kB" in text(browser, "map-note")

    # A reason, from the package to what it brings.
    browser.run("document.querySelector('#graph .column button').focus()")
    assert browser.run("document.activeElement.firstChild.textContent") == "psycopg2"
    browser.press("ArrowRight", "ArrowDown")
    assert "_psycopg" in browser.run("document.activeElement.innerText")
    browser.press("ArrowRight")
    assert browser.run("document.activeElement.innerText") == "libpq.so.5"
    browser.press("ArrowRight", "Enter")
    said = text(browser, "graph-note")
    assert said.startswith("postgres")
    assert "Because of package: psycopg2" in said
    assert "Because of library: libpq.so.5" in said
    assert "libpq5" in said
    assert browser.run("document.querySelectorAll('#graph path.on').length") > 5
    browser.press("Escape")
    assert browser.run("document.querySelectorAll('#graph .on').length") == 0


@pytest.mark.network
def test_the_page_of_two_commits(shop: Path, browser: Chromium, warm: Home, tmp_path: Path) -> None:
    page = tmp_path / "diff.html"
    done = run_px("sandbox", "diff", "HEAD~1", "HEAD", "--html", page, cwd=shop, timeout=600)
    assert "+ postgres" in done.stdout
    assert re.search(r"^  python +numpy +1\.26\.4 → 2\.1\.3 +[+-][0-9.]+ [kM]B$", done.stdout, re.MULTILINE)
    opened(browser, page)
    pictures(browser, "diff", tmp_path)
    assert search(browser, "updated") == ["numpy"]
    browser.press("Escape")
    assert "psycopg2" in browser.run(SHOWN)
    # Sorted by name, by keyboard.
    browser.run("document.querySelector('#packages th button').focus()")
    browser.press("Enter")
    names = browser.run(SHOWN)
    assert names == sorted(names)


def test_what_packages_say_runs_nothing(browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "evil.html"
    page.write_bytes(hostile_page())
    opened(browser, page)
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("typeof window.evil") == "undefined"


def test_a_graph_that_is_too_large_to_see_at_once(browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "large.html"
    page.write_bytes(explain_page("large", large_explanation(), contents("a")))
    opened(browser, page)
    buttons = "[...document.querySelectorAll('#graph button')]"
    seen = f"{buttons}.filter((b) => b.offsetParent).map((b) => b.firstChild.textContent)"
    assert browser.run(seen) == ["opengl"]
    browser.run("document.querySelector('#graph button[tabindex=\"0\"]').focus()")
    browser.press("Enter")
    assert len(browser.run(seen)) > 300
    browser.press("ArrowLeft", "ArrowLeft", "Enter")
    assert len(browser.run(seen)) < 30
    browser.press("Escape")
    assert browser.run(seen) == ["opengl"]
    assert browser.run("document.activeElement.innerText") == "opengl"


def test_hundreds_of_packages(browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "many.html"
    page.write_bytes(
        explain_page("many", explanation(SandboxManifest()), contents(*(f"package-{i}" for i in range(600))))
    )
    opened(browser, page)
    assert search(browser, "package-599") == ["package-599"]
    assert browser.run("document.querySelectorAll('#map button').length") > 20


def test_the_page_can_be_read_without_scripts(browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "plain.html"
    page.write_bytes(explain_page("shop", explanation(SandboxManifest()), contents("a", "b")))
    browser.look()
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.run("document.documentElement.className") == ""
    shown = browser.run("document.body.innerText")
    assert "postgres" in shown
    assert "needs libpq.so.5" in shown
    assert "licence of a" in shown
