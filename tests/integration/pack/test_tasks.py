"""``px pack image --metaflow``: one more layer, with what a task needs and the lock lacks."""

from __future__ import annotations

import json
from pathlib import Path

from px.workflow.tasks.packages import task_pins
from tests.integration.pack.projects import Project, image_in, installed
from tests.support.index import Index

PINS = task_pins()


def test_an_image_for_tasks(synced: Project, standing_index: Index, tmp_path: Path) -> None:
    plain = synced.pack("--group", "dev")
    archive, bill = tmp_path / "tasks.tar", tmp_path / "bill.json"
    made = synced.pack("--group", "dev", "--metaflow", "s3", "--out", archive, "--sbom", bill)
    # The sandbox is the same one, and so are its layers; what tasks need lies below the code, which changes often.
    assert made.details["images"][0]["sbx_id"] == plain.details["images"][0]["sbx_id"]
    assert list(made.layers()) == [*list(plain.layers())[:-1], "tasks", "app"]
    assert {k: v for k, v in made.layers().items() if k != "tasks"} == plain.layers()
    image = image_in(archive)
    assert {"boto3", "botocore", "requests"} <= installed(image)
    config = image.config["config"]
    assert "METAFLOW_SKIP_INSTALL_DEPENDENCIES=1" in config["Env"]
    assert f"METAFLOW_SANDBOX_SBX_ID={made.details['images'][0]['sbx_id']}" in config["Env"]
    assert "Entrypoint" not in config, "some engines would put a task's command behind it"
    # Of several versions those that px prefers, and the image says which.
    wanted = [f"{name}=={PINS[name]}" for name in ("boto3", "botocore", "requests")]
    assert image.labels["px.tasks"] == "s3"
    assert image.labels["px.task_packages"] == ",".join(wanted)
    listed = {f"{c['name']}=={c.get('version')}" for c in json.loads(bill.read_text())["components"]}
    assert {*wanted, "hello==1.0", "leaf==1.0"} <= listed
    asked = len(standing_index.requests)
    assert synced.verify(archive).stdout.endswith("the same, layer by layer\n")
    assert synced.pack("--group", "dev", "--metaflow", "s3").digest == made.digest
    assert not [path for path in standing_index.requests[asked:] if path.endswith(".whl")]


def test_what_the_project_locks_is_taken_from_there(project: Project, tmp_path: Path) -> None:
    project.replace("pyproject.toml", 'dependencies = ["hello"]', 'dependencies = ["hello", "requests"]')
    project.lock()
    project.commit()
    project.sync()
    made = project.pack("--metaflow", "s3", "--out", tmp_path / "tasks.tar")
    image = image_in(tmp_path / "tasks.tar")
    assert image.labels["px.task_packages"] == f"boto3=={PINS['boto3']},botocore=={PINS['botocore']}"
    assert list(made.layers())[-2:] == ["tasks", "app"]


def test_an_index_without_what_tasks_need(synced: Project) -> None:
    said = synced.refused("--metaflow", "azure", code=122)
    assert "PX100" in said
    assert "azure-identity" in said


def test_choosing_them_runs_no_code_of_a_package(project: Project, tmp_path: Path) -> None:
    """uv chooses on this machine, so it must not build: a project can tell it to take a package from anywhere."""
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with (project.root / "pyproject.toml").open("a") as f:
        f.write(f'\n[tool.uv]\noverride-dependencies = ["boto3 @ file://{tmp_path}/evil"]\n')
    project.lock()
    project.commit()
    project.sync()
    assert "Building source distributions for `boto3` is disabled" in project.refused("--metaflow", "s3", code=122)
    assert not (tmp_path / "ran").exists()
