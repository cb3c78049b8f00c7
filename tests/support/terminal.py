"""A real terminal for tests: a program starts in it as a shell's foreground process would, and a person types."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest


class Terminal:
    """A pseudo terminal with one program, which is the leader of its session."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], *, cwd: Path = Path()):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(command[0], [*command], env)
        self.resize(24, 80)

    def expect(self, pattern: str) -> re.Match[str]:
        """Read until ``pattern`` has come; what came before it is forgotten."""
        end = time.monotonic() + 60
        while not (found := re.search(pattern, self.seen)):
            if time.monotonic() > end:
                pytest.fail(f"{pattern!r} did not come; the terminal shows {self.seen!r}")
            self._read(0.1)
        self.seen = self.seen[found.end() :]
        return found

    def _read(self, seconds: float) -> None:
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")
            except OSError:
                time.sleep(0.05)  # nobody has the other side open

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self.fd)

    def wait(self) -> int:
        """The exit code; what the program still prints is read, or it could not end."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            self._read(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        pytest.fail(f"it did not end; the terminal shows {self.seen!r}")
