"""Frozen projects and CI: nothing is resolved or built by a run, and what to do instead is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from px.home import Home
from tests.support.px import run_px, snapshot

FROZEN = pytest.mark.parametrize("how", [{"flags": ["--frozen"]}, {"CI": "true"}], ids=["--frozen", "CI"])


@FROZEN
def test_a_run_demands_the_sandbox_and_says_how_to_get_it(plain: Path, warm: Home, how: dict[str, Any]) -> None:
    flags: list[str] = how.get("flags", [])
    env = {"CI": how["CI"]} if "CI" in how else {}
    before = snapshot(plain, ignore=())
    for command in ("run", "test"):
        done = run_px(command, *flags, "--sandbox", "python", "-c", "pass", cwd=plain, check=False, **env)
        assert done.returncode == 121
        assert f"`px {command} --sandbox` cannot run: the project needs building (NeedsEnv)." in done.stderr
        assert "px sync --sandbox --frozen" in done.stderr
        assert snapshot(plain, ignore=()) == before
    run_px("sync", "--sandbox", *flags, cwd=plain, **env)
    assert run_px("run", *flags, "--sandbox", "python", "-c", "print(1)", cwd=plain, **env).stdout == "1\n"
    assert snapshot(plain) == {k: v for k, v in before.items() if not k.startswith(".px")}


@FROZEN
def test_a_lock_that_is_behind_is_not_made_anew(plain: Path, warm: Home, how: dict[str, Any]) -> None:
    flags: list[str] = how.get("flags", [])
    env = {"CI": how["CI"]} if "CI" in how else {}
    run_px("sync", "--sandbox", cwd=plain)
    manifest = plain / "pyproject.toml"
    manifest.write_text(manifest.read_text().replace('version = "1.2.3"', 'version = "2.0"'))
    before = snapshot(plain)
    for command in (["run", "--sandbox", "python"], ["sync", "--sandbox"], ["sandbox", "explain"]):
        done = run_px(*command, *flags, cwd=plain, check=False, **env) if command[0] != "run" else run_px(
            "run", *flags, *command[1:], cwd=plain, check=False, **env
        )  # fmt: skip
        assert done.returncode == 121, done.stderr
        assert "development machine" in done.stderr
    for command in (["sandbox", "add", "magic"], ["sandbox", "remove", "magic"]):
        assert run_px(*command, *flags, cwd=plain, check=False, **env).stderr.startswith("PX011")
    assert snapshot(plain) == before


def test_in_development_a_run_builds_but_does_not_lock(plain: Path, warm: Home) -> None:
    manifest = plain / "pyproject.toml"
    manifest.write_text(manifest.read_text().replace('version = "1.2.3"', 'version = "2.0"'))
    before = snapshot(plain)
    done = run_px("run", "--sandbox", "python", "-c", "pass", cwd=plain, check=False)
    assert done.returncode == 121
    assert "px sync --sandbox" in done.stderr
    assert snapshot(plain) == before
    run_px("sync", "--sandbox", cwd=plain)
    code = "import importlib.metadata as m; print(m.version('plain-project'))"
    assert run_px("run", "--sandbox", "python", "-c", code, cwd=plain).stdout == "2.0\n"


def test_status_shows_the_sandbox_target(plain: Path, warm: Home) -> None:
    def sandbox() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run_px("status", "--json", cwd=plain).stdout)["details"]["sandbox"]
        return found

    assert sandbox()["state"] == "NeedsEnv"
    assert "px sync --sandbox" in run_px("status", cwd=plain).stdout
    run_px("sync", "--sandbox", cwd=plain)
    assert sandbox()["state"] == "Consistent"
    shown = run_px("status", cwd=plain).stdout
    assert "sandbox  up to date" in shown
    assert "python3.11 of debian-12" in shown
    assert "host     needs building" in shown  # neither target needs the other
