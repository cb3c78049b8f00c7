"""``px sandbox audit`` of a real sandbox, without a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from px.home import Home
from px.platforms import host_architecture
from px.sandbox.layers.base import load_base_lock
from tests.support.advisories import OPENSSL, tracker, vex
from tests.support.px import run_px

pytestmark = pytest.mark.network


def audit(project: Path, *args: str | Path, code: int) -> dict[str, Any]:
    done = run_px("sandbox", "audit", "--json", "--offline", *args, cwd=project, check=False)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    details: dict[str, Any] = json.loads(done.stdout)["details"]
    return details


def test_known_bad_versions_are_found_and_ignored_with_a_reason(project: Path, kept: Home, tmp_path: Path) -> None:
    run_px("sync", "--sandbox", cwd=project)
    # libpq5 is built from postgresql-15; px finds the name of the source in the sandbox itself.
    version = load_base_lock("debian-12", host_architecture()).packages["libpq5"].version
    data = tmp_path / "tracker.json"
    bad = {"status": "resolved", "fixed_version": version + "+newer", "urgency": "high"}
    good = {"status": "resolved", "fixed_version": version, "urgency": "high"}
    data.write_text(json.dumps(tracker("postgresql-15", CVE_2026_0001=bad, CVE_2026_0002=good)))
    osv = tmp_path / "osv"
    osv.mkdir()
    (osv / "DSA.json").write_text(json.dumps(OPENSSL))  # fixed long ago

    (found,) = audit(project, "--advisories", data, "--advisories", osv, code=1)["findings"]
    assert (found["id"], found["fixed"]) == ("CVE-2026-0001", version + "+newer")
    assert found["subject"]["binaries"] == ["libpq5"]

    shown = run_px(
        "sandbox",
        "audit",
        "--offline",
        "--advisories",
        data,
        "--sarif",
        tmp_path / "out.sarif",
        cwd=project,
        check=False,
    )
    assert shown.returncode == 1
    assert "CVE-2026-0001  postgresql-15" in shown.stdout
    assert len(json.loads((tmp_path / "out.sarif").read_text())["runs"][0]["results"]) == 1

    ignore = tmp_path / "vex.json"
    reason = {"status": "not_affected", "impact_statement": "the server is not in the image"}
    ignore.write_text(json.dumps(vex({"vulnerability": {"name": "CVE-2026-0001"}, **reason})))
    details = audit(project, "--advisories", data, "--ignore", ignore, code=0)
    assert details["findings"] == []
    assert details["ignored"][0]["reason"] == "not_affected: the server is not in the image"

    assert run_px("sandbox", "audit", cwd=project, check=False).stderr.startswith("PX040")
    never = run_px("sandbox", "audit", "--offline", "--advisories", "https://example.org/x", cwd=project, check=False)
    assert never.stderr.startswith("PX951")
