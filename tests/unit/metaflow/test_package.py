"""What makes the start of a remote task quick: compiled modules in its package, and the package fetched by address."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from metaflow_extensions.sandbox.plugins.remote import bytecode, metadata, runner
from metaflow_extensions.sandbox.plugins.remote.task import task_script
from metaflow_extensions.sandbox.plugins.sandbox_cli import _command_index


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.setenv("PX_HOME", str(tmp_path / "home"))
    bytecode.compiled_modules.cache_clear()
    found = {name: Path(path) for path, name in bytecode.compiled_modules()}
    bytecode.compiled_modules.cache_clear()
    return found


def test_modules_have_the_names_that_python_looks_for(modules: dict[str, Path]) -> None:
    tag = sys.implementation.cache_tag
    assert f"metaflow/__pycache__/__init__.{tag}.pyc" in modules
    assert f"metaflow_extensions/sandbox/plugins/remote/__pycache__/runner.{tag}.pyc" in modules
    assert len(set(modules.values())) == len(modules)


def test_compiled_modules_are_used_whatever_the_time_of_the_source(tmp_path: Path) -> None:
    """Packages change times; the compiled file must count all the same, so here the source has other code."""
    source = tmp_path / "one.py"
    source.write_text("answer = 'compiled'\n")
    cache = tmp_path / "cache"
    cache.mkdir()
    file = bytecode._compiled(source, "one.py", cache)
    assert bytecode._compiled(source, "one.py", cache) == file
    target = Path(importlib.util.cache_from_source(str(source), optimization=""))
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(file.read_bytes())
    source.write_text("answer = 'source'\n")
    program = "import one; print(one.answer, one.__file__)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["compiled", str(source)]
    assert bytecode._compiled(source, "one.py", cache) != file, "another source is another file"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "package").write_bytes(b"content" * 1000)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_package_is_fetched_by_its_address(address: str, tmp_path: Path) -> None:
    content = (tmp_path / "package").read_bytes()
    runner.fetch(f"{address}/package", hashlib.sha1(content).hexdigest(), str(tmp_path / "job.tar"))
    assert (tmp_path / "job.tar").read_bytes() == content


@pytest.mark.parametrize("path", ["package", "missing"])
def test_what_is_not_the_package_is_left_to_metaflows_own_command(address: str, tmp_path: Path, path: str) -> None:
    runner.fetch(f"{address}/{path}", "0" * 40, str(tmp_path / "job.tar"))
    assert not (tmp_path / "job.tar").exists()


@pytest.mark.parametrize("fetched", [True, False])
def test_metaflows_own_download_is_for_where_the_package_is_not_there(tmp_path: Path, fetched: bool) -> None:
    state, work = tmp_path / "state", tmp_path / "work"
    state.mkdir()
    work.mkdir()
    if fetched:
        (state / "job.tar").write_text("by the runner")
    download = "echo 'by Metaflow' > job.tar"
    script = task_script([f"mflog 'Downloading' && {download}"], download, [], "cat job.tar", "azure")
    environment = {"PX_STATE": str(state), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", script], cwd=work, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[1] == ("by the runner" if fetched else "by Metaflow")


def test_credential_files_are_where_their_variables_say(tmp_path: Path) -> None:
    """The runner writes them under the names of the variables; without the file there is no variable."""
    (tmp_path / "GOOGLE_APPLICATION_CREDENTIALS").write_text("{}")
    step = 'echo "$GOOGLE_APPLICATION_CREDENTIALS ${AZURE_CLIENT_CERTIFICATE_PATH-none} $METAFLOW_EXTRACTED_ROOT"'
    script = task_script(["export METAFLOW_EXTRACTED_ROOT=."], "true", [], step, "gs")
    environment = {"PX_STATE": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(tmp_path / "GOOGLE_APPLICATION_CREDENTIALS"), "none", str(tmp_path)]


def test_where_metaflows_own_options_end() -> None:
    argv = ["flow.py", "--with", "sandbox", "--quiet", "sandbox", "step", "start", "--run-id", "1"]
    assert _command_index(argv) == 4


def test_a_record_that_vanishes_is_not_missed(tmp_path: Path) -> None:
    """Other tasks of the run rename theirs while this one's are collected."""
    (tmp_path / "here").write_text("{}")
    packed = metadata._tar({"here": tmp_path / "here", "gone": tmp_path / "gone"})
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert tar.getnames() == ["here"]
