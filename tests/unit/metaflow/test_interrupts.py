"""Ctrl-C while a remote task runs: the terminal sends one signal, and the fork server another at the same time."""

from __future__ import annotations

import signal
import subprocess
import sys

# In a process of its own, which has one thread: a thread of the test runner could take a signal too early.
PROGRAM = """
import os, signal, sys
from metaflow_extensions.sandbox.plugins.sandbox_cli import _guarded

complaints = []
sys.unraisablehook = lambda found: complaints.append(found.exc_value)

class Executor:
    # Two signals come while it waits for the task; it has a sandbox to destroy.
    destroyed = False

    def run(self, _task):
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

executor = Executor()
print(_guarded(executor, None), executor.destroyed, complaints)
"""


def test_two_signals_at_once() -> None:
    """The second one neither stops the destruction, nor is it in the task's log as an error of Python."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == f"{128 + signal.SIGINT} True []\n", done.stderr
