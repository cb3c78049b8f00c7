"""Every parser that meets foreign bytes: a result or an error that px explains, in bounded time and memory.

The short run is part of the ordinary tests and the same every time; hypothesis makes a case that fails smaller.  The
long one is at random: `PX_FUZZ_SECONDS` says how long for each target, and the number of cases is printed.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.bounded import memory, no_hang
from tests.unit.fuzz import documents, packages
from tests.unit.fuzz.mutations import Drawn, Rolled

TARGETS: dict[str, tuple[Any, Any]] = packages.TARGETS | documents.TARGETS
SETTINGS = settings(
    max_examples=12,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)
SECONDS = float(os.environ.get("PX_FUZZ_SECONDS", "5"))


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_cases(name: str) -> None:
    make, check = TARGETS[name]

    @SETTINGS
    @given(st.composite(lambda draw: make(Drawn(draw)))())
    def one(case: Any) -> None:
        with no_hang():
            check(case)

    with memory(1 << 30):
        one()


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_cases(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, check = TARGETS[name]
    end, done = time.monotonic() + SECONDS, 0
    with memory(1 << 30):
        while time.monotonic() < end:
            seed = int.from_bytes(os.urandom(8), "big")
            case = make(Rolled(seed))
            try:
                with no_hang():
                    check(case)
            except BaseException as e:
                e.add_note(f"{name}: Rolled({seed}) made {case!r}")
                raise
            done += 1
    with capsys.disabled():
        print(f"\n{name}: {done} cases")
