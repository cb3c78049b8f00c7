"""Fixtures that every test may use: a fresh px home, and one that keeps downloads between runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from px.home import Home
from px.store.objects import Store
from tests.support import needs

REPO = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """Make tests and fixtures of every scope independent of the shell that started them.

    px does not lock where CI is set; ``tests.support.needs`` hears of it from PX_CI, in each of xdist's processes.
    Programs that were started in the background, or with nohup, ignore signals, and so would what they start.
    """
    if needs.IN_CI:
        os.environ["PX_CI"] = "1"
    for name in ("CI", "PX_ENGINE", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH"):
        os.environ.pop(name, None)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("network") is not None:
        needs.need("a package index", "a Debian mirror")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    needs.judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    needs.judge(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """What this machine left untested, at the very end, where nobody can miss it."""
    yield
    stats = terminalreporter.stats
    if lines := needs.summary([*stats.get("skipped", ()), *stats.get("failed", ()), *stats.get("error", ())]):
        terminalreporter.section("not tested on this machine", yellow=True, bold=True)
        terminalreporter.write_line("\n".join(lines))


@pytest.fixture(autouse=True)
def _clean_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No test sees the developer's own px home."""
    monkeypatch.delenv("PX_CI", raising=False)
    monkeypatch.setenv("PX_HOME", str(tmp_path / "px-home"))
    # On a busy machine anything may take longer than two seconds: tests compare what px says to the letter.
    monkeypatch.setenv("PX_PATIENCE", "3600")
    # Programs that the tests start keep files for their user in places that another user may have made first.
    if "XDG_RUNTIME_DIR" not in os.environ:  # skopeo would use /run, which is root's
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty px home that dies with the test."""
    return Home(tmp_path / "px-home")


@pytest.fixture
def store(home: Home) -> Store:
    return Store(home)


@pytest.fixture(scope="session")
def warm_home() -> Home:
    """A px home that outlives the run, for tests that need many megabytes and do not care who fetched them."""
    return Home(Path(os.environ.get("PX_TEST_HOME", REPO / ".make" / "px-home")))
