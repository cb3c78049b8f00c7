"""A px project's steps at E2B and Daytona stand on the project's image: its packages, its ``sbx_id``, no installation.

The providers are the conformance servers.  They pull the image from a registry and run it as it is.  The real E2B would
also install programs of its own into it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.registry import OciRegistry, running
from tests.support.px import PX

from .conftest import Server, Workspace
from .test_local import artifacts

MANIFEST = """
[project]
name = "shop"
version = "0.1"
requires-python = ">=3.11"
dependencies = ["numpy"]
[tool.px.sandbox]
base = "debian-12"
"""
FLOW = """
import os
from metaflow import FlowSpec, step

class ShopFlow(FlowSpec):
    @step
    def start(self):
        self.items = [1, 2, 3]
        self.next(self.work, foreach="items")

    @step
    def work(self):
        import numpy
        self.value = float(numpy.arange(1000.0).sum() * self.input)
        self.numpy = numpy.__version__, numpy.__file__
        self.boto3 = __import__("boto3").__file__
        self.skipped = os.environ.get("METAFLOW_SKIP_INSTALL_DEPENDENCIES")
        self.next(self.join)

    @step
    def join(self, inputs):
        self.total = sum(i.value for i in inputs)
        self.found = sorted({(*i.numpy, i.boto3.partition("boto3")[0], i.skipped) for i in inputs})
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    ShopFlow()
"""
BUILDS = ("POST /snapshots", "POST /v3/templates")
LATEST = "Flow('ShopFlow').latest_run"


@pytest.fixture
def registry() -> Iterator[OciRegistry]:
    with running() as found:
        yield found


@pytest.fixture
def shop(workspace: Workspace) -> Workspace:
    """A project that is in no repository: its image has nothing of the working tree."""
    (workspace.root / "pyproject.toml").write_text(MANIFEST)
    (workspace.root / "flow.py").write_text(FLOW)
    return workspace


def builds(server: Server) -> int:
    return sum(request in BUILDS for request in server.stats()["requests"])


@pytest.mark.slow
@pytest.mark.network
def test_the_same_sandbox_here_and_there(
    shop: Workspace, fresh: Server, s3: dict[str, str], registry: OciRegistry
) -> None:
    flow = str(shop.root / "flow.py")
    subprocess.run([PX, "sync", "--sandbox", "-q"], cwd=shop.root, env=shop.env, check=True)
    here = {**s3, "METAFLOW_SANDBOX_REGISTRY": f"{registry.host}/team", "METAFLOW_SANDBOX_REGISTRY_INSECURE": "1"}
    env = {**here, **fresh.env, "METAFLOW_SANDBOX_LEASE_SECONDS": "1800"}
    seen = []
    for backend in ("sandbox", fresh.kind):
        shop.run(flow, "run", "--with", backend, **env)
        found = artifacts(shop, "ShopFlow", "join", ["total", "found"], **s3)
        seen.append((found["total"], found["found"][0][:2], shop.ask(_ids(), **s3)))
    assert seen[0] == seen[1], "the same numbers, the same numpy, one sbx_id"
    assert found["found"][0][2:] == ["/opt/px/extra/", "1"], "what the datastore needs is in the image"
    (sbx_id,) = {sbx_id for _, sbx_id in seen[1][2]}
    (name,) = [name for name in fresh.stats()["templates"] if name.startswith(f"px-project-{sbx_id[:24]}-")]

    pushed, built = registry.count("PUT", ""), builds(fresh)
    Path(flow).write_text(FLOW + "# an edit\n")
    shop.run(flow, "run", "--with", fresh.kind, **env)
    assert (registry.count("PUT", ""), builds(fresh)) == (pushed, built), "an edit of the flow needs no new image"

    sized = f"{fresh.kind}:cpu=2,memory=2048"
    shop.run(flow, "run", "--with", sized, **env)
    assert (registry.count("PUT", ""), builds(fresh)) == (pushed, built + 1), "resources are the template's"
    assert len({t for t in fresh.stats()["templates"] if t.startswith(name[:35])}) == 2


def _ids() -> str:
    return f"sorted((s.id, t.metadata_dict['sandbox-image']) for s in {LATEST} for t in s)"


def test_a_project_without_a_registry(shop: Workspace, fresh: Server, s3: dict[str, str]) -> None:
    """Its packages would be missing there, so px says so before anything runs."""
    flow, created = str(shop.root / "flow.py"), fresh.stats()["created"]
    done = shop.fail(flow, "run", "--with", fresh.kind, **s3, **fresh.env)
    assert "export METAFLOW_SANDBOX_REGISTRY=" in done.output
    assert "METAFLOW_SANDBOX_IMAGE=" in done.output
    assert fresh.stats()["created"] == created
    shop.run(flow, "show", **s3)


def test_a_registry_that_is_down(shop: Workspace, fresh: Server, s3: dict[str, str]) -> None:
    """No run is left that has no task: Metaflow's client would take it for the latest one."""
    (shop.root / "pyproject.toml").write_text(MANIFEST.replace('"numpy"', ""))
    subprocess.run([PX, "sync", "-q"], cwd=shop.root, env=shop.env, check=True)
    down = {"METAFLOW_SANDBOX_REGISTRY": "127.0.0.1:1/team"}
    flow, args = str(shop.root / "flow.py"), ("run", "--with", fresh.kind)
    done = shop.fail(flow, *args, **s3, **fresh.env, **down)
    assert "Check that the registry is up" in done.output
    without_key = dict.fromkeys(fresh.env, "")
    assert "needs an API key" in shop.fail(flow, *args, **s3, **without_key, **down).output, "the registry is not asked"
    assert not list((shop.root / ".metaflow").glob("ShopFlow/*/_meta"))
