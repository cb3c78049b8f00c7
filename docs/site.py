"""The documentation as a site: ``make site``.

Sphinx with MyST and the PyData theme builds it.  Of the generators for Markdown it is the one that most of Python's own
projects use and keep (CPython, NumPy, Jupyter), it checks every link while it builds, its search needs no server and no
third party, and the theme brings a switcher of versions, light and dark, and pages for phones.  MkDocs, the other
choice, has had no release since 2024, and the makers of its usual theme have turned to another generator.

The pages stay as they are in the repository: they are staged side by side with their links, and the table of the README
becomes the navigation.  Every tag ``v*`` becomes a version of its own beside the working tree.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

REPO = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
ROW = re.compile(r"^\| (\w[\w -]*) \| (\[.*) \|$", re.MULTILINE)
TITLED = re.compile(r"\[([^]]+)\]\(([^)#\s]+)\.md\)")


def build(out: Path, base: str = "/") -> list[str]:
    """Build every version that there is below ``out``; their names."""
    shutil.rmtree(out, ignore_errors=True)
    tags = _git("tag", "--list", "v*", "--sort=-version:refname").split()
    versions = ["dev", *(tag.removeprefix("v") for tag in tags)]
    with tempfile.TemporaryDirectory() as temporary:
        for number, name in enumerate(versions):
            root = REPO if number == 0 else _checked_out(f"v{name}", Path(temporary, "trees", name))
            _build_one(root, Path(temporary, "pages", name), out / name, name, base)
    newest = versions[1] if tags else versions[0]
    rows = [{"name": name, "version": name, "url": f"{base}{name}/", "preferred": name == newest} for name in versions]
    (out / "versions.json").write_text(json.dumps(rows, indent=2) + "\n")
    (out / "index.html").write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url=./{newest}/">\n')
    return versions


def _git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=REPO, capture_output=True, text=True, check=True).stdout


def _checked_out(tag: str, to: Path) -> Path:
    archive = subprocess.run(["git", "archive", tag], cwd=REPO, capture_output=True, check=True).stdout
    to.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(to)  # noqa: S202 - our own repository's files
    return to


def _build_one(root: Path, pages: Path, out: Path, version: str, base: str) -> None:
    stage(root, pages)
    for name in ("conf.py", "pictures/icon.svg"):
        shutil.copy(Path(__file__).parent / name, pages)
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning", "--keep-going", "--quiet"]
    env = {**os.environ, "PX_SITE_VERSION": version, "PX_SITE_URL": base}
    subprocess.run([*command, "--doctree-dir", f"{pages}-trees", pages, out], env=env, check=True)


def stage(root: Path, to: Path) -> None:
    """Copy every page that the README leads to, and every file that a page shows or links to, as they lie."""
    pending, seen = [root / "README.md"], set[Path]()
    while pending:
        page = pending.pop().resolve()
        if page in seen or not page.is_file():
            continue
        seen.add(page)
        target = to / page.relative_to(root.resolve())
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target)
        if page.suffix == ".md":
            pending += [page.parent / link for link in LINK.findall(page.read_text()) if "://" not in link]
    pages = sorted(str(page.relative_to(to).with_suffix("")) for page in to.rglob("*.md"))
    readme = (root / "README.md").read_text()
    found = sections(readme, pages)
    for title, rows in found.items():
        (to / f"{title.lower()}.md").write_text(f"# {title}\n\n{_tree(1, rows)}\n")
    head = readme.partition("## Documentation\n")[0]
    (to / "index.md").write_text(f"{head}## Documentation\n\n{_tree(2, [title.lower() for title in found])}\n")


def sections(readme: str, pages: Sequence[str]) -> dict[str, list[str]]:
    """The table of the README, row by row; pages that it leaves out follow those of their folder."""
    table = readme.partition("## Documentation\n")[2]
    rows = {title: dict(map(reversed, TITLED.findall(links))) for title, links in ROW.findall(table)}
    named = {page for row in rows.values() for page in row} | {"README"}
    found = {}
    for title, row in rows.items():
        folders = {str(Path(page).parent) for page in row} - {"."}
        more = [page for page in pages if page not in named and str(Path(page).parent) in folders]
        found[title] = [f"{_titled(name)} <{page}>" for page, name in row.items()] + more
        named |= set(more)
    return found | {"Project": [page for page in pages if page not in named]}


def _titled(name: str) -> str:
    return name if name.startswith("px ") else name[0].upper() + name[1:]


def _tree(depth: int, rows: Sequence[str]) -> str:
    return "\n".join(["```{toctree}", f":maxdepth: {depth}", "", *rows, "```"])


if __name__ == "__main__":
    for made in build(Path(sys.argv[1]), os.environ.get("PX_SITE_URL", "/")):
        sys.stdout.write(f"{sys.argv[1]}/{made}\n")
