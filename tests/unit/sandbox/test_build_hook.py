"""What runs inside the builder sandbox, tried outside of it: which sources look like C, and compiling on all cores."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import threading
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

from px.sandbox.build import hook as build_hook


@pytest.mark.parametrize(
    ("files", "more"),
    [
        ({"setup.py": "setup()", "a.c": "", "a.h": "", "README": "C++ is not needed"}, False),
        ({"setup.py": "libraries=['pq']", "x/module.pyx": "cdef int a"}, False),
        ({"setup.py": "", "deep/down/a.cpp": ""}, True),
        ({"setup.py": "Extension(..., language='c++')"}, True),
        ({"pyproject.toml": "[tool.cffi]\nflags = ['-flto']"}, True),
        ({"x/module.pyx": "# distutils: language = C++"}, True),
        ({"setup.py": "", "vendor/CMakeLists.txt": ""}, True),
        ({"setup.py": "", "vendor/configure": ""}, True),
    ],
)
def test_sources(files: dict[str, str], more: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_hook, "SOURCE", str(tmp_path))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert build_hook.is_more_than_c() is more


def sdist(folder: Path, name: str, files: dict[str, bytes]) -> str:
    path = folder / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
            for inside, content in files.items():
                z.writestr(inside, content)
    else:
        with tarfile.open(path, "w:gz") as t:
            for inside, content in files.items():
                member = tarfile.TarInfo(inside)
                member.size = len(content)
                t.addfile(member, io.BytesIO(content))
    return str(path)


@pytest.mark.parametrize("name", ["a-1.tar.gz", "a-1.zip"])
def test_unpacking_has_an_end(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    monkeypatch.setattr(build_hook, "SOURCE", str(source))
    archive = sdist(tmp_path, name, {"a-1/setup.py": b"x", "a-1/zeros": bytes(1 << 20)})
    for bounds in ((1, 1 << 30), (100, 1 << 19)):
        with pytest.raises(SystemExit, match="too large"):
            build_hook.unpack(archive, *bounds)
        assert sum(p.stat().st_size for p in source.rglob("*") if p.is_file()) <= 1
    build_hook.unpack(archive, 2, (1 << 20) + 1)
    assert (source / "zeros").stat().st_size == 1 << 20


class Compiler:
    """As much of setuptools' compiler as the hook touches."""

    def __init__(self, bad: frozenset[str] = frozenset()):
        self.bad, self.done = bad, list[str]()
        self.entered, self.gate = threading.Semaphore(0), threading.Event()

    def compile(self, sources: list[str], note: str = "") -> list[str]:
        for source in sources:
            self._compile(source, note)
        return [source + ".o" for source in sources]

    def _compile(self, source: str, note: str) -> None:
        raise NotImplementedError

    def run(self, command: str) -> None:
        if command.startswith("wait"):
            self.entered.release()
            self.gate.wait()
        self.done.append(command)
        if command in self.bad:
            raise RuntimeError(command)


@pytest.fixture(params=["call", "spawn"])
def unix(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A compiler whose method that starts a program has one of the names that setuptools gave it."""

    class UnixCCompiler(Compiler):
        def _compile(self, source: str, note: str) -> None:
            getattr(self, request.param)(source + note)

    setattr(UnixCCompiler, request.param, Compiler.run)
    module: Any = types.ModuleType("distutils.unixccompiler")
    module.UnixCCompiler = UnixCCompiler
    for name in ("distutils", "setuptools"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "distutils.unixccompiler", module)
    build_hook.compile_side_by_side()
    return UnixCCompiler


def test_all_sources_are_compiled_and_named_in_order(unix: Any) -> None:
    compiler = unix()
    assert compiler.compile(["a", "b", "c"], note="!") == ["a.o", "b.o", "c.o"]
    assert sorted(compiler.done) == ["a!", "b!", "c!"]


def test_a_package_that_counts_its_files_is_compiled_side_by_side_too(unix: Any) -> None:
    """psycopg2 wraps the method that compiles one file."""
    compiler, counted = unix(), list[str]()
    one = compiler._compile

    def count(source: str, note: str) -> None:
        one(source, note)
        counted.append(source)

    compiler._compile = count
    held = [f"wait{n}" for n in range(len(os.sched_getaffinity(0)))]
    thread = threading.Thread(target=compiler.compile, args=(held,))
    thread.start()
    try:
        for _ in held:
            assert compiler.entered.acquire(timeout=60), "they wait for one another"
    finally:
        compiler.gate.set()
        thread.join()
    assert counted == held
    assert sorted(compiler.done) == sorted(held)


def test_extensions_that_share_a_compiler_wait_for_their_own_files_only(unix: Any) -> None:
    """Pillow builds its extensions in threads, with one compiler object."""
    compiler = unix()
    held = [f"wait{n}" for n in range(len(os.sched_getaffinity(0)) + 1)]
    other = threading.Thread(target=compiler.compile, args=(held,))
    other.start()
    try:
        compiler.entered.acquire()
        assert compiler.compile(["alone"]) == ["alone.o"]
        assert compiler.compile(["a", "b"]) == ["a.o", "b.o"]
        assert sorted(compiler.done) == ["a", "alone", "b"]
    finally:
        compiler.gate.set()
        other.join()
    assert sorted(compiler.done) == sorted(["a", "alone", "b", *held])


def test_a_failure_is_repeated_one_by_one(unix: Any) -> None:
    compiler = unix(bad=frozenset("b"))
    with pytest.raises(RuntimeError, match="b"):
        compiler.compile(["a", "b", "c"])
    assert compiler.done[3:] == ["a", "b"]


def test_a_compiler_that_was_changed_is_left_alone(unix: Any) -> None:
    class Own(unix):  # type: ignore[misc]
        def call(self, command: str) -> None:
            assert len(self.done) == int(command)
            self.run(command)

        spawn = call

    assert len(Own().compile([str(n) for n in range(50)])) == 50
