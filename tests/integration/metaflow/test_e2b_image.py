"""The image that E2B makes a template from takes what E2B's builder installs, in a real Docker engine.

E2B itself is never asked.  ``tests/support/provision.sh`` does what its builder has published that it does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from metaflow import metaflow_config

from metaflow_extensions.sandbox.plugins.project_image import project_image
from px.debian.mirror import Mirror, domain, mirrors
from px.home import Home
from tests.conftest import REPO
from tests.servers.registry import running
from tests.support.dockerd import DockerEngine, running_docker
from tests.support.needs import need
from tests.support.px import run_px

from .test_project_at_provider import MANIFEST

PROVISION = REPO / "tests/support/provision.sh"
SOURCES = "/etc/apt/sources.list.d/debian.sources"
CHECK = """
sh /provision.sh
dpkg --audit
apt-get check
test "$(su user -c 'sudo id -u')" = 0
su user -c "python -c 'import boto3, numpy; print(numpy.arange(4).sum())'"
"""


@pytest.fixture(scope="module")
def docker() -> Iterator[DockerEngine]:
    with running_docker() as engine:
        yield engine


def as_on_this_machine(docker: DockerEngine, image: str, scratch: Path) -> list[str]:
    """The options by which apt in a container reaches the archive that px reaches here."""
    own = docker.run("run", "--rm", image, "cat", SOURCES).stdout
    (scratch / "debian.sources").write_text(_moved(own, mirrors("")[0]))
    (scratch / "apt.conf").write_text(_acquire())
    mounts = {scratch / "debian.sources": SOURCES, scratch / "apt.conf": "/etc/apt/apt.conf.d/99host"}
    variables = [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "no_proxy")]
    found = [f"--volume={source}:{inside}:ro" for source, inside in mounts.items()]
    return [*found, *(f"--env={name}" for name in variables), "--network=host"]


def _moved(sources: str, mirror: Mirror) -> str:
    for archive, there in (("debian", mirror.main), ("debian-security", mirror.security)):
        assert f"http://deb.{domain()}/{archive}\n" in sources
        sources = sources.replace(f"http://deb.{domain()}/{archive}\n", f"{there}\n")
    return sources


def _acquire() -> str:
    """How this machine's apt reaches servers, and how old their lists may be."""
    if shutil.which("apt-config") is None:
        return ""
    said = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True).stdout
    kept = ("Acquire::http", "Acquire::Check-Valid-Until ")
    return "".join(f"{line}\n" for line in said.splitlines() if line.startswith(kept))


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("base", ["debian-12", "debian-13"])
def test_the_builder_provisions_it(
    base: str, docker: DockerEngine, warm_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("bubblewrap", "a Debian mirror")
    monkeypatch.setenv("PX_HOME", str(warm_home.root))
    monkeypatch.setattr(metaflow_config, "SANDBOX_REGISTRY_INSECURE", "1")
    project = tmp_path / "shop"
    project.mkdir()
    (project / "pyproject.toml").write_text(MANIFEST.replace("debian-12", base))
    run_px("sync", "--sandbox", cwd=project)
    with running() as registry:
        monkeypatch.setattr(metaflow_config, "SANDBOX_REGISTRY", f"{registry.host}/team")
        made = project_image(project, "s3", code=False, apt=True)
        other = project_image(project, "s3", code=False)
        docker.run("pull", made.reference)
    assert made.sbx_id == other.sbx_id
    assert made.reference != other.reference
    options = ["--rm", "--user=0", f"--volume={PROVISION}:/provision.sh:ro"]
    options += as_on_this_machine(docker, made.reference, tmp_path)
    said = docker.run("run", *options, made.reference, "sh", "-ec", CHECK).stdout
    missing = next(line for line in said.splitlines() if line.startswith("missing:")).split()
    assert "systemd" in missing
    assert "ca-certificates" not in missing, "dpkg knows the packages of the base"
    assert said.splitlines()[-1] == "6", "the task's Python has its packages still"
