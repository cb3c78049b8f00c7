"""px's HTTP client where there is nobody to answer."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from px import console
from px.http import Download, FetchError, Http
from px.project.uv import environment
from tests.support.needs import only_for


def test_a_server_that_cannot_be_reached_is_given_up_soon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/file"
        console.configure(level=console.DEBUG, color=False)
        try:
            with pytest.raises(FetchError) as caught:
                Http().fetch(Download(url, "0" * 64), tmp_path / "file")
        finally:
            console.configure(level=console.NORMAL, color=None)
    assert caught.value.unreachable
    assert "trying again" not in capsys.readouterr().err


def test_uv_does_not_wait_for_a_network_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        only_for("root", "unit tests of other users run beside a network")
    assert environment()["UV_HTTP_RETRIES"] == "0"
    monkeypatch.setenv("UV_HTTP_RETRIES", "7")
    assert environment()["UV_HTTP_RETRIES"] == "7"
