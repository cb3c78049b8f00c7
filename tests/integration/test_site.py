"""The documentation as a site: links lead somewhere, search finds, and a phone shows it without scrolling sideways."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs import site
from tests.conftest import REPO
from tests.integration.test_release import copied
from tests.support.chromium import Chromium, chromium
from tests.support.needs import need
from tests.support.px import UV
from tests.support.scenes import WHO

PAGE = "dev/docs/how-to/use-in-ci.html"
# Until something is there: what scripts of a page put in comes after it is loaded.
WAIT = "new Promise((done) => {{ const look = () => {{ const found = document.querySelectorAll({selector!r}); "
WAIT += "found.length ? done([...found].map((e) => e.getAttribute('href'))) : setTimeout(look, 50) }}; look() }})"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of its base
        pass


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site with a released version beside it, by a Python of its own that has the generator."""
    need("a package index")
    root = tmp_path_factory.mktemp("site")
    subprocess.run([UV, "venv", "--quiet", root / "venv"], check=True)
    install = [UV, "pip", "install", "--quiet", "--native-tls", "--python", str(root / "venv/bin/python")]
    subprocess.run([*install, "-e", f"{REPO}[site]"], check=True, timeout=600)
    python = root / "venv/bin/python"
    tree = copied(root / "tree")
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "x"], ["tag", "v0.0.1"]):
        subprocess.run(["git", *command], cwd=tree, env={**os.environ, **WHO}, check=True)
    subprocess.run([python, "-m", "docs.site", root / "out"], cwd=tree, check=True, timeout=600)
    return root / "out"


@pytest.fixture
def server(built: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=built)) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


@pytest.fixture
def browser(server: str) -> Iterator[Chromium]:
    need("Chromium")
    with chromium() as found:
        yield found
        assert all(address.startswith((server, "data:")) for address in found.requests()), "nobody else is asked"


def test_the_readme_becomes_the_navigation() -> None:
    pages = ["README", "SECURITY", "docs/how-to/use-in-ci", "docs/how-to/new"]
    found = site.sections((REPO / "README.md").read_text(), pages)
    assert "Use px in CI <docs/how-to/use-in-ci>" in found["How-to"]
    assert found["How-to"][-1] == "docs/how-to/new", "a page that the table forgets"
    assert found["Project"] == ["SECURITY"]


def target_of(link: str, page: Path, root: Path) -> tuple[Path, str] | None:
    """The file and the part of it that a link of the site names; None for one that leads elsewhere."""
    parts = urlsplit(link.replace("&amp;", "&"))
    if parts.scheme or parts.netloc:
        return None
    path = unquote(parts.path)
    target = page if not path else root / path.lstrip("/") if path.startswith("/") else page.parent / path
    return (target / "index.html" if target.is_dir() else target).resolve(), unquote(parts.fragment)


@pytest.mark.slow
@pytest.mark.network
def test_links_are_whole(built: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in built.rglob("*.html") if "_static" not in page.parts}
    anchors = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in pages.items()}
    assert len(pages) > 40
    for page, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            if (found := target_of(link, page, built)) is None:
                continue
            target, part = found
            assert target.is_file(), f"{page.relative_to(built)} links to {link}"
            assert not part or target not in anchors or part in anchors[target], f"{page.relative_to(built)}: {link}"


@pytest.mark.slow
@pytest.mark.network
def test_search_finds(server: str, browser: Chromium) -> None:
    browser.open(f"{server}/dev/search.html?q=libpq")
    browser.run(WAIT.format(selector="#search-results li a"))
    browser.run(WAIT.format(selector="#search-results .search-summary"))
    found = browser.run(WAIT.format(selector="#search-results a[href*='capabilities.html']"))
    assert found


@pytest.mark.slow
@pytest.mark.network
def test_versions_can_be_switched(server: str, browser: Chromium) -> None:
    browser.open(f"{server}/{PAGE}")
    assert browser.run(WAIT.format(selector="a[data-version=dev]"))[0] == f"/{PAGE}"
    assert browser.run(WAIT.format(selector="a[data-version='0.0.1']"))[0] == f"/{PAGE.replace('dev', '0.0.1', 1)}"


@pytest.mark.slow
@pytest.mark.network
def test_a_visitor_gets_the_newest_release(built: Path) -> None:
    assert "url=./0.0.1/" in (built / "index.html").read_text()
    names = [(row["name"], row["preferred"]) for row in json.loads((built / "versions.json").read_text())]
    assert names == [("dev", False), ("0.0.1", True)]


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("page", ["dev/index.html", PAGE, "dev/docs/reference/capabilities.html"])
def test_a_phone_shows_it(server: str, browser: Chromium, page: str, tmp_path: Path) -> None:
    """Nothing is wider than the screen, in light and dark; the pictures are there to be looked at."""
    browser.look(width=390, height=844, phone=True)
    browser.open(f"{server}/{page}")
    assert browser.run("document.querySelector('h1').textContent.length") > 1
    for dark in (False, True):
        browser.look(width=390, height=844, phone=True, dark=dark)
        assert browser.run("document.documentElement.scrollWidth") <= 390
        browser.picture(tmp_path / f"phone-{dark}.png")
    browser.look(width=1300, height=900)
    browser.picture(tmp_path / "desk.png")
    assert browser.complaints() == []
