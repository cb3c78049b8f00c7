"""When an env is stale, what px says about it, and what it notices of an image that was touched."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from px.home import Home
from px.store.tree import remove_tree
from tests.support.px import run_px

PRINT = ("run", "--sandbox", "python", "-c", "print('ran')")


def states(root: Path) -> tuple[str, str, str]:
    found = json.loads(run_px("status", "--json", cwd=root).stdout)["details"]
    return found["host"]["state"], found["sandbox"]["state"], found["sandbox"]["reason"]


def append(root: Path, text: str) -> None:
    manifest = root / "pyproject.toml"
    manifest.write_text(f"{manifest.read_text()}\n{text}\n")


def test_only_what_counts_makes_an_env_stale(plain: Path, warm: Home) -> None:
    run_px("sync", cwd=plain)
    run_px("sync", "--sandbox", cwd=plain)
    append(plain, "# a comment\n[tool.ruff]\nline-length = 90")
    assert states(plain)[:2] == ("Consistent", "Consistent")
    assert run_px("sync", cwd=plain, CI="1").stderr == "plain-project: already up to date\n"
    # The image has nothing of what pack leaves out.
    append(plain, '[tool.px.sandbox]\nexclude = ["*.md"]')
    assert states(plain)[:2] == ("Consistent", "Consistent")
    run_px("sandbox", "add", "magic", cwd=plain)
    host, sandbox, reason = states(plain)
    assert (host, sandbox) == ("Consistent", "NeedsEnv")
    assert reason == "[tool.px.sandbox] changed after the env was built."
    subprocess.run(["git", "init", "-q"], cwd=plain, check=True)
    refused = run_px("pack", "image", cwd=plain, check=False)
    assert "[tool.px.sandbox] changed after the env was built." in refused.stderr


def test_the_reason_names_what_changed(plain: Path, warm: Home) -> None:
    run_px("sync", "--sandbox", cwd=plain)
    append(plain, '[tool.setuptools.package-data]\nx = ["*"]')
    assert states(plain)[2] == "pyproject.toml changed after the env was built."
    run_px("sync", "--sandbox", cwd=plain)
    with (plain / "uv.lock").open("a") as lock:
        lock.write("\n")
    assert states(plain)[2] == "uv.lock changed after the env was built."


def test_a_consistent_project_says_what_it_uses(plain: Path, warm: Home) -> None:
    append(plain, "[tool.px.sandbox.capabilities]\nmagic = true")
    run_px("sync", "--sandbox", cwd=plain)
    said = run_px("-v", *PRINT, cwd=plain).stderr
    for line in ("base: debian-12 (", "capabilities: magic\n", ": in the store"):
        assert line in said


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"sbx_id": "0"}'])
def test_a_manifest_that_is_not_ours_is_noticed(plain: Path, own: Home, content: str) -> None:
    run_px("sync", "--sandbox", cwd=plain)
    manifest = next((own.sandbox / "images").glob("*/manifest.json"))
    before = json.loads(manifest.read_text())
    manifest.write_text(content)
    done = run_px(*PRINT, cwd=plain)
    assert done.stdout == "ran\n"
    assert f"warning: {manifest} is not what px made there" in done.stderr
    assert json.loads(manifest.read_text())["sbx_id"] == before["sbx_id"]
    assert run_px(*PRINT, cwd=plain).stderr == ""


def test_a_layer_that_was_replaced_is_noticed(plain: Path, own: Home) -> None:
    """The warm path sees another directory, the full look reads it; a good copy of it will do."""
    made = json.loads(run_px("sync", "--sandbox", "--json", cwd=plain).stdout)["details"]
    layers = json.loads((own.sandbox / "images" / made["sbx_id"] / "manifest.json").read_text())["layers"]
    env = own.objects / "layer" / layers[-1]["oid"]
    env.chmod(0o755)
    (env / "tree").rename(env / "old")
    subprocess.run(["cp", "-a", env / "old", env / "tree"], check=True)
    assert run_px(*PRINT, cwd=plain, CI="1").stderr == "", "the same files in another directory"
    remove_tree(env / "tree")
    (env / "tree/opt").mkdir(parents=True)
    done = run_px(*PRINT, cwd=plain)
    assert done.stdout == "ran\n"
    assert f"warning: {env / 'tree'} is not what px made there" in done.stderr
