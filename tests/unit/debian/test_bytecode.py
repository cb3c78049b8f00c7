"""Compiling modules: what goes wrong on the way is called by its name."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from px.debian.bytecode import Compiler, _compile


class ThisPython(Compiler):
    """The interpreter of the tests, which needs no base."""

    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", "-B"]


def test_a_full_disk_is_not_a_failed_build(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("A = 1\n")
    compiler = ThisPython(tmp_path, "amd64", "3.11")
    assert _compile(compiler, [("a.py", source)], tmp_path / "0.pycs").stat().st_size > 0
    with pytest.raises(OSError, match="No space left") as caught:
        _compile(compiler, [("a.py", source)], Path("/dev/full"))
    assert caught.value.errno == errno.ENOSPC
