"""px's HTTP client where there is nobody to answer."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from px import console, online
from px.http import Download, FetchError, Http, _reason
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


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "SECONDS", 0.05)


@pytest.mark.usefixtures("quick")
def test_name_servers_that_say_nothing() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        assert online.are_silent([server.getsockname()])
        assert [server.recv(512)[2:], server.recv(512)[2:]] == [online.QUESTION] * online.TRIES
        where = server.getsockname()
    assert not online.are_silent([where]), "nobody is there, so nobody is waited for"
    assert not online.are_silent([])


def test_a_name_server_that_says_anything() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def refuse() -> None:
            server.sendto(b"no", server.recvfrom(512)[1])

        thread = threading.Thread(target=refuse)
        thread.start()
        assert not online.are_silent([server.getsockname()])
        thread.join()


def test_which_name_servers_are_asked(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text(
        "# nameserver 1.1.1.1\nnameserver\nnameserver here\nnameserver ::1\noptions x\nnameserver 127.0.0.1\n"
    )
    assert online.name_servers(str(file)) == ["::1", "127.0.0.1"]
    assert online.name_servers(str(tmp_path / "none")) == []


def test_hosts_that_need_no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "names_are_silent", lambda: True)
    online.is_lost.cache_clear()
    assert [online.is_lost(host) for host in ("127.0.0.1", "::1", "localhost")] == [False] * 3
    assert online.is_lost("mirror.example.org")
    with pytest.raises(FetchError, match="no name server answers") as caught:
        Http().request("GET", "http://mirror.example.org/")
    assert caught.value.unreachable
    online.is_lost.cache_clear()


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "9" * 400])
def test_a_timeout_that_is_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str) -> None:
    monkeypatch.setenv("PX_HTTP_TIMEOUT", text)
    assert (Http()._read, Http()._read) == (60, 60)
    assert capsys.readouterr().err.count("is not a number of seconds") == 1


def test_a_refused_connection_is_said_in_plain_words() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        at = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(FetchError) as caught:
            Http().get(f"http://{at}/")
    assert caught.value.reason == f"{at}: Failed to establish a new connection: Connection refused"


@pytest.mark.parametrize("said", ["certificate has expired", "certificate is not yet valid"])
def test_a_clock_that_may_be_wrong_is_shown(said: str) -> None:
    reason = _reason(ssl.SSLCertVerificationError(1, f"certificate verify failed: {said}"))
    assert reason.endswith(f"; the clock of this machine says {time.strftime('%Y-%m-%d')}")
    assert "clock" not in _reason(ssl.SSLCertVerificationError(1, "self-signed certificate"))
