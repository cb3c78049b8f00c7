"""Every parser that meets foreign bytes: a result or an error that px explains, in bounded time and memory.

The short run is part of the ordinary tests and the same every time.  The long one is at random: `PX_FUZZ_SECONDS` says
how long for each target, and the number of cases is printed.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.support.bounded import memory, no_hang
from tests.unit.fuzz import documents, packages

TARGETS: dict[str, tuple[Any, Any]] = packages.TARGETS | documents.TARGETS
SHORT = settings(
    max_examples=12,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
LONG = settings(SHORT, derandomize=False, max_examples=300, phases=[Phase.generate, Phase.shrink])
SECONDS = float(os.environ.get("PX_FUZZ_SECONDS", "5"))


def run(name: str, how: settings, number: int | None = None) -> int:
    """Try one target; returns the number of cases."""
    cases, check = TARGETS[name]
    done = 0

    @how
    @given(cases())
    def one(case: Any) -> None:
        nonlocal done
        done += 1
        with no_hang():
            check(case)

    with memory(1 << 30):
        (seed(number)(one) if number is not None else one)()
    return done


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_cases(name: str) -> None:
    assert run(name, SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_cases(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    end, done = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        number = int.from_bytes(os.urandom(4), "big")
        try:
            done += run(name, LONG, number)
        except BaseException as e:
            e.add_note(f"{name}, seed {number}")
            raise
    with capsys.disabled():
        print(f"\n{name}: {done} cases")
