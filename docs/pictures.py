"""Pictures of terminals, made from real runs: ``make pictures`` writes docs/pictures/*.svg.

Commands run in a pseudo terminal, so px shows what it shows to people.  pyte is the terminal: it knows what is left of
a progress bar when it is gone.  What px says is shown as it is; only the name of the temporary directory is shortened.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import tempfile
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pyte

HERE = Path(__file__).parent
COLUMNS, LINES = 96, 200
WIDTH, HEIGHT, MARGIN = 8.4, 19, 18
PROMPT = "~/shop $ "
COLOURS = {
    "default": "#d8dee9",
    "black": "#5c6773",
    "red": "#f07178",
    "green": "#a6d189",
    "brown": "#e5c890",
    "blue": "#8caaee",
    "magenta": "#ca9ee6",
    "cyan": "#81c8be",
    "white": "#ffffff",
}
MANIFEST = """\
[project]
name = "shop"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["psycopg2", "pillow"]
"""
LIBPQ = "px run --sandbox python -c 'import psycopg2; print(psycopg2.__libpq_version__)'"


@dataclass(frozen=True)
class Picture:
    """What is run before, unseen, and what is shown."""

    name: str
    about: str
    shown: tuple[str, ...]
    before: tuple[str, ...] = ()


PICTURES = (
    Picture(
        "first-run",
        "A first run in the sandbox on a machine without libpq, gcc or Docker, and a second one",
        (LIBPQ, LIBPQ, "px pack image --out ../shop.tar"),
        ("git init --quiet", "uv lock --quiet", "git add --all", "git commit --quiet --message first"),
    ),
    Picture("explain", "What px sandbox explain shows", ("px sandbox explain",), ("px sync --sandbox --quiet",)),
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="px-pictures-") as place:
        root = Path(place, "shop")
        root.mkdir()
        (root / "pyproject.toml").write_text(MANIFEST)
        env = {k: v for k, v in os.environ.items() if k not in {"CI", "NO_COLOR", "VIRTUAL_ENV"}}
        env |= {"PX_HOME": os.environ.get("PX_PICTURES_HOME", f"{place}/px"), "TERM": "xterm-256color"}
        env |= {"COLUMNS": str(COLUMNS), "LINES": "40"}
        env |= {f"GIT_{who}_{what}": "px@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        for picture in PICTURES:
            for command in picture.before:
                subprocess.run(["bash", "-c", command], cwd=root, env=env, check=True)
            svg = draw(_screen(picture.shown, root, env, place), picture.about)
            (HERE / "pictures" / f"{picture.name}.svg").write_text(svg, encoding="utf-8")


def _screen(commands: tuple[str, ...], root: Path, env: dict[str, str], place: str) -> pyte.Screen:
    screen = pyte.Screen(COLUMNS, LINES)
    screen.set_mode(pyte.modes.LNM)
    stream = pyte.Stream(screen)
    for number, command in enumerate(commands):
        stream.feed("\n" * (number > 0))
        stream.feed(f"\x1b[32m{PROMPT}\x1b[1;37m{command}\x1b[0m\n")
        stream.feed(_run(command, root, env).replace(place, "~"))
    return screen


def _run(command: str, root: Path, env: dict[str, str]) -> str:
    """Everything that a command writes to a terminal of its own."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(root)
        os.execvpe("bash", ["bash", "-c", f"stty cols {COLUMNS}; {command}"], env)
    written = b""
    try:
        while more := os.read(fd, 65536):
            written += more
    except OSError:  # the last one closed it
        pass
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        raise SystemExit(f"{command}:\n{written.decode(errors='replace')}")
    return written.decode("utf-8", "replace")


def draw(screen: pyte.Screen, about: str) -> str:
    """The screen as SVG: text that can be read, searched and copied."""
    lines = [screen.buffer[row] for row in range(screen.cursor.y + 1)]
    while lines and not "".join(lines[-1][c].data for c in range(COLUMNS)).strip():
        lines.pop()
    rows = []
    for number, line in enumerate(lines):
        y = MARGIN + HEIGHT * (number + 1)
        rows += [piece for start, end in _runs(line) for piece in _words(line, start, end, y)]
    width, height = COLUMNS * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">'
    style = 'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14"'
    return "\n".join(
        [
            head,
            f"<title>{escape(about)}</title>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#232a35"/>',
            f"<g {style}>",
            *rows,
            "</g>",
            "</svg>\n",
        ]
    )


def _runs(line: dict[int, pyte.screens.Char]) -> list[tuple[int, int]]:
    """Where words of one look begin and end."""
    found: list[tuple[int, int]] = []
    start = 0
    for column in range(1, COLUMNS + 1):
        if column == COLUMNS or _look(line[column]) != _look(line[start]):
            if "".join(line[c].data for c in range(start, column)).strip():
                found.append((start, column))
            start = column
    return found


def _look(char: pyte.screens.Char) -> tuple[str, bool]:
    return char.fg, char.bold


def _words(line: dict[int, pyte.screens.Char], start: int, end: int, y: float) -> list[str]:
    """A piece for each group of words: renderers differ in what they make of several spaces."""
    text = "".join(line[column].data for column in range(start, end))
    colour = COLOURS.get(line[start].fg, COLOURS["default"])
    look = f'fill="{colour}"' + (' font-weight="bold"' if line[start].bold else "")
    return [_text(found[0], start + found.start(), y, look) for found in re.finditer(r"\S+(?: \S+)*", text)]


def _text(words: str, column: int, y: float, look: str) -> str:
    length = f'textLength="{len(words) * WIDTH:g}"'  # whatever font there is: columns stay columns
    return f'<text x="{MARGIN + column * WIDTH:g}" y="{y:g}" {look} {length}>{escape(words)}</text>'


if __name__ == "__main__":
    main()
