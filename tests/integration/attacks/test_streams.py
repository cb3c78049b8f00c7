"""A target gets the caller's streams, and nothing of the files behind them: each test was seen to succeed as an attack.

A descriptor of a file is a way to that file, whatever it was opened for: ``/proc/self/fd/0`` can be opened again for
writing, and its mode, times and attributes can be changed without opening it again.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.engines.conftest import Driver
from tests.integration.engines.conftest import box as _box
from tests.integration.engines.conftest import layers as _layers

box, layers = _box, _layers

SECRET = "what was there before\n"
# Every way to a file that a descriptor offers; each line that succeeds is said on the stream that is left.
ATTEMPTS = """
import fcntl, os, sys
fd = int(sys.argv[1])
say = open(int(sys.argv[2]), "w", closefd=False)
path = f"/proc/self/fd/{fd}"
def again(flags):
    # A pipe or a terminal is not the file: what is written there goes where the caller sent it anyway.
    import stat
    new = os.open(path, flags | os.O_NONBLOCK)
    return new if stat.S_ISREG(os.fstat(new).st_mode) or stat.S_ISDIR(os.fstat(new).st_mode) else None
def mode():
    import stat
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return None
    os.fchmod(fd, 0o777)
    return True
def write(flags):
    new = again(flags)
    return new is not None and os.pwrite(new, b"OVERWRITTEN", 0)
def read():
    new = again(os.O_RDONLY)
    return new is not None and os.pread(new, 100, 0)
for name, attack in {
    "write": lambda: write(os.O_WRONLY),
    "write both": lambda: write(os.O_RDWR),
    "read": read,
    "truncate": lambda: os.ftruncate(fd, 3) is None,
    "mode": mode,
    "times": lambda: os.path.exists(path) and mode() and os.utime(fd, (1, 1)) is None,
    "attribute": lambda: mode() and os.setxattr(path, "user.px", b"1") is None,
    "list": lambda: os.listdir(path),
    "escape": lambda: os.listdir(path + "/.."),
}.items():
    try:
        if attack():
            print(name, file=say)
    except OSError:
        pass
"""


def attack(box: Driver, fd: int, *, say: int, **streams: object) -> str:
    """Run every attempt on descriptor ``fd`` of the target, and return what it says on descriptor ``say``."""
    done = subprocess.run(
        box.command(("python3", "-c", ATTEMPTS, str(fd), str(say))),
        env=box.environment(),
        check=False,
        timeout=60,
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done
    said = done.stdout if say == 1 else done.stderr
    assert isinstance(said, bytes)
    return said.decode()


@pytest.fixture
def file(box: Driver) -> Path:
    """A file of the caller's that the sandbox does not see."""
    path = box.directory / "data"
    path.write_text(SECRET)
    path.chmod(0o640)
    os.chown(path, box.uid, box.uid)
    return path


def untouched(path: Path) -> bool:
    found = path.stat()
    return (path.read_text(), found.st_mode & 0o777, found.st_mtime != 1) == (SECRET, 0o640, True)


def test_a_file_on_standard_input_can_only_be_read_as_it_comes(box: Driver, file: Path) -> None:
    with file.open() as f:
        assert attack(box, 0, say=1, stdin=f) == ""
    assert untouched(file)


@pytest.mark.parametrize("number", [1, 2])
def test_a_file_that_output_is_added_to_keeps_what_it_has(box: Driver, file: Path, number: int) -> None:
    with file.open("a") as f:
        assert attack(box, number, say=3 - number, **{("stdout", "stderr")[number - 1]: f}) == ""
    assert untouched(file)


def test_both_outputs_in_one_file_keep_what_it_has(box: Driver, file: Path) -> None:
    with file.open("a") as f:
        code = ATTEMPTS.replace("say = open", "say = open(os.devnull, 'w') or open")
        command = box.command(("python3", "-c", code, "1", "2"))
        subprocess.run(command, env=box.environment(), stdin=subprocess.DEVNULL, stdout=f, stderr=f, check=True)
    assert untouched(file)


def test_a_file_on_another_descriptor_does_not_come_along(box: Driver, file: Path) -> None:
    with file.open("r+") as f:
        os.set_inheritable(f.fileno(), True)
        process = box.start("sh", "-c", "ls /proc/self/fd | wc -l", pass_fds=(f.fileno(),))
        out, _ = process.communicate(timeout=60)
    assert out.strip() == "4"  # three streams, and the directory that ls reads
