"""A project on AWS Batch, Kubernetes and Argo Workflows, at E2B and Daytona, beside ``--with sandbox``.

AWS Batch is localbatch.  No Kubernetes can run on a test machine: for @kubernetes a stand-in takes the job that
Metaflow submits (:mod:`tests.servers.pods`), and for Argo Workflows the test takes the containers of the workflow that
Metaflow compiles.  Image, command and environment are always Metaflow's, and a real Docker engine runs them.  E2B and
Daytona are the conformance servers.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from px.home import Home
from tests.support.offline import no_network

from .cluster import LOCAL, Cluster, fill, hand_made, running_cluster
from .conftest import serving

pytestmark = [pytest.mark.slow, pytest.mark.network]
FETCH = """
from metaflow.datastore import FlowDataStore
from metaflow.metadata_provider.util import sync_local_metadata_from_datastore
from metaflow.plugins import DATASTORES
impl = next(d for d in DATASTORES if d.TYPE == "s3")
store = FlowDataStore("ElsewhereFlow", None, storage_impl=impl, ds_root=impl.get_datastore_root_from_config(print))
for step, task in {tasks}:
    found = store.get_task_datastore("argo-elsewhere-1", step, task)
    sync_local_metadata_from_datastore(".metaflow", found)
"""
PROVIDERS = ("e2b", "daytona")
ARTIFACTS = ("libpq", "total", "pip", "python", "installer")


@pytest.fixture(scope="module")
def cluster(sandbox_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(sandbox_home, tmp_path_factory.mktemp("cluster")) as found:
        yield found


def facts(cluster: Cluster, run: str, before: str = "", **env: str) -> dict[str, Any]:
    """What a run left: artifacts of its first step, and where its tasks say they ran."""
    task = f"Run('{run}')['start'].task"
    values = ", ".join(f"'{name}': {task}.data.{name}" for name in ARTIFACTS)
    places = f"'images': sorted({{t.metadata_dict.get('sandbox-image') for s in Run('{run}') for t in s}})"
    return dict(cluster.ask(f"{{{values}, {places}, 'end': Run('{run}')['end'].task.data.total}}", before, **env))


def latest(cluster: Cluster, flow: str = "ElsewhereFlow") -> str:
    return str(cluster.ask(f"Flow('{flow}').latest_run.pathspec"))


@pytest.fixture(scope="module")
def here(cluster: Cluster) -> dict[str, Any]:
    """What a run on this machine left, without a registry."""
    cluster.run("elsewhere.py", "--environment=px", "run", "--with", "sandbox", METAFLOW_SANDBOX_REGISTRY="")
    found = facts(cluster, latest(cluster))
    assert found["images"] == [cluster.sbx_id()]
    return found


@pytest.mark.parametrize("where", ["batch", "kubernetes", "argo", "e2b", "daytona"])
def test_one_sandbox_everywhere(
    cluster: Cluster, here: dict[str, Any], where: str, sandbox_home: Home, tmp_path: Path
) -> None:
    """The same artifacts and one ``sbx_id``; tasks reach S3, the metadata service and the registry, nothing else."""
    if where == "argo":
        run, tasks = argo_run(cluster, tmp_path)
        assert facts(cluster, run, FETCH.format(tasks=tasks), **LOCAL) == here
        return
    if where in PROVIDERS:
        at_provider(cluster, where, sandbox_home)
    else:
        cluster.run("elsewhere.py", "--environment=px", "run", "--with", where)
    assert facts(cluster, latest(cluster)) == here
    task = f"Run('{latest(cluster)}')['start'].task"
    assert cluster.ask(f"{task}.metadata_dict['sandbox-backend']") == where
    if where not in PROVIDERS:
        assert cluster.ask(f"{task}.environment_info")["sbx_id"] == here["images"][0]


def at_provider(cluster: Cluster, kind: str, home: Home) -> None:
    """A run at a conformance server, which pulls the project's image from the cluster's registry."""
    with ExitStack() as stack:
        with no_network():
            server = stack.enter_context(serving(kind, home))
        cluster.run("elsewhere.py", "run", "--with", kind, **server.env)


def argo_run(cluster: Cluster, folder: Path) -> tuple[str, list[tuple[str, str]]]:
    """Run the containers of a compiled workflow one after the other; the run that they are, and its tasks."""
    templates = cluster.workflow("elsewhere.py", "--environment=px")
    filled = {"workflow.name": "elsewhere-1", "workflow.creationTimestamp": "2020-01-01T00:00:00Z"}
    tasks: list[tuple[str, str]] = []
    for task in next(t for t in templates.values() if "dag" in t)["dag"]["tasks"]:
        given = {p["name"]: p["value"] for p in task["arguments"]["parameters"]}
        values = filled | {f"inputs.parameters.{name}": fill(value, filled) for name, value in given.items()}
        name = task["name"]
        tasks.append((name, cluster.argo_task(templates[task["template"]], values, folder / name)))
        filled[f"tasks.{name}.outputs.parameters.task-id"] = tasks[-1][1]
    return "ElsewhereFlow/argo-elsewhere-1", tasks


def test_step_functions_and_airflow_get_the_same_image(cluster: Cluster, tmp_path: Path) -> None:
    reference = cluster.workflow("elsewhere.py", "--environment=px")["start"]["container"]["image"]
    # moto plays the rest of AWS.
    aws = {"AWS_ENDPOINT_URL": cluster.env["METAFLOW_S3_ENDPOINT_URL"]}
    role = cluster.env["METAFLOW_ECS_S3_ACCESS_IAM_ROLE"]
    aws |= {"METAFLOW_SFN_IAM_ROLE": role, "METAFLOW_EVENTS_SFN_ACCESS_IAM_ROLE": role}
    create = ("--environment=px", "step-functions", "create", "--only-json")
    cluster.run("elsewhere.py", *create, **aws, **LOCAL)
    assert reference in cluster.batch_images()
    cluster.run("elsewhere.py", "--environment=px", "airflow", "create", str(tmp_path / "dag.py"), **LOCAL)
    assert (tmp_path / "dag.py").read_text().count(reference) >= 2


def test_a_pod_is_ended_from_inside(cluster: Cluster) -> None:
    """Metaflow runs this in a pod when the run is interrupted (kubernetes_job.py); the stand-in has no exec."""
    reference = cluster.workflow("elsewhere.py", "--environment=px")["start"]["container"]["image"]
    task = "echo begun; python -c 'import time; time.sleep(600)' & sleep 600; exit $?"
    start = ["run", "--detach", "--network=host", "--entrypoint=bash", reference, "-c", task]
    container = cluster.engine.run(*start).stdout.strip()
    while "begun" not in cluster.engine.run("logs", container).stdout:
        time.sleep(0.1)
    # It may end with the container, before it can say how it went.
    cluster.engine.run("exec", container, "/bin/sh", "-c", "/sbin/killall5", check=False)
    assert cluster.engine.run("wait", container).stdout.strip() == "143"
    cluster.engine.run("rm", container)


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


# --- ends: as with an image that somebody made by hand ---------------------------------------------------------------


@pytest.fixture(scope="module", params=["px", "hand-made"])
def way(request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Way:
    """Two ways to the same tasks: the project's image, and one with the same packages that px has not made."""
    if request.param == "px":
        return Way(cluster, ("--environment=px",), "batch", 30)
    image = hand_made(cluster.engine, tmp_path_factory.mktemp("image"), ["numpy", "boto3", "requests"])
    return Way(cluster, (), f"batch:image={image}", 3)


