"""Images in the store: found again, made again when damaged, refused when they are of another format; and logged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from px.debian.lock import file_name
from px.home import Home
from px.platforms import host_architecture
from px.sandbox.layers.base import SHIPPED
from px.store.tree import remove_tree
from tests.support.px import log_of, run_px


def manifest_of(home: Home, root: Path) -> Path:
    details = json.loads(run_px("sandbox", "explain", "--json", cwd=root).stdout)["details"]
    return Path(home.sandbox, "images", details["sbx_id"], "manifest.json")


def layers(manifest: Path) -> dict[str, tuple[str, str]]:
    return {row["what"]: (row["kind"], row["oid"]) for row in json.loads(manifest.read_bytes())["layers"]}


@pytest.mark.parametrize(
    "what", ["env", *(pytest.param(w, marks=pytest.mark.slow) for w in ("base", "bytecode", "system"))]
)
def test_a_layer_that_is_gone_is_made_again(database: Path, own: Home, what: str) -> None:
    run_px("run", "--sandbox", "python", "-c", "pass", cwd=database)
    path = manifest_of(own, database)
    kind, oid = layers(path)[what]
    before = path.read_bytes()
    remove_tree(own.objects / kind / oid)
    done = run_px("run", "--sandbox", "python", "-c", "import psycopg2; print('whole')", cwd=database)
    assert done.stdout == "whole\n"
    assert (own.objects / kind / oid / "payload.json").is_file()
    assert json.loads(path.read_bytes())["layers"] == json.loads(before)["layers"]
    assert run_px("store", "verify", cwd=database).stdout.endswith("all whole\n")


def test_a_manifest_that_is_gone_or_cut_off_is_made_again(plain: Path, own: Home) -> None:
    run_px("run", "--sandbox", "true", cwd=plain)
    path = manifest_of(own, plain)
    path.unlink()
    run_px("run", "--sandbox", "true", cwd=plain)
    whole = json.loads(path.read_bytes())
    path.write_text('{"sbx_id": ')
    run_px("sync", "--sandbox", "--force", cwd=plain)
    again = json.loads(path.read_bytes())
    assert {k: v for k, v in again.items() if k != "created_at"} == {
        k: v for k, v in whole.items() if k != "created_at"
    }


def test_the_record_knows_what_px_itself_knew(
    plain: Path, own: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_px("sync", "--sandbox", cwd=plain)
    copied = tmp_path / "bases"
    shutil.copytree(SHIPPED, copied)
    monkeypatch.setenv("PX_BASES", str(copied))
    run_px("run", "--frozen", "--sandbox", "true", cwd=plain)
    # Other bytes may mean other packages: an image that was made with the old ones is not this px's.
    lock = copied / file_name("debian-12", host_architecture())
    lock.write_text(lock.read_text() + "\n")
    refused = run_px("run", "--frozen", "--sandbox", "true", cwd=plain, check=False)
    assert "px sync --sandbox --frozen" in refused.stderr
    run_px("run", "--sandbox", "true", cwd=plain)
    run_px("run", "--frozen", "--sandbox", "true", cwd=plain)


def test_an_image_of_another_format_is_refused(plain: Path, own: Home) -> None:
    run_px("run", "--sandbox", "true", cwd=plain)
    path = manifest_of(own, plain)
    raw = json.loads(path.read_bytes())
    path.write_text(json.dumps(raw | {"sbx_version": 99}))
    done = run_px("sync", "--sandbox", "--force", cwd=plain, check=False)
    assert done.returncode == 125
    assert done.stderr.startswith("PX904")
    assert "it is version 99" in done.stderr
    remove_tree(own.sandbox)  # "clear the sandbox store and rerun"
    assert run_px("run", "--sandbox", "echo", "again", cwd=plain).stdout == "again\n"
    assert json.loads(path.read_bytes())["sbx_version"] == raw["sbx_version"]


def test_decisions_and_cache_hits_are_logged(database: Path, own: Home, tmp_path: Path) -> None:
    run_px("run", "--sandbox", "true", cwd=database)
    log = log_of(database).read_text()
    for said in (
        "base: debian-12 (the default)",
        "capability postgres: added; lock: psycopg2",
        "needs libpq.so.5",
        "not there, making it",
        "link check:",
        "in the store",
    ):
        assert said in log, said
    shown = run_px("sync", "--sandbox", "--force", "-v", cwd=database).stderr
    assert "capability postgres: added" in shown
    assert "in the store" in shown
    assert "capability postgres" not in run_px("sync", "--sandbox", "--force", cwd=database).stderr


def test_what_is_used_is_not_collected(plain: Path, own: Home) -> None:
    run_px("run", "--sandbox", "true", cwd=plain)
    path = manifest_of(own, plain)
    run_px("store", "gc", "--grace", "0", cwd=plain)
    assert path.is_file()
    done = run_px("run", "--sandbox", "plain-cli", cwd=plain, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "one\n", "")
    elsewhere = path.parents[3]
    remove_tree(plain)
    run_px("store", "gc", "--grace", "0", cwd=elsewhere)
    assert not path.exists()
