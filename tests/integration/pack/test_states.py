"""When ``px pack image`` runs, which part of the lock it takes, and what the image is called."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.integration.pack.projects import MODULE, Project, image_in, installed
from tests.support.px import run_px, snapshot

WORKSPACE = """\
[project]
name = "root-project"
version = "0.1"
requires-python = ">=3.11"
dependencies = ["member"]

[tool.uv.workspace]
members = ["packages/*"]

[tool.uv.sources]
member = { workspace = true }
"""
MEMBER = """\
[project]
name = "member"
version = "4.5"
requires-python = ">=3.11"
dependencies = ["hello"]

[project.scripts]
member-cli = "demo_app:main"

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
"""


@pytest.fixture
def unsynced(template: Project, tmp_path: Path) -> Project:
    template.git("clone", "-q", str(template.root), str(tmp_path / "unsynced"))
    return Project(tmp_path / "unsynced")


@pytest.mark.parametrize("env", [{}, {"CI": "1"}], ids=["development", "ci"])
def test_a_sandbox_that_is_not_built_is_refused(unsynced: Project, env: dict[str, Any]) -> None:
    before = snapshot(unsynced.root, ignore=())
    said = unsynced.refused(code=121, **env)
    assert said.startswith("PX010  `px pack image` cannot run: the project needs building (NeedsEnv).")
    assert "px sync --sandbox" in said
    assert snapshot(unsynced.root, ignore=()) == before
    unsynced.px("sync", "--sandbox", **env)
    unsynced.pack(**env)


def test_a_lock_that_is_older_than_the_manifest_is_refused(project: Project) -> None:
    project.replace("pyproject.toml", '["hello"]', '["hello", "ns-two"]')
    said = project.refused(code=121)
    assert "PX010" in said
    assert "NeedsLock" in said
    assert "px sync --sandbox" in said


def test_packing_changes_neither_manifest_nor_lock(project: Project) -> None:
    before = snapshot(project.root, ignore=(".px",))
    project.pack("--out", project.root.with_name("x.tar"), "--all-groups", "--all-extras")
    assert project.verify(project.root.with_name("x.tar")).returncode == 0
    assert snapshot(project.root, ignore=(".px",)) == before
    assert project.git("status", "--porcelain") == ""
    state = json.loads(project.px("status", "--json").stdout)["details"]["sandbox"]["state"]
    assert state == "Consistent"


@pytest.mark.parametrize(
    ("flags", "more"),
    [
        ([], set()),
        (["--group", "space", "--extra", "more"], {"ns_one", "extra_thing"}),
        (["--all-groups", "--all-extras"], {"linter", "ns_one", "extra_thing"}),
    ],
)
def test_production_dependencies_unless_more_is_asked_for(
    shared: Project, tmp_path: Path, flags: list[str], more: set[str]
) -> None:
    archive = tmp_path / "x.tar"
    shared.pack("--out", archive, *flags)
    assert installed(image_in(archive)) == {"demo_app", "hello", "leaf"} | more
    done = shared.verify(archive)
    assert done.returncode == 0, done.stdout


def test_what_was_synced_is_packed(project: Project, tmp_path: Path) -> None:
    """The extras and groups of the sandbox, less those of developers; flags choose anew."""
    archive = tmp_path / "x.tar"
    project.px("sync", "--sandbox", "--extra", "more", "--group", "dev", "--group", "space")
    said = project.px("pack", "image", "--out", archive).stdout
    assert "  with:   extra more, group space\n" in said
    assert installed(image_in(archive)) == {"demo_app", "hello", "leaf", "extra_thing", "ns_one"}
    assert project.verify(archive).returncode == 0
    project.px("sync", "--sandbox", "--all-groups")
    assert "  with:   all groups, not group dev\n" in project.px("pack", "image", "--out", archive).stdout
    assert installed(image_in(archive)) == {"demo_app", "hello", "leaf", "ns_one"}
    assert "  with:   no extras, no groups\n" in project.px("pack", "image", "--reset").stdout
    assert "  with:   group dev\n" in project.px("pack", "image", "--group", "dev").stdout


def test_run_and_pack_have_one_profile(project: Project) -> None:
    project.px("sync", "--sandbox", "--extra", "more", "--no-dev")
    synced = json.loads(project.px("sync", "--sandbox", "--json").stdout)["details"]
    made = project.pack().details["images"][0]
    assert (made["profile_oid"], made["sbx_id"]) == (synced["profile_oid"], synced["sbx_id"])


def test_a_name_without_a_host_stays_here(shared: Project, tmp_path: Path) -> None:
    archive = tmp_path / "x.tar"
    assert shared.pack("--tag", "myapp:1", "--out", archive).names == ["myapp:1"]
    assert shared.verify("myapp:1").returncode == 0
    with tarfile.open(archive) as tar:
        document = tar.extractfile("manifest.json")
        assert document is not None
        assert json.load(document)[0]["RepoTags"] == ["myapp:1"]
    assert "it does not start with the host of a registry" in shared.refused("--tag", "myapp:1", "--push")


def test_a_group_that_is_not_there(shared: Project) -> None:
    said = shared.refused("--group", "nonsense", code=122)
    assert "nonsense" in said


def test_from_a_member_of_a_workspace(tmp_path: Path) -> None:
    root = Project(tmp_path / "workspace")
    root.write("pyproject.toml", WORKSPACE)
    root.write(".gitignore", "*.egg-info/\n")
    root.write("packages/member/pyproject.toml", MEMBER)
    root.write("packages/member/src/demo_app/__init__.py", MODULE)
    root.lock()
    root.git("init", "-q", "-b", "main")
    root.commit()
    member = Project(root.root / "packages" / "member")
    member.sync()
    made = member.pack("--out", tmp_path / "x.tar")
    assert made.names == ["px.local/member:4.5"]
    image = image_in(tmp_path / "x.tar")
    assert image.config["config"]["Entrypoint"] == ["member-cli"]
    assert {"hello", "leaf", "member"} <= installed(image)
    assert root.pack().names == ["px.local/root-project:0.1"]
    assert run_px("pack", "verify", tmp_path / "x.tar", cwd=member.root).returncode == 0
    member.replace("src/demo_app/__init__.py", "return 3", "return 4")
    assert "packages/member/src/demo_app/__init__.py" in root.refused()


def test_default_names(project: Project, tmp_path: Path) -> None:
    assert project.pack().names == ["px.local/demo-app:1.2.3"]
    # A workspace root that is no project has no version; nor a name, and that of its directory is not in the image.
    (project.root / "member").mkdir()
    (project.root / "pyproject.toml").rename(project.root / "member" / "pyproject.toml")
    (project.root / "src").rename(project.root / "member" / "src")
    project.write("pyproject.toml", '[tool.uv.workspace]\nmembers = ["member"]\n')
    project.lock()
    project.commit()
    project.sync()
    sha = project.git("rev-parse", "HEAD").strip()
    made = project.pack()
    assert made.names == [f"px.local/project:{sha[:12]}"]
    moved = Project(project.root.rename(tmp_path / "Elsewhere"))
    moved.sync()
    again = moved.pack()
    assert again.names == [f"px.local/elsewhere:{sha[:12]}"]
    assert again.digest == made.digest


def test_several_tags(shared: Project, tmp_path: Path) -> None:
    names = ["registry.example.org/team/demo:1.2.3", "registry.example.org/team/demo:latest"]
    flags = [flag for name in names for flag in ("--tag", name)]
    made = shared.pack(*flags, "--out", f"{tmp_path}/layout/")
    assert made.names == names
    index = json.loads((tmp_path / "layout/index.json").read_text())
    assert [m["annotations"]["io.containerd.image.name"] for m in index["manifests"]] == names
    assert {m["digest"] for m in index["manifests"]} == {made.digest}
    assert shared.pack().digest == made.digest, "a name is not part of the image"
    for bad in ("Demo", "demo:a b", "registry.example.org/Team/demo", "registry.example.org/demo:a b"):
        assert "PX922" in shared.refused("--tag", bad)


def test_what_the_image_says_about_itself(project: Project, tmp_path: Path) -> None:
    project.git("remote", "add", "origin", "git@forge.example.org:team/demo.git")
    flags = [
        "--entrypoint",
        "python -m demo_app",
        "--cmd",
        "serve 'two words'",
        "--expose",
        "8000",
        "--expose",
        "53/udp",
    ]
    made = project.pack(*flags, "--label", "team=web", "--label", "note=a=b", "--out", tmp_path / "x.tar")
    image, details = image_in(tmp_path / "x.tar"), made.details["images"][0]
    config = image.config["config"]
    assert config["Entrypoint"] == ["python", "-m", "demo_app"]
    assert config["Cmd"] == ["serve", "two words"]
    assert config["ExposedPorts"] == {"8000/tcp": {}, "53/udp": {}}
    assert (config["WorkingDir"], config["User"], config["StopSignal"]) == ("/app", "1000:1000", "SIGTERM")
    assert image.labels["team"] == "web"
    assert image.labels["note"] == "a=b"
    for label in ("sbx_id", "base_os_oid", "profile_oid"):
        assert image.labels[f"px.{label}"] == details[label]
    assert image.labels["px.capabilities"] == ",".join(details["capabilities"])
    environment = dict(entry.split("=", 1) for entry in config["Env"])
    assert environment["APP_MODE"] == "production"
    assert environment["PATH"].startswith("/opt/px/env/bin:")
    said = {key.removeprefix("org.opencontainers.image."): value for key, value in image.annotations.items()}
    assert said["title"] == "demo-app"
    assert said["version"] == "1.2.3"
    assert said["revision"] == project.git("rev-parse", "HEAD").strip()
    assert said["source"] == "https://forge.example.org/team/demo"
    assert said["base.name"].startswith("px/base:debian-12")
    assert said["created"] == image.config["created"] == "2024-02-02T22:20:06Z"  # the commit's, in UTC
    assert project.verify(tmp_path / "x.tar").returncode == 0


def test_without_a_single_console_script_python_is_the_command(project: Project, tmp_path: Path) -> None:
    project.replace("pyproject.toml", "[dependency-groups]", 'second = "demo_app:main"\n\n[dependency-groups]')
    project.lock()
    project.commit()
    project.sync()
    project.pack("--out", tmp_path / "x.tar")
    config = image_in(tmp_path / "x.tar").config["config"]
    assert "Entrypoint" not in config
    assert config["Cmd"] == ["python"]


@pytest.mark.parametrize(
    ("flags", "entrypoint", "cmd"),
    [
        (["--cmd", "--port 80"], ["demo-app"], ["--port", "80"]),
        (["--entrypoint", ""], None, ["python"]),
        (["--entrypoint", "", "--cmd", "python -V"], None, ["python", "-V"]),
        (["--entrypoint", "python -m demo_app"], ["python", "-m", "demo_app"], None),
    ],
    ids=str,
)
def test_entrypoint_and_its_arguments(
    shared: Project, tmp_path: Path, flags: list[str], entrypoint: list[str] | None, cmd: list[str] | None
) -> None:
    shared.pack("--out", tmp_path / "x.tar", *flags)
    config = image_in(tmp_path / "x.tar").config["config"]
    assert (config.get("Entrypoint"), config.get("Cmd")) == (entrypoint, cmd)
    assert shared.verify(tmp_path / "x.tar").returncode == 0


@pytest.mark.parametrize(
    "flags",
    [
        ["--expose", "high"], ["--expose", "70000"], ["--label", "nothing"], ["--label", "px.sbx_id=mine"],
        ["--platform", "windows/amd64"], ["--platform", "linux/s390x"], ["--format", "docker", "--compression", "zstd"],
        ["--push"], ["--push", "--tag", "px.local/x:1"], ["--tag", "example.org/x@sha256:" + 64 * "0"],
        ["--expose", "٣"], ["--platform", "amd64"], ["--platform", ","], ["--out", ""], ["--sbom", ""],
        ["--sbom", "src"], ["--entrypoint", "sh -c 'exit"], ["--cmd", "it's"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_flags_that_make_no_sense(shared: Project, flags: list[str]) -> None:
    done = shared.px("pack", "image", *flags, check=False)
    assert done.returncode not in (0, 1)
    assert done.stderr.startswith("PX"), done.stderr
    assert "Fix:" in done.stderr
    assert "bug in px" not in done.stderr
