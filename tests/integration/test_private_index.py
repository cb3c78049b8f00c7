"""Private indexes: what uv is configured with works, and the password goes nowhere but into requests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.index import serving
from tests.support.px import UV, run_px

SECRET = "s3cr3t-w0rd"


@pytest.fixture(params=["url", "variables", "netrc"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_credentials_work_and_stay_out_of_sight(
    app: Path, wheelhouse: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with serving(wheelhouse, SECRET) as index:
        if how == "url":
            monkeypatch.setenv("UV_DEFAULT_INDEX", index.url_with("reader", SECRET))
        elif how == "variables":
            monkeypatch.setenv("UV_DEFAULT_INDEX", f"private={index.url}")
            monkeypatch.setenv("UV_INDEX_PRIVATE_USERNAME", "reader")
            monkeypatch.setenv("UV_INDEX_PRIVATE_PASSWORD", SECRET)
        else:
            monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
            (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login reader password {SECRET}\n")
            (tmp_path / "netrc").chmod(0o600)
        synced = run_px("sync", "--debug", cwd=app)
        run_px("run", "python", "-c", "import hello", cwd=app)
        index.gone.add("ns_one-1.0-py3-none-any.whl")
        failed = run_px("add", "--debug", "ns-one", cwd=app, check=False)
    assert "PX201" in failed.stderr
    for done in (synced, failed):
        assert SECRET not in done.stdout + done.stderr
    searched = [Path(os.environ["PX_HOME"]), app]
    found = subprocess.run(["grep", "-rl", SECRET, *searched], capture_output=True, text=True, check=False)
    assert found.stdout == ""


def test_a_wrong_password_says_what_to_check(
    app: Path, wheelhouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("NETRC", "/dev/null")
    with serving(wheelhouse) as open_index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", open_index.url)
        subprocess.run([UV, "lock", "-q"], cwd=app, check=True)
        open_index.password = SECRET
        done = run_px("sync", cwd=app, check=False)
    assert "PX201" in done.stderr
    assert "401" in done.stderr
    assert "credentials" in done.stderr
    assert not (app / ".px").exists()
