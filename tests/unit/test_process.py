"""Work in another process: beside what this one does, and over when that is."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from px.process import beside


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest may have threads of its own, which this work does not touch."""
    monkeypatch.setattr("px.process.threading.active_count", lambda: 1)


@pytest.mark.usefixtures("alone")
def test_the_work_is_done_by_another_process_before_the_block_is_left(tmp_path: Path) -> None:
    def work() -> None:
        time.sleep(0.2)
        (tmp_path / "pid").write_text(str(os.getpid()))

    with beside(work) as apart:
        assert not (tmp_path / "pid").exists()
    assert apart
    assert int((tmp_path / "pid").read_text()) != os.getpid()


@pytest.mark.usefixtures("alone")
def test_its_errors_are_nobodys(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The caller sees that nothing was done, and does it again."""
    with beside(lambda: (tmp_path / "missing" / "file").write_text("")):
        pass
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("alone")
def test_an_error_in_the_block_ends_the_work_which_tidies_up(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "draft").touch()
        try:
            time.sleep(600)
        finally:
            os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C comes twice
            (tmp_path / "draft").unlink()

    def interrupted() -> None:
        while not (tmp_path / "draft").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), beside(work):
        interrupted()
    assert not (tmp_path / "draft").exists()
    assert time.monotonic() - started < 300, "it waited for the work"


def test_a_process_with_threads_is_not_copied(tmp_path: Path) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with beside((tmp_path / "file").touch) as apart:
            assert not apart
        assert not (tmp_path / "file").exists()
    finally:
        over.set()
        thread.join()
