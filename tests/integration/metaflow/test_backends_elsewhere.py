"""A backend of another package: a distribution with an entry point, found by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Server, Workspace
from .test_local import artifacts

MODULE = """
from metaflow_extensions.sandbox.plugins.backends.{kind} import {base}

class AcmeBackend({base}):
    name = "acme"
    provider = "Acme"
    keys = ("ACME_KEY", *{base}.keys)

    def load(self):
        import {kind}
        return {kind}

    def check(self, config):
        pass

def broken():
    raise RuntimeError("on purpose")
"""
ENTRY_POINTS = "[px.metaflow_backends]\nacme = acme_px:AcmeBackend\nbroken = acme_px:broken\n"
BASES = {"e2b": "E2BBackend", "daytona": "DaytonaBackend"}


@pytest.fixture
def package(tmp_path: Path, fresh: Server) -> str:
    """What pip would install, in a directory of its own."""
    root = tmp_path / "site"
    information = root / "acme_px-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-px\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    (root / "acme_px.py").write_text(MODULE.format(kind=fresh.kind, base=BASES[fresh.kind]))
    return str(root)


def test_a_flow_at_a_backend_of_another_package(
    workspace: Workspace, fresh: Server, s3: dict[str, str], package: str
) -> None:
    env = {**s3, **fresh.env, "METAFLOW_SANDBOX_LEASE_SECONDS": "1800", "PYTHONPATH": package}
    workspace.run("ends.py", "run", "--with", "sandbox:backend=acme", **env)
    assert artifacts(workspace, "EndsFlow", "start", ["where"], **s3) == {"where": "acme"}


def test_its_key_never_crosses_and_its_failures_are_told(
    workspace: Workspace, fresh: Server, s3: dict[str, str], package: str
) -> None:
    env = {**s3, "PYTHONPATH": package}
    named = {"METAFLOW_SANDBOX_FORWARD": "MINE,ACME_KEY"}
    done = workspace.fail("ends.py", "run", "--with", "sandbox:backend=acme", **env, **named)
    assert "export METAFLOW_SANDBOX_FORWARD=MINE" in done.output
    done = workspace.fail("ends.py", "run", "--with", "sandbox:backend=broken", **env)
    assert "acme-px" in done.output
    assert "on purpose" in done.output
    assert "Traceback" not in done.output
    done = workspace.fail("ends.py", "run", "--with", "sandbox:backend=acmee", **env)
    assert "there are local, daytona, e2b, acme, broken" in done.output
