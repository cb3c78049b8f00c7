"""A cluster on loopback: AWS Batch and pods on a real Docker engine; with S3, a metadata service and a registry.

Everything is in a network namespace that has loopback and nothing else: what is not in an image cannot be installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from px.home import Home
from px.platforms import host_architecture
from px.sandbox.layers.apt import ensure_apt_layers
from px.sandbox.layers.base import ensure_base, load_base_lock
from px.store.objects import Store
from px.workflow.sandbox import bare_sandbox
from tests.conftest import REPO
from tests.integration.oci.registry_server import RunningRegistry, free_port, running_registry
from tests.integration.pack.projects import UV, Project
from tests.support.dockerd import DockerEngine, running_docker
from tests.support.needs import need
from tests.support.offline import no_network

from .conftest import FLOWS, Done, _clean, _finished, _started, _wait_for, metadata_service, s3_server

BASE = "debian-12"
MANIFEST = f"""\
[project]
name = "shapes"
version = "1"
requires-python = ">=3.11"
dependencies = ["numpy", "psycopg2"]
[tool.px.sandbox]
base = "{BASE}"
"""
QUEUE = "localbatch-default"
# The metadata service of the tests takes no ids of tasks that a scheduler has given. Without a service, tasks leave
# their metadata in the datastore, from where a client fetches it.
LOCAL = {"METAFLOW_DEFAULT_METADATA": "local"}
PATIENCE = 1800


@dataclass(frozen=True)
class Cluster:
    """What a user of the cluster has."""

    project: Project
    registry: RunningRegistry
    engine: DockerEngine
    env: dict[str, Any]
    credentials: dict[str, str]
    """What the nodes have: a role, or a secret."""

    def popen(self, file: str, *args: str, **env: str) -> subprocess.Popen[str]:
        with no_network():
            return _started([sys.executable, file, *args], self.project.root, {**self.env, **env})

    def flow(self, file: str, *args: str, **env: str) -> Done:
        """Run a flow of the project to its end, however it ends."""
        process = self.popen(file, *args, **env)
        output, _ = _finished(process, PATIENCE)
        return Done(process.returncode, output)

    def run(self, file: str, *args: str, **env: str) -> Done:
        """Run a flow that must succeed."""
        done = self.flow(file, *args, **env)
        assert done.code == 0, done.output
        return done

    def ask(self, code: str, before: str = "", **env: str) -> Any:
        """A value of Metaflow's client; ``before`` are lines that come first."""
        program = f"import json\nfrom metaflow import *\nnamespace(None)\n{before}\nprint('\\n' + json.dumps({code}))"
        with no_network():
            done = subprocess.run(
                [sys.executable, "-c", program],
                cwd=self.project.root,
                env={**self.env, **env},
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def container(self, words: Sequence[str], image: str, command: Sequence[str], env: dict[str, str]) -> str:
        """Run a container to its end, as a node would, and return what it said."""
        variables = [f"--env={name}={value}" for name, value in {**self.credentials, **env}.items()]
        program, *arguments = command
        start = ["run", "--rm", "--network=host", f"--entrypoint={program}"]
        return self.engine.run(*start, *words, *variables, image, *arguments).stdout

    def workflow(self, file: str, *flags: str) -> dict[str, dict[str, Any]]:
        """The templates of the workflow that Metaflow would submit to Argo, by their names."""
        done = self.run(file, *flags, "argo-workflows", "create", "--only-json", **LOCAL)
        document = json.JSONDecoder().raw_decode(done.output[done.output.index("\n{") :].strip())[0]
        return {template["name"]: template for template in document["spec"]["templates"]}

    def argo_task(self, template: dict[str, Any], values: dict[str, str], out: Path) -> str:
        """Run the container of a template to its end, with these values filled in; returns the task's id."""
        container = template["container"]
        env = {row["name"]: fill(row["value"], values) for row in container["env"] if "value" in row}
        out.mkdir()
        out.chmod(0o777)  # as the volume of a pod is
        command = [fill(word, values) for word in container["command"]]
        self.container([f"--volume={out}:/mnt/out"], container["image"], command, env)
        return (out / "task_id").read_text().strip()

    def batch_images(self) -> set[str]:
        """The images of all job definitions that AWS Batch knows."""
        url = f"{self.env['AWS_ENDPOINT_URL_BATCH']}/v1/describejobdefinitions"
        with no_network(), urllib.request.urlopen(url, data=b"{}", timeout=60) as answer:
            found = json.load(answer)["jobDefinitions"]
        return {one["containerProperties"]["image"] for one in found}

    def containers(self) -> list[str]:
        return self.engine.run("ps", "--quiet").stdout.split()

    def sbx_id(self) -> str:
        said = json.loads(self.project.px("sandbox", "explain", "--json", **self.env).stdout)["message"]
        return str(said).removeprefix("sbx_id ")


def fill(text: str, values: dict[str, str]) -> str:
    return re.sub(r"{{([^}]+)}}", lambda found: values[found[1].strip()], str(text))


@contextmanager
def running_cluster(home: Home, folder: Path) -> Iterator[Cluster]:
    need("root", "dockerd", "docker-registry", "bubblewrap")
    env: dict[str, Any] = _clean(home.root)
    project = _project(folder / "shapes", home, env)
    with ExitStack() as stack:
        with no_network():
            registry = stack.enter_context(running_registry(folder / "registry"))
            s3 = stack.enter_context(s3_server())
            (folder / "service").mkdir()
            service = stack.enter_context(metadata_service(folder / "service"))
            engine = stack.enter_context(running_docker())
            keys = {k: v for k, v in s3.items() if k.startswith("AWS_")}
            batch = stack.enter_context(_batch(engine, keys, folder))
            api = stack.enter_context(_pods(engine, keys))
        env |= s3 | {
            "METAFLOW_SANDBOX_REGISTRY": f"{registry.host}/team",
            "METAFLOW_DEFAULT_METADATA": "service",
            "METAFLOW_SERVICE_URL": service,
            "AWS_ENDPOINT_URL_BATCH": batch,
            "METAFLOW_BATCH_JOB_QUEUE": QUEUE,
            "METAFLOW_ECS_S3_ACCESS_IAM_ROLE": "arn:aws:iam::123456789012:role/tasks",
            "METAFLOW_KUBERNETES_SECRETS": "keys",
            "KUBECONFIG": str(_kubeconfig(folder, api)),
        }
        yield Cluster(project, registry, engine, env, keys)


def _project(root: Path, home: Home, env: dict[str, Any]) -> Project:
    """Synced, committed, and with everything that its image needs in the store."""
    project = Project(root)
    project.write("pyproject.toml", MANIFEST)
    project.write(".gitignore", ".metaflow\n__pycache__\n.px\n")
    for flow in ("elsewhere.py", "ends_elsewhere.py"):
        project.write(flow, (FLOWS / flow).read_text())
    project.px("sync", "--sandbox", **env)
    project.git("init", "-q", "-b", "main")
    project.commit()
    project.px("pack", "image", "--metaflow", "s3", **env)
    # The image for E2B has apt as well; where flows run, nothing can be downloaded.
    store = Store(home)
    ensure_apt_layers(store, ensure_base(store, load_base_lock(BASE, host_architecture())), ())
    return project


@contextmanager
def _batch(engine: DockerEngine, keys: dict[str, str], folder: Path) -> Iterator[str]:
    port = free_port()
    given = [word for name, value in keys.items() for word in ("--inject-env", f"{name}={value}")]
    place = ["--host", "127.0.0.1", "--docker-host", "127.0.0.1", "--port", str(port), "--queue", QUEUE]
    command = [sys.executable, "-m", "tests.servers.batch", *place, *given]
    with (folder / "batch.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=REPO, env=engine.environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def _pods(engine: DockerEngine, keys: dict[str, str]) -> Iterator[str]:
    given = [word for name, value in keys.items() for word in ("--secret", f"{name}={value}")]
    command = [sys.executable, "-m", "tests.servers.pods", "--docker", engine.client, *given]
    process = subprocess.Popen(
        command, cwd=REPO, env=engine.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate(timeout=30)


def _kubeconfig(folder: Path, api: str) -> Path:
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": api}}],
        "users": [{"name": "me", "user": {}}],
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return path


def hand_made(engine: DockerEngine, folder: Path, packages: Sequence[str], *, skip: bool = True) -> str:
    """An image as one makes it without px: Debian and its Python, and packages that are installed beside it.

    Its Debian is px's base, unpacked: nothing else can be pulled on a test machine.  ``skip`` tells tasks that they
    need not install anything.
    """
    root = folder / "root"
    for tree in bare_sandbox(Store(Home.from_environment()), BASE).layers:
        subprocess.run(["cp", "-a", "--no-preserve=ownership", f"{tree}/.", root], check=True)
    subprocess.run(["chmod", "-R", "u+w", root], check=True)
    (root / "usr/local/bin").mkdir(parents=True, exist_ok=True)
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    site = root / "usr/local/lib/python3.11/dist-packages"
    flags = ["--quiet", "--compile-bytecode", "--python-version", "3.11", "--target", str(site)]
    subprocess.run([UV, "pip", "install", *flags, *packages], check=True)
    variables = ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"]
    variables += ["METAFLOW_SKIP_INSTALL_DEPENDENCIES=1"] if skip else []
    changes = [f"--change=ENV {variable}" for variable in variables] + ["--change=WORKDIR /root"]
    name = f"hand-made:{folder.name}"
    with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
        done = subprocess.run(
            [engine.client, "import", *changes, "-", name],
            stdin=tar.stdout,
            env=engine.environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return name
