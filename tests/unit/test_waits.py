"""Locks, programs and servers: whoever makes px wait is named, while the wait goes on.

Each test lets the other side go on only when px has said what it waits for.
"""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from px import process
from px.http import Http
from px.project import uv
from px.store.locks import acquire, collection, collection_off
from px.store.objects import Draft, Payload, Store
from tests.unit.test_console import Said, _quickly, said

__all__ = ["_quickly", "said"]


def test_a_lock_says_what_the_other_process_makes(store: Store, said: Said) -> None:
    fd = acquire(store.home.locks / "layer-x")
    assert fd is not None

    def wait() -> None:
        with store.lock("layer-x", "the env layer"):
            pass

    thread = threading.Thread(target=wait)
    thread.start()
    said.wait_for("Waiting for another px process that is making the env layer …")
    os.close(fd)
    thread.join()


def test_a_collection_and_a_reader_wait_for_each_other(store: Store, said: Said) -> None:
    def collect() -> None:
        with collection(store.home):
            pass

    thread = threading.Thread(target=collect)
    with collection_off(store.home):
        thread.start()
        said.wait_for("Waiting for a px process that is building …")
    thread.join()
    assert "Waiting for px store gc" not in said.text


def test_a_program_that_takes_long(tmp_path: Path, said: Said) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done: list[process.Finished] = []
    command = ["sh", "-c", f"read line <{pipe}; echo $line"]
    thread = threading.Thread(target=lambda: done.append(process.run(command, doing="Building psycopg2")))
    thread.start()
    said.wait_for("Building psycopg2 … ")
    pipe.write_text("ready\n")
    thread.join()
    assert done[0].stdout == "ready\n"


def test_a_server_that_does_not_answer(said: Said) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        found: list[bytes] = []
        thread = threading.Thread(target=lambda: found.append(Http().get(url)))
        thread.start()
        connection, _ = server.accept()
        with connection:
            said.wait_for("Waiting for 127.0.0.1 … ")
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            thread.join()
    assert found == [b"ok"]


def test_an_object_that_takes_long_to_make(store: Store, said: Said) -> None:
    def make(draft: Draft) -> Payload:
        said.wait_for("Making the env layer … ")
        return {"a": 1}

    store.ensure("layer", "key", make, label="the env layer")


@pytest.mark.parametrize(
    ("words", "doing"),
    [
        (["lock", "--check"], "Resolving what the project depends on (uv lock)"),
        (["pip", "install", "x"], "Installing what a build needs (uv pip install)"),
        (["export"], "Waiting for uv export"),
    ],
)
def test_what_uv_is_busy_with(words: list[str], doing: str) -> None:
    assert uv.doing(words) == doing
