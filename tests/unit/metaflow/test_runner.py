"""The runner inside a remote sandbox, started here as a plain process: whatever the task does, its end is told."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from metaflow_extensions.sandbox.plugins.remote import runner
from metaflow_extensions.sandbox.plugins.remote.task import TaskSpec, runner_file
from metaflow_extensions.sandbox.plugins.sandbox_executor import MARK


def run(
    tmp_path: Path, script: str, *, largest_file: int | None = None, time_limit: int = 0
) -> tuple[dict[str, object], list[str], str]:
    """The record of the task's end, what else it said, and its errors."""
    file = tmp_path / "runner.py"
    file.write_bytes(runner_file(TaskSpec(script, {}, time_limit=time_limit), {}, str(tmp_path / "state")))

    def limit() -> None:
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    done = subprocess.run(
        [sys.executable, "-I", "-S", str(file), "run"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=limit,
    )
    *lines, last, _ = done.stdout.split("\n")  # MARK itself ends a line for splitlines()
    assert last.startswith(MARK), done.stderr
    return json.loads(last[len(MARK) :]), lines, done.stderr


def test_the_end_of_a_task(tmp_path: Path) -> None:
    record, lines, errors = run(tmp_path, "echo out; echo err >&2; exit 7")
    assert record == {"exit": 7, "metadata": ""}
    assert [line.partition("]")[2] for line in lines] == ["out"]
    assert errors.endswith("]err\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"this is no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    ],
)
def test_a_code_package_that_cannot_be_fetched_is_left_to_metaflow(tmp_path: Path, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        runner.fetch(f"http://127.0.0.1:{server.getsockname()[1]}/job", "sha", str(tmp_path / "job.tar"))
        thread.join()
    assert not (tmp_path / "job.tar").exists()


def test_metadata_of_any_length(tmp_path: Path) -> None:
    script = 'head -c 9000 /dev/zero | tr "\\0" x > "$PX_STATE/metadata"'
    assert run(tmp_path, script)[0] == {"exit": 0, "metadata": "x" * 9000}


def test_metadata_for_which_there_is_no_room_is_left_out(tmp_path: Path) -> None:
    """The file may not grow that far: a part of the record is written, and must not be read as the whole."""
    script = """head -c 40000 /dev/zero | tr "\\0" '"' > "$PX_STATE/metadata"; exit 4"""
    assert run(tmp_path, script, largest_file=1 << 16)[0] == {"exit": 4}


def test_a_task_without_a_log_ends_at_its_time_limit(tmp_path: Path) -> None:
    record, _, _ = run(tmp_path, f'rm -rf "{tmp_path}"/*; sleep 600', time_limit=1)
    assert record["exit"] == 1


def test_a_task_that_kills_what_watches_over_it_has_failed(tmp_path: Path) -> None:
    record, _, errors = run(tmp_path, "kill -9 $PPID; sleep 60")
    assert record == {"exit": 1}
    assert "was killed" in errors


def test_a_task_that_removes_all_files_keeps_its_exit_code(tmp_path: Path) -> None:
    record, lines, _ = run(tmp_path, f'rm -rf "{tmp_path}"/*; echo after; exit 5')
    assert record["exit"] == 5
    assert [line.partition("]")[2] for line in lines] == ["after"]


@pytest.mark.parametrize("stream", [1, 2])
def test_a_task_goes_on_when_its_log_cannot_grow(tmp_path: Path, stream: int) -> None:
    """A file that may not grow stands for a disk that is full: more lines than a pipe holds, and still an exit code."""
    record, _, _ = run(
        tmp_path, f"for i in $(seq 20000); do echo line $i >&{stream}; done; exit 6", largest_file=1 << 16
    )
    assert record["exit"] == 6
