"""uv as a sandbox with another C library starts it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from px.errors import PxError
from px.project.uv import find_uv
from px.sandbox import uv_program as module
from px.sandbox.uv_program import _needs, uv_program
from tests.support.elf import make_elf


def test_on_glibc_it_is_started_as_it_is() -> None:
    command, mounts = uv_program(on_musl=False)
    assert [m.source for m in mounts] == [find_uv()]
    assert command == [mounts[0].target]


def test_on_musl_it_brings_its_own_libraries(tmp_path: Path) -> None:
    """The command line of the sandbox, with its paths replaced by those of this machine, starts uv."""
    command, mounts = uv_program(on_musl=True)
    places = {m.target: str(m.source) for m in mounts}
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for target, source in places.items():
        (libraries / Path(target).name).symlink_to(source)
    here = [str(libraries) if word == "/run/px/uv-libraries" else places.get(word, word) for word in command]
    assert subprocess.run([*here, "--version"], capture_output=True, check=True, text=True).stdout.startswith("uv ")
    assert all(m.read_only for m in mounts)


def test_a_static_program_needs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "uv"
    program.write_bytes(make_elf())
    monkeypatch.setattr(module, "find_uv", lambda: str(program))
    command, mounts = uv_program(on_musl=True)
    assert (command, len(mounts)) == (["/run/px/uv"], 1)


def test_a_loader_that_does_not_work(tmp_path: Path) -> None:
    program = tmp_path / "uv"
    program.write_bytes(make_elf("libgone.so.1", interpreter="/bin/false"))
    with pytest.raises(PxError, match="cannot be found"):
        _needs(str(program))
