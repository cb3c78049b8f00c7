"""``px completions``: a script that teaches your shell px's commands and flags."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from px.cli.answer import emit

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context

_EPILOG = """\
  bash:  px completions bash > ~/.local/share/bash-completion/completions/px
  zsh:   px completions zsh > ~/.zfunc/_px       (with fpath+=~/.zfunc before compinit)
  fish:  px completions fish > ~/.config/fish/completions/px.fish
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="your shell")


def main(args: argparse.Namespace, context: Context) -> int:
    text = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]()
    if args.json:
        emit(args, f"completions for {args.shell}", {"shell": args.shell, "script": text})
    else:
        print(text, end="")
    return 0


def flags(name: str) -> list[str]:
    """Every long flag of a command, read from its own parser."""
    return sorted(o for action in _parser(name)._actions for o in action.option_strings if o.startswith("--"))


def choices(name: str) -> list[str]:
    """The words that a command takes, where it takes only some."""
    return [str(c) for action in _parser(name)._actions if not action.option_strings for c in action.choices or ()]


def _parser(name: str) -> argparse.ArgumentParser:
    from px.cli.main import COMMANDS, make_parser

    parser = make_parser(name)
    importlib.import_module(f"px.cli.commands.{COMMANDS[name].module}").configure(parser)
    return parser


_FILES = ("run", "test", "init", "pack verify")
_BASH = """\
# px completion for bash
_px() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" command="" words="" choices="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command,${{COMP_WORDS[i]}}" in
      *,--project) ((i++)) ;;
      *,-*) ;;
      ,*) command="${{COMP_WORDS[i]}}" ;;
      {grouped}) command="$command ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$command" in
{cases}
  esac
  if [[ "$cur" != -* && -n "$choices" ]]; then
    COMPREPLY=($(compgen -W "$choices" -- "$cur"))
  elif [[ "$cur" != -* && -n "$command" && ! "$command" =~ ^({groups})$ ]]; then
    COMPREPLY=($(compgen -f -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  fi
}}
complete -o filenames -F _px px
"""


def _bash() -> str:
    from px.cli.main import COMMANDS, GROUPS

    top = sorted({name.split(" ")[0] for name in COMMANDS})
    rows = {"": [*top, *flags("doctor"), "--version"]} | {name: flags(name) for name in COMMANDS}
    for group in GROUPS:
        rows[group] = [name.split(" ")[1] for name in COMMANDS if name.startswith(group + " ")]
    limited = {name: choices(name) for name in COMMANDS}
    cases = "\n".join(
        f'    "{name}") words="{" ".join(words)}" choices="{" ".join(limited.get(name, ()))}" ;;'
        for name, words in rows.items()
    )
    grouped = "|".join(f"{group},*" for group in GROUPS)
    return _BASH.format(groups="|".join(GROUPS), grouped=grouped, cases=cases)


def _zsh() -> str:
    return "#compdef px\nautoload -U +X bashcompinit && bashcompinit\n" + _bash()


def _fish() -> str:
    from px.cli.main import COMMANDS, GROUPS

    lines = ["# px completion for fish", "complete -c px -f"]
    for name, command in COMMANDS.items():
        head, _, tail = name.partition(" ")
        seen = f"__fish_seen_subcommand_from {head}"
        if tail:
            lines.append(f"complete -c px -n '{seen}' -a {tail} -d '{_quote(command.summary)}'")
            seen += f"; and __fish_seen_subcommand_from {tail}"
        else:
            lines.append(f"complete -c px -n __fish_use_subcommand -a {head} -d '{_quote(command.summary)}'")
        lines += [f"complete -c px -n '{seen}' -l {flag[2:]}" for flag in flags(name)]
        lines += [f"complete -c px -n '{seen}' -a {word}" for word in choices(name)]
        if name in _FILES:
            lines.append(f"complete -c px -n '{seen}' -F")
    lines += [f"complete -c px -n __fish_use_subcommand -a {g} -d '{_quote(text)}'" for g, text in GROUPS.items()]
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return text.replace("'", "\\'")
