"""Ctrl-C while a remote task runs: the terminal sends one signal, and the fork server another at the same time."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from metaflow_extensions.sandbox.plugins.sandbox_cli import SIGNALS, _guarded


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    # A thread of the test runner may take a signal earlier; then the test ends with both blocked.
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in before.items():
        signal.signal(number, handler)


class Executor:
    """Two signals come while it waits for the task; it has a sandbox to destroy."""

    destroyed = False

    def run(self, _task: object) -> int:
        both = (signal.SIGINT, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        for number in both:
            os.kill(os.getpid(), number)
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
            return 0
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, ())  # where Python looks for signals
            self.destroyed = True


def test_two_signals_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one neither stops the destruction, nor is it in the task's log as an error of Python."""
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: complaints.append(found.exc_value))
    executor: Any = Executor()
    task: Any = None
    assert _guarded(executor, task) == 128 + signal.SIGINT
    assert executor.destroyed
    assert complaints == []
