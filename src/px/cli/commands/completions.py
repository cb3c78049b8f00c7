"""``px completions``: a script that teaches your shell px's commands, flags and names.

The scripts are short: when Tab is pressed they ask ``px completions -- WORDS``, which ``px.cli.complete`` answers
without coming here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from px import DATA
from px.cli.answer import emit

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context

_EPILOG = """\
An installed px brings them: they are in share/ beside the bin/ directory of px. Where your shell does not look there:

  bash:  px completions bash > ~/.local/share/bash-completion/completions/px
  zsh:   px completions zsh > ~/.zfunc/_px       (with fpath+=~/.zfunc before compinit)
  fish:  px completions fish > ~/.config/fish/completions/px.fish
"""
_SCRIPTS = {"bash": "px.bash", "zsh": "_px", "fish": "px.fish"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="your shell")


def main(args: argparse.Namespace, context: Context) -> int:
    text = Path(DATA, "completions", _SCRIPTS[args.shell]).read_text(encoding="utf-8")
    if args.json:
        emit(args, f"completions for {args.shell}", {"shell": args.shell, "script": text})
    else:
        print(text, end="")
    return 0
