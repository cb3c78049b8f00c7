"""Messages, warnings and progress bars.  All of them go to standard error.

Standard output belongs to data, such as ``--json``, and to the target of ``px run``.  The messages can be read without
colour, and bars appear on a terminal only.
"""

from __future__ import annotations

import bisect
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
    patience = 2.0
    """After so many seconds px says what it waits for."""
    log: Path | None = None
    shown: Work | None = None
    """What has the last line of the screen.  There is room for one: other work at the same time has none."""


def _patience(text: str) -> float:
    return float(text) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) else Settings.patience


settings = Settings()
# Metaflow's extension uses px as a library, and never comes to `configure`.
settings.patience = _patience(os.environ.get("PX_PATIENCE", ""))
_lock = threading.Lock()
# To the start of the line, then erase it.
_CLEAR = "\r\x1b[2K"


def redact(text: str) -> str:
    """Remove user names, passwords and tokens from every URL in ``text``."""
    if "://" not in text:
        return text
    text = re.sub(r"([a-z][a-z0-9+.-]*://)[^/\s]+@", r"\1", text, flags=re.IGNORECASE)
    # Signed addresses (S3 has them, for example) carry their secret in the query.
    query = r"([?&][^=&\s]*(?:token|signature|credential|key|secret|password)[^=&\s]*=)[^&\s]+"
    return re.sub(query, r"\1***", text, flags=re.IGNORECASE)


def printable(text: str) -> str:
    """A server's words without what would steer the terminal."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)


def configure(*, level: int, color: bool | None) -> None:
    terminal = sys.stderr.isatty()
    # https://no-color.org: the variable counts when it is set, whatever its value.
    if color is None:
        color = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    settings.level = level
    settings.patience = _patience(os.environ.get("PX_PATIENCE", ""))
    settings.color = color
    settings.bars = terminal and not in_ci() and level >= NORMAL and os.environ.get("TERM") != "dumb"


def in_ci() -> bool:
    """Whether px runs in a CI service, which sets ``CI``.  Nobody watches a bar there."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def paint(text: str, style: str, to: str = "stderr") -> str:
    """Colour for one of the two outputs, if that one is a terminal."""
    codes = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
    return f"\x1b[{codes[style]}m{text}\x1b[0m" if settings.color and getattr(sys, to).isatty() else text


def counted(number: int, noun: str, several: str = "") -> str:
    """A number of things: ``1 package``, ``3 packages``."""
    return f"{number} {noun if number == 1 else several or noun + 's'}"


def size(number: int) -> str:
    """A number of bytes, so that it can be read: ``812 bytes``, ``3.4 kB``, ``12.1 MB``."""
    if number < 1000:
        return counted(number, "byte")
    value, unit = number / 1000, "kB"
    # Not 1000.0 kB: what would be rounded up to that is 1.0 MB.
    for larger in ("MB", "GB", "TB"):
        if value >= 999.95:
            value, unit = value / 1000, larger
    return f"{value:.1f} {unit}"


