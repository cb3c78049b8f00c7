"""Plays the commands of a page in one shell, in their order, as a reader would type them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tests.support.documented import Documented, documented
from tests.support.px import PX

# What answers by its exit code: 1 is an answer and no failure.
ANSWERS = ("px sandbox outdated", "px sandbox audit")
WHO = {f"GIT_{who}_{what}": "me@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def on(page: str, *texts: str, without: Collection[Documented] = ()) -> tuple[Documented, ...]:
    """These commands of a page, or all; one that is not there is a mistake of the scene."""
    there = [one for one in documented() if one.page == page and one not in without]
    missing = set(texts) - {one.text for one in there}
    assert not missing, f"{page} no longer has {sorted(missing)}"
    return tuple(one for one in there if not texts or one.text in texts)


def play(
    commands: Sequence[Documented], cwd: Path, env: Mapping[str, str], replace: Mapping[str, str] | None = None
) -> str:
    """Run them in one shell, so that `cd` and `export` last; everything that they said."""
    lines = ["exec 2>&1"]
    for number, one in enumerate(commands):
        text = one.text
        for old, new in (replace or {}).items():
            text = text.replace(old, new)
        good = '[ "$code" -le 1 ]' if text.startswith(ANSWERS) else '[ "$code" -eq 0 ]'
        lines += [f"echo '$ '{number}", text, f'code=$?; {good} || {{ echo "exit code $code"; exit {number + 1}; }}']
    places = {"PATH": f"{PX.parent}:{os.environ['PATH']}", **WHO}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", "\n".join(lines)], cwd=cwd, env={**os.environ, **places, **env},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=1200, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        failed = commands[min(done.returncode, len(commands)) - 1]
        raise AssertionError(f"{failed}\n{done.stdout[-4000:]}{done.stderr[-1000:]}")
    return done.stdout
