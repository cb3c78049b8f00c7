"""Where an image goes: files, directories, engines; and that nothing half-made is left where it cannot go."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from px.store.tree import remove_tree
from tests.integration.pack.projects import Project, image_in
from tests.support.dockerd import running_docker
from tests.support.mounts import small_disk
from tests.support.px import PX


def test_without_flags_it_is_kept_and_described(shared: Project, tmp_path: Path) -> None:
    done = shared.px("pack", "image")
    made = shared.pack()
    details = made.details["images"][0]
    lines = done.stdout.splitlines()
    assert lines[:3] == ["Built image:", "  name:   px.local/demo-app:1.2.3", f"  digest: {made.digest}"]
    assert lines[-4:] == [
        "Derived from:",
        f"  base: debian-12 (base_os_oid={details['base_os_oid']})",
        f"  env:  profile_oid={details['profile_oid']}",
        f"  sbx:  sbx_id={details['sbx_id']}",
    ]
    home = Path(os.environ["PX_HOME"])
    for digest in (made.digest, *made.layers().values()):
        assert (home / "sandbox/blobs/sha256" / digest.removeprefix("sha256:")).is_file()


def test_packing_again_imports_only_what_it_uses(shared: Project) -> None:
    """Each of these costs milliseconds, and a repack of what is there has no use for it."""
    shared.pack()
    command = [sys.executable, "-X", "importtime", "-m", "px", "pack", "image"]
    done = subprocess.run(command, cwd=shared.root, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "px.workflow.pack" in imported
    heavy = {"pathspec", "urllib3", "email", "ssl", "concurrent.futures", "zipfile", "tarfile", "csv", "secrets"}
    assert imported & heavy == set()


def test_a_directory_that_holds_something_else_is_left_alone(shared: Project, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    said = shared.refused("--out", f"{folder}/")
    assert "PX903" in said
    assert "is not empty and is not an OCI layout" in said
    assert [p.name for p in folder.iterdir()] == ["thesis.txt"]
    said = shared.refused("--out", f"{folder}/thesis.txt/")
    assert "is a file" in said


def test_an_older_layout_is_replaced(project: Project, tmp_path: Path) -> None:
    first = project.pack("--out", f"{tmp_path}/layout/")
    project.replace("src/demo_app/__init__.py", "return 3", "return 4")
    project.commit()
    second = project.pack("--out", tmp_path / "layout")  # it is a directory: no slash is needed
    assert image_in(tmp_path / "layout").digest == second.digest
    blobs = {f"sha256:{p.name}" for p in (tmp_path / "layout/blobs/sha256").iterdir()}
    assert first.layers()["app"] not in blobs
    assert set(second.layers().values()) < blobs


@pytest.mark.parametrize("out", ["x.tar", "layout/"])
def test_a_full_disk_leaves_nothing(shared: Project, tmp_path: Path, out: str) -> None:
    with small_disk(tmp_path / "disk", "10m") as disk:
        said = shared.refused("--out", f"{disk}/{out}")
        assert said.startswith("PX903")
        assert "no space left" in said
        assert list(disk.iterdir()) == []
        subprocess.run(["mount", "-o", "remount,size=200m", disk], check=True)
        made = shared.pack("--out", f"{disk}/{out}")
        assert image_in(disk / out).digest == made.digest


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "Interrupted"), (signal.SIGTERM, -signal.SIGTERM, ""), (signal.SIGHUP, -signal.SIGHUP, "")],
)
@pytest.mark.parametrize("out", ["x.tar", "layout/"])
def test_an_interruption_leaves_nothing(
    shared: Project, tmp_path: Path, out: str, number: signal.Signals, code: int, word: str
) -> None:
    """Interrupted as soon as something appears; a try in which px was faster than the test does not count."""
    shared.pack()
    for attempt in range(10):
        target = tmp_path / str(attempt)
        target.mkdir()
        command: list[str | Path] = [PX, "pack", "image", "--out", f"{target}/{out}"]
        process = subprocess.Popen(command, cwd=shared.root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None and not any(target.iterdir()):
            time.sleep(0.001)
        process.send_signal(number)
        said = process.communicate()[1].decode()
        if process.returncode != 0:
            break
    assert process.returncode == code, said
    assert word in said
    assert "Traceback" not in said
    assert list(target.iterdir()) == []
    made = shared.pack("--out", f"{target}/{out}")
    assert image_in(target / out).digest == made.digest


@pytest.mark.slow
@pytest.mark.network
def test_a_full_disk_under_px_home(template: Project, tmp_path: Path) -> None:
    project = Project(Path(shutil.copytree(template.root, tmp_path / "project")))
    with small_disk(tmp_path / "disk", "500m") as disk:
        home: dict[str, Any] = {"PX_HOME": str(disk / "home")}
        project.px("sync", "--sandbox", **home)
        free = os.statvfs(disk)
        (disk / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize - 10_000_000))
        said = project.refused(**home)
        assert said.startswith("PX903")
        assert "no space left" in said
        assert list((disk / "home/store/tmp").iterdir()) == []
        (disk / "filler").unlink()
        project.pack(**home)
        remove_tree(disk / "home")


def test_a_place_that_cannot_be_written(shared: Project, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for flags in (["--out", f"{tmp_path}/file/x.tar"], ["--sbom", f"{tmp_path}/file/bill.json"]):
        said = shared.refused(*flags)
        assert said.startswith("PX903")
        assert str(tmp_path / "file") in said


def test_a_killed_layout_is_finished_by_the_next_try(shared: Project, tmp_path: Path) -> None:
    (tmp_path / "layout/blobs/sha256").mkdir(parents=True)
    (tmp_path / "layout/oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (tmp_path / "layout/blobs/sha256/.half").write_text("half a blob")
    made = shared.pack("--out", f"{tmp_path}/layout/")
    assert image_in(tmp_path / "layout").digest == made.digest
    assert not (tmp_path / "layout/blobs/sha256/.half").exists()


def test_load_without_an_engine(shared: Project, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    git = shutil.which("git")
    assert git is not None
    (tools / "git").symlink_to(git)
    said = shared.refused("--load", PATH=str(tools))
    assert said.startswith("PX903")
    assert "neither docker nor podman" in said
    assert "--out app.tar" in said


def test_load_into_an_engine_that_does_not_answer(shared: Project, tmp_path: Path) -> None:
    client = tmp_path / "bin" / "docker"
    client.parent.mkdir()
    client.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    client.chmod(0o755)
    said = shared.refused("--load", PATH=f"{client.parent}:{os.environ['PATH']}")
    assert said.startswith("PX903")
    assert "Cannot connect to the Docker daemon" in said
    assert "docker info" in said
    assert "--out app.tar" in said
    assert "registry credentials" not in said


def test_load_into_docker(shared: Project, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    with running_docker() as engine:
        tools.mkdir()
        (tools / "docker").symlink_to(engine.client)
        found = {k: engine.environment[k] for k in ("DOCKER_HOST", "DOCKER_CONFIG")}
        made = shared.pack("--load", "--tag", "demo.example.org/demo:1", PATH=f"{tools}:{os.environ['PATH']}", **found)
        inspected = json.loads(engine.run("image", "inspect", "demo.example.org/demo:1").stdout)[0]
        assert inspected["Config"]["Labels"]["px.sbx_id"] == made.details["images"][0]["sbx_id"]
        assert inspected["Config"]["Entrypoint"] == ["demo-app"]
