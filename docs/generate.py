"""Writes what is made from data and from the parsers: run by ``make docs``, checked by the tests."""

from __future__ import annotations

from pathlib import Path

from docs import manual, words
from px import DATA
from px.errors import EXIT_BY_FAMILY, catalogue
from px.sandbox.schema import encoded

HERE = Path(__file__).parent
FAMILIES = {
    "0": "project and command line",
    "1": "manifest and lock",
    "2": "env",
    "8": "store",
    "9": "sandbox",
}


def errors() -> str:
    lines = [
        "# Errors",
        "",
        "Every error has a code, says why it happened and what to do. This page is made from",
        "`src/px/data/errors.toml`; words in {braces} are filled in where the error happens.",
        "",
        "| family | about | exit code of px |",
        "|---|---|---|",
    ]
    lines += [f"| PX{f}xx | {about} | {EXIT_BY_FAMILY[f]} |" for f, about in FAMILIES.items()]
    lines += [
        "",
        "PX020 (target not found) exits with 127 and PX021 (target not executable) with 126, as shells do. Usage",
        "errors exit with 2, an interruption with 130, a bug in px with 120. `px run` and `px test` exit with the",
        "target's own code once it was started, 128 + n when signal n ended it.",
    ]
    for code, row in catalogue().items():
        lines += ["", f"## {code}", "", row.what]
        for title, items in (("Why", row.why), ("Fix", row.fix)):
            if items:
                lines += ["", f"{title}:", "", *(f"* {item}" for item in items)]
    return "\n".join(lines) + "\n"


def files() -> dict[Path, str]:
    """Everything that is made: where it lies, and what is in it."""
    made = {HERE / "reference" / "errors.md": errors(), Path(DATA, "completions", "words.tsv"): words.words()}
    made[Path(DATA, "partial-px.json")] = encoded()
    return made | {HERE / "man" / name: text for name, text in manual.pages().items()}


def main() -> None:
    made = files()
    for stale in set((HERE / "man").glob("*.1")) - set(made):
        stale.unlink()
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
