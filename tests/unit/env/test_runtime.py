"""Tags and markers: those of this interpreter must be what packaging itself computes for it."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.tags import sys_tags

from px.env.runtime import Runtime, find_interpreter, probe
from px.errors import PxError
from px.home import Home
from px.project.context import Context
from px.store.objects import Store


def test_this_interpreter(home: Home) -> None:
    runtime = probe(home, Path(sys.executable)).runtime
    assert runtime.version == platform.python_version()
    assert dict(runtime.markers()) == dict(default_environment())
    assert [str(t) for t in runtime.tags()] == [str(t) for t in sys_tags()]


def test_the_answer_is_kept(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    first = probe(home, Path(sys.executable))
    monkeypatch.setattr("px.env.runtime._ask", lambda _: pytest.fail("asked twice"))
    assert probe(home, Path(sys.executable)) == first


def test_a_program_that_is_no_python(home: Home) -> None:
    with pytest.raises(PxError, match="PX205"):
        probe(home, Path("/bin/false"))


def test_tags_of_another_platform() -> None:
    arm = Runtime("3.11.2", "cp311", "Linux", "aarch64", "glibc-2.36")
    tags = [str(t) for t in arm.tags()]
    assert tags[:2] == ["cp311-cp311-linux_aarch64", "cp311-cp311-manylinux_2_36_aarch64"]
    assert "cp311-cp311-manylinux2014_aarch64" in tags
    assert "cp37-abi3-manylinux_2_17_aarch64" in tags
    assert "py3-none-any" in tags
    assert not any("manylinux1" in t or "x86_64" in t or "2_37" in t for t in tags)
    musl = Runtime("3.12.1", "cp312", "Linux", "x86_64", "musl-1.2")
    assert [str(t) for t in musl.tags()][1] == "cp312-cp312-musllinux_1_2_x86_64"


def test_identity_says_nothing_of_the_machine() -> None:
    one = Runtime("3.11.2", "cp311", "Linux", "x86_64", "glibc-2.36", "6.1.0", "#1 SMP")
    two = Runtime("3.11.2", "cp311", "Linux", "x86_64", "glibc-2.41", "6.12.0", "#2 SMP")
    assert one.payload() == two.payload()


@pytest.mark.parametrize(
    ("request_", "requires", "install"),
    [
        ("3.99", ">=3.11", "install 3.99"),
        ("/no/python", ">=3.98", "install '>=3.98'"),
        (None, ">=3.98", "install '>=3.98'"),
    ],
)
def test_a_python_that_is_not_here_names_one_to_install(
    home: Home, tmp_path: Path, request_: str | None, requires: str, install: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "app"\nrequires-python = "{requires}"\n')
    context = Context(Store(home, offline=True), tmp_path)
    with pytest.raises(PxError) as caught:
        find_interpreter(context, request_)
    assert f"uv python {install}" in str(caught.value)
