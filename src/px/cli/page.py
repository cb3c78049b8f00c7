"""The flags of commands that can answer with a page, and what they do."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from px import console, process
from px.home import Home
from px.oci.failures import building
from px.oci.layout import open_output
from px.project.context import named_directory
from px.warm.places import program, programs_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

# What opens a file in the user's browser: on Linux, in WSL, on macOS.
_OPENERS = ("xdg-open", "wslview", "open")


def add_page(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("as a page")
    group.add_argument("--html", metavar="FILE", help="write it as a page for a browser too: one file, no network")
    group.add_argument("--open", action="store_true", help="open the page (without --html: a temporary one)")


def wants_page(args: argparse.Namespace) -> bool:
    return bool(args.html or args.open)


def deliver(args: argparse.Namespace, make: Callable[[], bytes]) -> str:
    """Write the page where the flags say, and open it; returns its path."""
    path = _named(args.html) if args.html else _temporary()
    with building(Home.from_environment(), path.parent), open_output(path) as out:
        out.write(make())
    console.info(f"Wrote {path}")
    if args.open:
        open_in_browser(path)
    return os.fspath(path)


def _named(text: str) -> Path:
    return named_directory(Path.cwd(), os.path.dirname(text)) / os.path.basename(text)


def _temporary() -> Path:
    # It stays after px has ended: the browser reads it, and whoever looks at it may load it again.
    return Path(tempfile.mkdtemp(prefix="px-page-"), "sandbox.html")


def open_in_browser(path: Path) -> None:
    """Ask the desktop to show a file; the program is never one that lies in a project."""
    openers = _OPENERS if sys.platform == "darwin" else _OPENERS[:2]
    opener = next((found for name in openers if (found := program(name)) is not None), None)
    if opener is None:
        console.warn(f"px found no program that opens pages ({' or '.join(openers)}); open {path.as_uri()} yourself")
        return
    done = process.run([opener, path], env={**os.environ, "PATH": programs_path()}, doing="Opening the page")
    if not done.ok:
        reason = (done.stderr.strip().splitlines() or [f"it ended with {done.code}"])[-1]
        console.warn(f"{Path(opener).name} could not open it ({reason}); open {path.as_uri()} yourself")
