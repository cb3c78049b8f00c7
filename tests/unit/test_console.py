"""What px says while it works: sizes, counts, and what it waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from px import console


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Patience of no time, so that no test waits."""
    monkeypatch.setenv("PX_PATIENCE", "0")
    monkeypatch.setattr(console, "_TICK", 0.001)
    monkeypatch.setattr(console, "_LINES", (3600.0,))
    console.configure(level=console.NORMAL, color=False)
    yield
    monkeypatch.delenv("PX_PATIENCE")
    console.configure(level=console.NORMAL, color=None)


class Said:
    """A standard error that tells when something was written."""

    def __init__(self) -> None:
        self.text = ""
        self.event = threading.Condition()

    def write(self, text: str) -> None:
        with self.event:
            self.text += text
            self.event.notify_all()

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False

    def wait_for(self, text: str) -> None:
        with self.event:
            assert self.event.wait_for(lambda: text in self.text, timeout=30), self.text[-500:]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    found = Said()
    # Not sys.stderr itself, which pytest puts in its place again before the test begins.
    monkeypatch.setattr(console, "sys", SimpleNamespace(stderr=found))
    return found


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (34_567, "34.6 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (81_500_000, "81.5 MB"),
        (999_960_000, "1.0 GB"),
        (4_500_000_000, "4.5 GB"),
    ],
)
def test_sizes_can_be_read(number: int, text: str) -> None:
    assert console.size(number) == text


@pytest.mark.parametrize("text", ["", "-1", "nan", "1e9", "two", "12345678901234567890"])
def test_patience_that_is_no_time_is_two_seconds(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PX_PATIENCE", text)
    console.configure(level=console.NORMAL, color=False)
    assert console.settings.patience == 2.0


def test_counts_and_times_can_be_read() -> None:
    assert console.counted(1, "package") == "1 package"
    assert console.counted(0, "package") == "0 packages"
    assert console.counted(2, "sandbox", "sandboxes") == "2 sandboxes"
    assert [console.duration(s) for s in (0.04, 9.94, 42, 185)] == ["0.0 s", "9.9 s", "42 s", "3 min 5 s"]


def test_a_long_wait_says_what_it_is_for_and_how_long_it_has_been(said: Said) -> None:
    with console.waiting("Waiting for uv lock"):
        said.wait_for("Waiting for uv lock … 0.")
    assert said.text.count("\n") == 1  # without a terminal: once, and then after ten seconds


def test_what_waits_for_a_lock_says_so_at_once(said: Said) -> None:
    with console.waiting("Waiting for another px process", at_once=True):
        assert "Waiting for another px process …" in said.text


def test_a_bar_goes_on_speaking_when_nothing_arrives(said: Said) -> None:
    bar = console.progress("Downloading 2 packages", 4_000_000)
    bar.advance(1_000_000)
    with bar:
        said.wait_for("Downloading 2 packages: 1.0 MB of 4.0 MB, 0.")
        bar.advance(3_000_000)
    assert said.text.splitlines()[-1].startswith("Downloading 2 packages: 4.0 MB in ")


def test_a_bar_of_nothing_counts_no_bytes(said: Said) -> None:
    with console.progress("Fetching 1 package", 0):
        pass
    assert said.text.splitlines()[-1].startswith("Fetching 1 package: done in ")


def test_on_a_terminal_the_line_is_taken_away_again(said: Said) -> None:
    console.settings.bars = True
    with console.waiting("Building psycopg2 2.9"):
        said.wait_for("\r\x1b[2KBuilding psycopg2 2.9 … 0.")
    assert said.text.endswith("\r\x1b[2K")
    assert console.settings.shown is None


def test_quiet_waits_in_silence(said: Said) -> None:
    console.configure(level=console.QUIET, color=False)
    with console.waiting("Waiting", at_once=True), console.progress("Fetching", 1):
        pass
    assert said.text == ""


def test_what_a_server_says_cannot_steer_the_terminal() -> None:
    assert console.waiting("it says \x1b[2J\r\nbye").describe() == "it says ?[2J??bye … 0.0 s"


def test_a_password_in_an_address_is_not_shown(said: Said) -> None:
    with console.waiting("Waiting for https://me:secret@example.org/x"):
        said.wait_for("example.org")
    assert "secret" not in said.text


def test_no_thread_is_left_and_many_may_wait_at_once(said: Said) -> None:
    def wait(number: int) -> None:
        for _ in range(20):
            with console.waiting(f"Waiting for {number}"):
                pass

    threads = [threading.Thread(target=wait, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not [t for t in threading.enumerate() if t.name == "px-clock"]
