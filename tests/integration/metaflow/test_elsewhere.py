"""``--environment=px`` on AWS Batch, on Kubernetes and on Argo Workflows, beside ``--with sandbox``.

AWS Batch is localbatch.  No Kubernetes can run on a test machine: for @kubernetes a stand-in takes the job that
Metaflow submits (:mod:`tests.servers.pods`), and for Argo Workflows the test takes the containers of the workflow that
Metaflow compiles.  Image, command and environment are always Metaflow's, and a real Docker engine runs them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from px.home import Home

from .cluster import Cluster, running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.network]
ARTIFACTS = ("libpq", "total", "pip", "python", "installer")


@pytest.fixture(scope="module")
def cluster(sandbox_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(sandbox_home, tmp_path_factory.mktemp("cluster")) as found:
        yield found


def facts(cluster: Cluster, run: str) -> dict[str, Any]:
    """What a run left: artifacts of its first step, and where its tasks say they ran."""
    task = f"Run('{run}')['start'].task"
    values = ", ".join(f"'{name}': {task}.data.{name}" for name in ARTIFACTS)
    places = f"'images': sorted({{t.metadata_dict.get('sandbox-image') for s in Run('{run}') for t in s}})"
    return dict(cluster.ask(f"{{{values}, {places}, 'end': Run('{run}')['end'].task.data.total}}"))


def latest(cluster: Cluster, flow: str = "ElsewhereFlow") -> str:
    return str(cluster.ask(f"Flow('{flow}').latest_run.pathspec"))


def test_one_sandbox_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    cluster.run("elsewhere.py", "run", "--with", "sandbox")
    here = facts(cluster, latest(cluster))
    assert here["images"] == [cluster.sbx_id()]
    cluster.run("elsewhere.py", "--environment=px", "run", "--with", "batch")
    assert facts(cluster, latest(cluster)) == here
    assert cluster.ask(f"Run('{latest(cluster)}')['start'].task.metadata_dict['sandbox-backend']") == "batch"
    assert cluster.ask(f"Run('{latest(cluster)}')['start'].task.environment_info")["sbx_id"] == here["images"][0]
    cluster.run("elsewhere.py", "--environment=px", "run", "--with", "kubernetes")
    assert facts(cluster, latest(cluster)) == here
    assert cluster.ask(f"Run('{latest(cluster)}')['start'].task.metadata_dict['sandbox-backend']") == "kubernetes"
    assert facts(cluster, argo_run(cluster, tmp_path)) == here


def argo_run(cluster: Cluster, folder: Path) -> str:
    """Run the containers of a compiled workflow one after the other, and say which run they are."""
    done = cluster.run("elsewhere.py", "--environment=px", "argo-workflows", "create", "--only-json")
    document = json.JSONDecoder().raw_decode(done.output[done.output.index("\n{") :].strip())[0]
    templates = {t["name"]: t for t in document["spec"]["templates"]}
    filled = {"workflow.name": "elsewhere-1", "workflow.creationTimestamp": "2020-01-01T00:00:00Z"}
    for task in next(t for t in templates.values() if "dag" in t)["dag"]["tasks"]:
        given = {p["name"]: p["value"] for p in task["arguments"]["parameters"]}
        values = filled | {f"inputs.parameters.{name}": fill(value, filled) for name, value in given.items()}
        container = templates[task["template"]]["container"]
        env = {row["name"]: fill(row["value"], values) for row in container["env"] if "value" in row}
        out = folder / task["name"]
        out.mkdir()
        out.chmod(0o777)
        command = [fill(word, values) for word in container["command"]]
        cluster.container([f"--volume={out}:/mnt/out"], container["image"], command, env)
        filled[f"tasks.{task['name']}.outputs.parameters.task-id"] = (out / "task_id").read_text().strip()
    return "ElsewhereFlow/argo-elsewhere-1"


def fill(text: str, values: dict[str, str]) -> str:
    return re.sub(r"{{([^}]+)}}", lambda found: values[found[1].strip()], str(text))


def test_only_what_is_new_is_pushed(cluster: Cluster) -> None:
    """Counted at the registry: after a run, after another one, after a code edit, after one more package."""
    deploy = ("--environment=px", "argo-workflows", "create", "--only-json")
    cluster.run("elsewhere.py", *deploy)
    assert pushed(cluster, *deploy) == {}
    cluster.project.write("shape.py", "SIDES = 4\n")
    cluster.project.commit()
    edit = pushed(cluster, *deploy)
    assert len(edit) == 3, "a layer, the image's config, and the bill of materials"
    assert sum(edit.values()) < 150_000
    assert min(edit.values()) < 100_000
    cluster.project.px("add", "--sandbox", "iniconfig", **cluster.env)
    cluster.project.px("pack", "image", "--metaflow", "s3", "--allow-dirty", **cluster.env)
    cluster.project.commit()
    more = pushed(cluster, *deploy)
    assert len(more) == 4, "the env's own layer as well; that of numpy, the base and what tasks need stay"
    assert sum(more.values()) < 3_000_000


def pushed(cluster: Cluster, *args: str) -> dict[str, int]:
    """The blobs that came to the registry with a command, and their sizes."""
    before = cluster.registry.uploaded()
    cluster.run("elsewhere.py", *args)
    blobs = cluster.registry.storage / "docker/registry/v2/blobs/sha256"
    new = [digest.removeprefix("sha256:") for digest in cluster.registry.uploaded()[len(before) :]]
    return {digest: (blobs / digest[:2] / digest / "data").stat().st_size for digest in new}