@dataclass(frozen=True)
class Way:
    """How a run is started."""

    cluster: Cluster
    first: tuple[str, ...]
    with_: str
    width: int

    def words(self, *args: str) -> list[str]:
        return ["ends_elsewhere.py", *self.first, "run", "--with", self.with_, *args]


def test_retry_timeout_catch_and_a_wide_foreach(way: Way) -> None:
    # A test machine has few processors, and each task is a container and two processes here.
    way.cluster.run(*way.words("--how", "late", "--width", str(way.width), "--max-workers", "4"))
    run = f"Run('{latest(way.cluster, 'EndsElsewhereFlow')}')"
    found = way.cluster.ask(f"[{run}['again'].task.data.attempt, {run}['join'].task.data.squares, "
                            f"str({run}['late'].task.data.too_late), len(list({run}['wide']))]")  # fmt: skip
    assert found[0] == 1
    assert found[1] == [n * n for n in range(way.width)]
    assert "timed out after 0 hours, 0 minutes, 61 seconds" in found[2]
    assert found[3] == way.width


@pytest.mark.parametrize(("how", "said"), [("raise", "ValueError: on purpose"), ("exit", "Step failure")])
def test_a_step_that_fails(way: Way, how: str, said: str) -> None:
    done = way.cluster.flow(*way.words("--how", how))
    assert done.code == 1
    assert said in done.output
    assert "Step start (task-id" in done.output
    assert not way.cluster.ask(f"Run('{latest(way.cluster, 'EndsElsewhereFlow')}').successful")


def test_an_interrupted_run_leaves_no_container(way: Way) -> None:
    process = way.cluster.popen(*way.words("--how", "sleep"))
    assert process.stdout is not None
    for line in process.stdout:
        if "asleep" in line:
            break
    else:
        raise AssertionError("the task never began")
    assert way.cluster.containers()
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode != 0
    deadline = time.monotonic() + 60
    while way.cluster.containers():
        assert time.monotonic() < deadline
        time.sleep(0.2)
