"""Timing of whole commands, alternating between the peers so that a busy moment hits all of them."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Action = Callable[[], object]


@dataclass(frozen=True)
class Measured:
    """Seconds of one contender, over all rounds."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)


def command(argv: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str]) -> Action:
    """An action that runs a command to its end; a failure stops the benchmark."""

    def run() -> None:
        done = subprocess.run(list(argv), cwd=cwd, env=dict(env), capture_output=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{argv}: {done.stderr.decode(errors='replace')}")

    return run


def compare(
    contenders: Mapping[str, Action], *, rounds: int, before: Mapping[str, Action] | None = None
) -> list[Measured]:
    """Run every contender once per round, in turn; ``before`` prepares each one outside the clock."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, action in contenders.items():
            if before and name in before:
                before[name]()
            started = time.perf_counter()
            action()
            taken[name].append(time.perf_counter() - started)
    return [Measured(name, tuple(seconds)) for name, seconds in taken.items()]


def table(title: str, results: Sequence[Measured], *, base: str) -> None:
    """Print medians and ratios to the contender called ``base``."""
    reference = next(r for r in results if r.name == base).median
    print(f"\n{title}")
    print(f"  {'':<44}{'median':>10}{'best':>10}{'ratio':>8}")
    for r in results:
        print(f"  {r.name:<44}{r.median * 1000:>7.1f} ms{r.best * 1000:>7.1f} ms{r.median / reference:>7.2f}x")