def duration(seconds: float) -> str:
    """How long something took: ``0.4 s``, ``42 s``, ``3 min 5 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


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


# --- work that takes time ---------------------------------------------------------------------------------------------

_TICK = 0.5
# Without a terminal there is a line when patience ends, and then fewer and fewer of them.
_LINES = (10.0, 30.0, 60.0)


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


class Work:
    """Something that px waits for: named on the screen, with the time that it has taken, while it goes on."""

    def __init__(self, label: str, *, at_once: bool = False):
        self.label = printable(label).replace("\n", "?")  # a server's words may be in it
        self.started = time.monotonic()
        self.patience = 0.0 if at_once else settings.patience
        self._said = 0

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    def describe(self) -> str:
        return f"{self.label} …" + (f" {duration(self.age)}" if self.age >= settings.patience else "")

    def tick(self) -> None:
        """Called twice a second, for the one that is to be seen."""
        if settings.bars:
            self.draw()
        elif settings.level >= NORMAL and self._is_due():
            _say(self.describe(), NORMAL)

    def draw(self) -> None:
        with _lock:
            if settings.shown is None:
                settings.shown = self
            if settings.shown is self:
                # A line that is wider than the screen could not be erased as a whole.
                sys.stderr.write(f"{_CLEAR}{redact(self.describe())[: _width() - 1]}")
                sys.stderr.flush()

    def _is_due(self) -> bool:
        # All that are due are said in one line: others may have had the word meanwhile.
        lines = (self.patience, *(line for line in _LINES if line > self.patience))
        due = bisect.bisect_right(lines, self.age) + max(0, int(self.age / _LINES[-1]) - 1)
        if self._said and due <= self._said:
            return False
        self._said = max(1, due)
        return True

    def clear(self) -> None:
        with _lock:
            if settings.shown is self:
                settings.shown = None
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()

    def __enter__(self) -> Self:
        if not self.patience:
            self.tick()
        _clock.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        _clock.remove(self)
        self.clear()


class _Clock:
    """Looks twice a second at what px waits for.  While that is nothing, there is no thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: list[Work] = []
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, work: Work) -> None:
        with self._lock:
            self._active.append(work)
            if self._thread is None:
                self._end = threading.Event()
                self._thread = threading.Thread(target=self._run, args=(self._end,), name="px-clock", daemon=True)
                self._thread.start()

    def remove(self, work: Work) -> None:
        with self._lock:
            if work in self._active:
                self._active.remove(work)
            ended, self._thread = (None, self._thread) if self._active else (self._thread, None)
            end = self._end
        # Joined: a process that forks, or becomes its target, has no thread that it does not know of.
        if ended is not None:
            end.set()
            ended.join()

    def _run(self, end: threading.Event) -> None:
        while not end.wait(_TICK):
            with self._lock:
                # A bar says more than a wait; of several, the newest is what px waits for now.
                bars = [work for work in self._active if isinstance(work, Progress)]
                chosen = (bars or self._active or [None])[-1]
            if chosen is not None and chosen.age >= chosen.patience:
                chosen.tick()


def waiting(label: str, *, at_once: bool = False) -> Work:
    """Say what px waits for during the block, and for how long: after two seconds, or at once."""
    return Work(label, at_once=at_once)


class Progress(Work):
    """A progress bar.  Without a terminal there are lines while it takes long, and one when the work ends."""

    def __init__(self, label: str, total: int, unit: str):
        super().__init__(label)
        self.total, self.unit = total, unit
        self.done = 0
        self._lock = threading.Lock()
        self._drawn = 0.0
        self._finished = False

    def advance(self, amount: int) -> None:
        with self._lock:
            self.done += amount
            now = time.monotonic()
            # Ten times a second is enough for the eye; work shorter than 0.2 s needs no bar.
            if settings.bars and now - self._drawn >= 0.1 and self.age >= 0.2 and not self._finished:
                self._drawn = now
                self.draw()

    def tick(self) -> None:
        if not self._finished:
            super().tick()

    def _amount(self, n: int) -> str:
        return size(n) if self.unit == "B" else counted(n, self.unit)

    def describe(self) -> str:
        # Some package indexes do not say how large their files are: then there is no total.
        of = f" of {self._amount(self.total)}" if self.total else ""
        time_taken = f", {duration(self.age)}" if self.age >= settings.patience else ""
        if not settings.bars:
            return f"{self.label}: {self._amount(self.done)}{of}{time_taken}"
        width = 24
        share = min(1.0, self.done / self.total) if self.total else 0.0
        bar = "━" * int(width * share) + " " * (width - int(width * share))
        return f"{self.label} {bar if self.total else '…'} {self._amount(self.done)}{of}{time_taken}"

    # After an error there is no last line: the error itself says what happened.
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        super().__exit__(kind, error, at)
        if error is None:
            self.finish()

    def finish(self) -> None:
        """Say that the work is done.  Needed where it is done before the ``with`` block ends."""
        _clock.remove(self)
        self.clear()
        if not self._finished:
            self._finished = True
            # Nothing was counted if everything was on this machine already.
            how_much = f"{self._amount(self.done)} in" if self.done else "done in"
            _say(f"{self.label}: {how_much} {duration(self.age)}", NORMAL)


_clock = _Clock()


def progress(label: str, total: int, unit: str = "B") -> Progress:
    """Show the progress of ``total`` bytes (or another unit).  The last line says how long it took."""
    return Progress(label, total, unit)
