"""Messages, warnings and progress bars.  All of them go to standard error.

Standard output belongs to data, such as ``--json``, and to the target of ``px run``.  The messages can be read without
colour, and bars appear on a terminal only.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

QUIET, NORMAL, VERBOSE, DEBUG = range(4)


class Settings:
    """How much px says, and how.  The command line sets this once."""

    level = NORMAL
    color = False
    bars = False
    log: Path | None = None
    shown: Progress | None = None
    """The bar that is on the screen.  There is room for one: other work at the same time has none."""


settings = Settings()
_lock = threading.Lock()
# To the start of the line, then erase it.
_CLEAR = "\r\x1b[2K"


def redact(text: str) -> str:
    """Remove user names, passwords and tokens from every URL in ``text``."""
    if "://" not in text:
        return text
    text = re.sub(r"([a-z][a-z0-9+.-]*://)[^/@\s]+@", r"\1", text, flags=re.IGNORECASE)
    # Signed addresses (S3 has them, for example) carry their secret in the query.
    query = r"([?&][^=&\s]*(?:token|signature|credential|key|secret|password)[^=&\s]*=)[^&\s]+"
    return re.sub(query, r"\1***", text, flags=re.IGNORECASE)


def configure(*, level: int, color: bool | None) -> None:
    terminal = sys.stderr.isatty()
    # https://no-color.org: the variable counts when it is set, whatever its value.
    if color is None:
        color = terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    settings.level = level
    settings.color = color
    settings.bars = terminal and not in_ci() and level >= NORMAL and os.environ.get("TERM") != "dumb"


def in_ci() -> bool:
    """Whether px runs in a CI service, which sets ``CI``.  Nobody watches a bar there."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def paint(text: str, style: str) -> str:
    codes = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
    return f"\x1b[{codes[style]}m{text}\x1b[0m" if settings.color else text


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _say(text: str, level: int) -> None:
    text = redact(text)
    if settings.level >= level:
        with _lock:
            # The bar draws itself again below the message.
            sys.stderr.write(f"{_CLEAR if settings.shown else ''}{text}\n")
            sys.stderr.flush()
    if settings.log is not None:
        _log(text)


def _log(text: str) -> None:
    if settings.log is None:
        return
    try:
        with settings.log.open("a", encoding="utf-8") as f:
            f.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
    except OSError:
        settings.log = None  # a log that cannot be written must not stop the work


def info(text: str) -> None:
    _say(text, NORMAL)


def detail(text: str) -> None:
    """Decisions and cache hits.  Shown with ``-v``; always written to the project's log."""
    _say(text, VERBOSE)


def debug(text: str) -> None:
    _say(text, DEBUG)


def warn(text: str) -> None:
    _say(f"{paint('warning', 'yellow')}: {text}", QUIET)


class Progress:
    """A progress bar.  Without a terminal there is only one line, when the work ends."""

    def __init__(self, label: str, total: int, unit: str):
        self.label, self.total, self.unit = label, total, unit
        self.done = 0
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._drawn = 0.0
        self._finished = False

    def advance(self, amount: int) -> None:
        with self._lock:
            self.done += amount
            now = time.monotonic()
            # Ten times a second is enough for the eye; work shorter than 0.2 s needs no bar.
            if settings.bars and now - self._drawn >= 0.1 and now - self._started >= 0.2 and self._may_draw():
                self._drawn = now
                self._draw()

    # Downloads and unpacking run at the same time, each with a bar: the first one that draws keeps the line.
    def _may_draw(self) -> bool:
        with _lock:
            if settings.shown is None:
                settings.shown = self
            return settings.shown is self

    def _amount(self, n: int) -> str:
        return f"{n / 1e6:.1f} MB" if self.unit == "B" else f"{n} {self.unit}".rstrip()

    def _draw(self) -> None:
        width = 24
        share = min(1.0, self.done / self.total) if self.total else 0.0
        bar = "━" * int(width * share) + " " * (width - int(width * share))
        # Some package indexes do not say how large their files are: then there is no total.
        of = f" / {self._amount(self.total)}" if self.total else ""
        with _lock:
            sys.stderr.write(f"{_CLEAR}{self.label} {bar if self.total else '…'} {self._amount(self.done)}{of}")
            sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    # After an error there is no last line: the error itself says what happened.
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._clear()
        if error is None:
            self.finish()

    def finish(self) -> None:
        """Say that the work is done.  Needed where it is done before the ``with`` block ends."""
        self._clear()
        if not self._finished:
            self._finished = True
            _say(f"{self.label}: {self._amount(self.done)} in {time.monotonic() - self._started:.1f} s", NORMAL)

    def _clear(self) -> None:
        with _lock:
            if settings.shown is self:
                settings.shown = None
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()


def progress(label: str, total: int, unit: str = "B") -> Progress:
    """Show the progress of ``total`` bytes (or another unit).  The last line says how long it took."""
    return Progress(label, total, unit)
