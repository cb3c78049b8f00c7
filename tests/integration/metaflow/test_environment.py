"""``--environment=px`` without a cluster: what a step gets, what is refused, and who packs nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from metaflow import metaflow_config

from metaflow_extensions.sandbox.plugins.errors import Unusable
from metaflow_extensions.sandbox.plugins.project_image import check_image, check_registry, has_project, project_image
from px.home import Home
from tests.integration.oci.registry_server import PASSWORD, USER, RunningRegistry, running_registry
from tests.integration.pack.projects import Project
from tests.support.index import serving
from tests.support.needs import need

from .conftest import FLOWS, Done, _clean

MANIFEST = '[project]\nname = "shapes"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["hello"]\n'
TWO_IMAGES = """\
from metaflow import FlowSpec, kubernetes, step


class TwoImagesFlow(FlowSpec):
    @step
    def start(self):
        self.next(self.middle)

    @kubernetes(image=None)
    @step
    def middle(self):
        self.next(self.end)

    @kubernetes(image="registry.example.org/mine:1")
    @step
    def end(self):
        pass


if __name__ == "__main__":
    TwoImagesFlow()
"""
OWN_IMAGE, OWN_PACKAGES = 'kubernetes(image="registry.example.org/mine:1")', 'pypi(packages={"pandas": "2.0"})'
PYPI = (
    TWO_IMAGES.replace("    @kubernetes(image=None)\n", "")
    .replace(OWN_IMAGE, OWN_PACKAGES)
    .replace("kubernetes", "pypi")
)
NAMED_ELSEWHERE = """\
from metaflow import Config, FlowSpec, StepMutator, config_expr, kubernetes, step


class place(StepMutator):
    def init(self, *args, **kwargs):
        self.image = kwargs["image"]

    def mutate(self, mutable_step):
        given = {"image": self.image, "cpu": 2}
        mutable_step.add_decorator("kubernetes", deco_kwargs=given, duplicates=mutable_step.OVERRIDE)


class NamedElsewhereFlow(FlowSpec):
    settings = Config("settings", default_value='{"none": {"image": null}, "own": {"image": "example.org/own:1"}}')

    @place(image="example.org/mutated:1")
    @step
    def start(self):
        self.next(self.nothing)

    @place(image=None)
    @step
    def nothing(self):
        self.next(self.none)

    @kubernetes(**config_expr("settings.none"))
    @step
    def none(self):
        self.next(self.own)

    @kubernetes(**config_expr("settings.own"))
    @step
    def own(self):
        self.next(self.end)

    @kubernetes(image="python:3.11")
    @step
    def end(self):
        pass


if __name__ == "__main__":
    NamedElsewhereFlow()
"""
PLAIN = TWO_IMAGES.replace("    @kubernetes(image=None)\n", "").replace(f"    @{OWN_IMAGE}\n", "")
PYPI_OF_CONFIG = (
    PYPI.replace("FlowSpec,", "Config, FlowSpec, config_expr,")
    .replace(OWN_PACKAGES, 'pypi(packages=config_expr("settings.packages"))')
    .replace(
        "(FlowSpec):\n",
        """(FlowSpec):
    settings = Config("settings", default_value='{"packages": {"pandas": ">=2,<3", "numpy": "1.26"}}')
""",
    )
)
CONDA = PYPI.replace("pypi(packages=", 'conda(packages={"numpy": ""}, libraries=').replace("pypi", "conda")
LOGIN = {"PX_REGISTRY_USERNAME": USER, "PX_REGISTRY_PASSWORD": PASSWORD}
REPOSITORY = "docker/registry/v2/repositories/team/shapes"


@pytest.fixture(scope="module")
def home(warm_home: Home, wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a user with a small index, and with downloads at hand."""
    need("bubblewrap", "docker-registry", "htpasswd")
    with serving(wheelhouse) as index:
        yield {
            **_clean(warm_home.root),
            "UV_DEFAULT_INDEX": index.url,
            "UV_CACHE_DIR": str(tmp_path_factory.mktemp("uv-cache")),
            "DOCKER_CONFIG": str(tmp_path_factory.mktemp("docker")),
        }


@pytest.fixture(scope="module")
def project(home: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    made = Project(tmp_path_factory.mktemp("project") / "shapes")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in home.items():
            patch.setenv(name, value)
        made.write("pyproject.toml", MANIFEST)
        made.write(".gitignore", "__pycache__\n.px\n")
        made.write("elsewhere.py", (FLOWS / "elsewhere.py").read_text())
        made.write("two_images.py", TWO_IMAGES)
        made.write("named_elsewhere.py", NAMED_ELSEWHERE)
        made.write("with_pypi.py", PYPI)
        made.write("with_conda.py", CONDA)
        made.write("pypi_of_config.py", PYPI_OF_CONFIG)
        made.sync()
        made.git("init", "-q", "-b", "main")
        made.commit()
        yield made


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path / "registry", password=True) as found:
        yield found


@pytest.fixture
def settings(home: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Metaflow's settings of this process."""
    for name, value in home.items():
        monkeypatch.setenv(name, value)
    for function in (check_image, project_image):
        function.cache_clear()
    yield monkeypatch
    for function in (check_image, project_image):
        function.cache_clear()


@pytest.fixture
def logged_in(settings: pytest.MonkeyPatch) -> None:
    for name, value in LOGIN.items():
        settings.setenv(name, value)


@pytest.fixture
def team(logged_in: None, registry: RunningRegistry, settings: pytest.MonkeyPatch) -> None:
    settings.setattr(metaflow_config, "SANDBOX_REGISTRY", f"{registry.host}/team")


def flow(project: Project, file: str, *args: str, **env: str) -> Done:
    command = [sys.executable, file, "--environment=px", *args]
    done = subprocess.run(
        command,
        cwd=project.root,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    return Done(done.returncode, done.stdout)


def test_argo_gets_the_digest_and_pushes_once(
    project: Project, registry: RunningRegistry, s3: dict[str, str], tmp_path: Path
) -> None:
    env = {**s3, "METAFLOW_SANDBOX_REGISTRY": f"{registry.host}/team"}
    create = ("argo-workflows", "create", "--only-json")
    done = flow(project, "two_images.py", *create, **env, **LOGIN)
    assert done.code == 0, done.output
    first, second = containers(done)["start"], containers(done)["end"]
    (digest,) = tags(registry).values()
    assert first["image"] == f"{registry.host}/team/shapes@{digest}"
    assert containers(done)["middle"]["image"] == first["image"]
    assert second["image"] == "registry.example.org/mine:1"
    # The same sandbox as that of `px run --sandbox`.
    said = json.loads(project.px("sandbox", "explain", "--json").stdout)["message"]
    assert said[: len("sbx_id ") + 12] in done.output
    before = registry.requests("PUT") + registry.requests("POST") + registry.requests("PATCH")
    again = flow(project, "two_images.py", *create, **env, **LOGIN)
    assert containers(again)["start"]["image"] == first["image"]
    assert "in the registry already" in again.output
    assert registry.requests("PUT") + registry.requests("POST") + registry.requests("PATCH") == before


def containers(done: Done) -> dict[str, Any]:
    """The containers of the workflow that ``--only-json`` prints, by step."""
    text = done.output[done.output.index("\n{") :]
    document = json.JSONDecoder().raw_decode(text.strip())[0]
    return {t["name"]: t["container"] for t in document["spec"]["templates"] if "container" in t}


def tags(registry: RunningRegistry) -> dict[str, str]:
    """The tags of images, and their digests; the bill of materials has a tag of another kind."""
    folder = registry.storage / REPOSITORY / "_manifests" / "tags"
    found = [path for path in folder.iterdir() if path.name.startswith("px-")]
    return {path.name: (path / "current" / "link").read_text().strip() for path in found}


def stored(registry: RunningRegistry, reference: str) -> dict[str, Any]:
    """The manifest or index that a reference names by its digest."""
    digest = reference.partition("@sha256:")[2]
    path = registry.storage / "docker/registry/v2/blobs/sha256" / digest[:2] / digest / "data"
    return dict(json.loads(path.read_text()))


def test_images_that_mutators_and_configs_name(project: Project, registry: RunningRegistry, s3: dict[str, str]) -> None:
    env = {**s3, "METAFLOW_SANDBOX_REGISTRY": f"{registry.host}/team"}
    done = flow(project, "named_elsewhere.py", "argo-workflows", "create", "--only-json", **env, **LOGIN)
    assert done.code == 0, done.output
    found = {name: container["image"] for name, container in containers(done).items()}
    assert (found["start"], found["own"]) == ("example.org/mutated:1", "example.org/own:1")
    assert found["end"] == "python:3.11", "Metaflow's default counts if the step names it"
    (digest,) = tags(registry).values()
    assert found["nothing"] == found["none"] == f"{registry.host}/team/shapes@{digest}"


def test_commands_that_run_nothing_pack_nothing(project: Project, s3: dict[str, str]) -> None:
    env = {**s3, "METAFLOW_SANDBOX_REGISTRY": "127.0.0.1:1/nobody-is-here"}
    for args in (("show",), ("--with", "batch", "package", "list")):
        done = flow(project, "elsewhere.py", *args, **env)
        assert done.code == 0, done.output


def test_spin_runs_a_step_here_and_packs_nothing(project: Project) -> None:
    new = project.write("spun.py", PLAIN)
    try:
        assert flow(project, "spun.py", "run").code == 0
        project.write("spun.py", TWO_IMAGES)
        done = flow(project, "spun.py", "spin", "end", METAFLOW_SANDBOX_REGISTRY="127.0.0.1:1/nobody-is-here")
    finally:
        new.unlink()
    assert done.code == 0, done.output


def test_own_packages_are_refused(project: Project) -> None:
    done = flow(project, "with_pypi.py", "run")
    assert done.code != 0
    assert (
        "The step end has @pypi. With --environment=px all steps have the packages of the project's lock" in done.output
    )
    assert "px add pandas==2.0" in done.output
    done = flow(project, "pypi_of_config.py", "run")
    assert "px add 'pandas>=2,<3' numpy==1.26\n" in done.output
    done = flow(project, "with_conda.py", "run")  # @conda still has another word for them
    assert "px add pandas==2.0 numpy\n" in done.output


def test_a_dirty_tree_stops_a_run_before_it_starts(project: Project, s3: dict[str, str]) -> None:
    new = project.write("new.py", "")
    try:
        done = flow(project, "elsewhere.py", "run", "--with", "batch", **s3, METAFLOW_SANDBOX_REGISTRY="127.0.0.1:1/x")
    finally:
        new.unlink()
    assert done.code != 0
    assert "PX920" in done.output
    assert "export METAFLOW_SANDBOX_ALLOW_DIRTY=1" in done.output
    assert "Workflow starting" not in done.output


def refusal(directory: Path) -> str:
    with pytest.raises(Unusable) as caught:
        project_image(directory, "s3")
    return str(caught.value)


def test_no_registry_no_login_no_project_no_such_platform(
    project: Project, registry: RunningRegistry, settings: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "METAFLOW_SANDBOX_REGISTRY=registry.example.org/team" in refusal(project.root)
    assert "There is no px project around" in refusal(tmp_path)
    settings.setattr(metaflow_config, "SANDBOX_REGISTRY", "no host")
    assert "PX922" in refusal(project.root)
    for login in ("me:planted@", "https://me:planted@"):
        settings.setattr(metaflow_config, "SANDBOX_REGISTRY", f"{login}127.0.0.1:1/team")
        said = refusal(project.root)
        assert "docker login 127.0.0.1:1\n" in said
        assert "planted" not in said
    settings.setattr(metaflow_config, "SANDBOX_REGISTRY", "127.0.0.1:1/team")
    said = refusal(project.root)
    assert "Check that the registry is up" in said
    assert "px pack image" not in said, "nobody has run that here"
    assert "complete on this machine" not in said, "nothing is packed yet"
    settings.setattr(metaflow_config, "SANDBOX_REGISTRY", f"{registry.host}/team")
    said = refusal(project.root)
    assert f"Log in: docker login {registry.host}" in said
    assert registry.requests("POST") == []
    settings.setattr(metaflow_config, "SANDBOX_PLATFORM", "linux/s390x")
    assert "METAFLOW_SANDBOX_PLATFORM linux/s390x: px has no such platform" in refusal(project.root)
    settings.setenv("UV_OFFLINE", "1")
    settings.setattr(metaflow_config, "SANDBOX_PLATFORM", "")
    said = refusal(project.root)
    assert "is not a name" not in said
    assert "unset UV_OFFLINE" in said
    settings.delenv("UV_OFFLINE")
    settings.setattr(metaflow_config, "SANDBOX_ALLOW_DIRTY", "perhaps")
    assert "METAFLOW_SANDBOX_ALLOW_DIRTY=perhaps is neither 1 nor 0" in refusal(project.root)


@pytest.mark.usefixtures("team")
def test_no_lock_and_an_old_one(project: Project, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"{MANIFEST}[tool.px]\n")
    assert "there is no lock" in refusal(tmp_path)
    (tmp_path / "uv.lock").write_bytes((project.root / "uv.lock").read_bytes())
    (tmp_path / "pyproject.toml").write_text(MANIFEST.replace('"hello"', '"hello", "extra-thing"'))
    assert "PX102  uv.lock is older than the manifest" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [("x = [", "PX002"), ('[tool.px]\nregistri = "x"', "PX003"), ("[tool.px]\nregistry = 5", "PX003")],
)
@pytest.mark.usefixtures("settings")
def test_a_manifest_that_is_not_valid(tmp_path: Path, wrong: str, code: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"{MANIFEST}{wrong}\n")
    assert code in refusal(tmp_path)
    for question in (lambda: has_project(tmp_path), lambda: check_registry(tmp_path, "e2b")):
        with pytest.raises(Unusable, match=code):
            question()


@pytest.mark.usefixtures("logged_in")
def test_the_project_names_the_registry(
    project: Project, registry: RunningRegistry, settings: pytest.MonkeyPatch
) -> None:
    before = (project.root / "pyproject.toml").read_text()
    settings.setattr(metaflow_config, "SANDBOX_ALLOW_DIRTY", "1")
    project.write("pyproject.toml", before + f'[tool.px]\nregistry = "{registry.host}"\n')
    try:
        assert project_image(project.root, "s3").reference.startswith(f"{registry.host}/shapes@sha256:")
    finally:
        project.write("pyproject.toml", before)


@pytest.mark.usefixtures("team")
def test_an_image_without_code_can_be_made_again(project: Project) -> None:
    """Providers get one: Metaflow brings the flow there."""
    made = project_image(project.root, "s3", code=False)
    done = project.verify(made.reference)
    assert done.stdout.endswith("the same, layer by layer\n"), done.stdout + done.stderr


@pytest.mark.usefixtures("team")
def test_what_was_checked_before_the_run_is_not_said_twice(
    project: Project, settings: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a provider, px checks before Metaflow makes a run, and packs after it."""
    settings.setattr(metaflow_config, "SANDBOX_ALLOW_DIRTY", "1")
    new = project.write("new.py", "")
    try:
        check_image(project.root, "s3", "", code=True, apt=False)
        project_image(project.root, "s3")
    finally:
        new.unlink()
    assert capsys.readouterr().err.count("packing 1 uncommitted change") == 1


@pytest.mark.usefixtures("team")
def test_what_the_registry_lost_is_pushed_again(project: Project, registry: RunningRegistry) -> None:
    """A tag that somebody removed, as before a clean-up of what has none; and a layer that a clean-up took."""
    made = project_image(project.root, "s3", code=False)
    before = tags(registry)
    kept = registry.storage / REPOSITORY
    layer = str(stored(registry, made.reference)["layers"][0]["digest"])
    for lost in (kept / "_manifests" / "tags" / next(iter(before)), kept / "_layers" / layer.replace(":", "/")):
        shutil.rmtree(lost)
        project_image.cache_clear()
        assert project_image(project.root, "s3", code=False).reference == made.reference
        assert lost.is_dir()
    assert tags(registry) == before


@pytest.mark.slow
@pytest.mark.usefixtures("team")
def test_a_cluster_of_two_architectures(project: Project, registry: RunningRegistry) -> None:
    need("a Debian mirror")  # for the other architecture's base
    made = project_image(project.root, "s3", "linux/amd64,linux/arm64")
    index = stored(registry, made.reference)
    assert [row["platform"]["architecture"] for row in index["manifests"]] == ["amd64", "arm64"]
    project_image.cache_clear()
    before = registry.requests("PUT")
    assert project_image(project.root, "s3", "linux/amd64,linux/arm64") == replace(made, sent_bytes=0)
    assert registry.requests("PUT") == before
