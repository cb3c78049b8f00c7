"""Every command on a page is run, in a scene that has what its page assumes, or has a reason not to be.

A new command needs one or the other: a scene that plays its whole page takes it by itself.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from px.home import Home
from tests.conftest import REPO
from tests.servers import registry
from tests.support import advisories
from tests.support.dockerd import running_docker
from tests.support.documented import Documented, commands, documented
from tests.support.index import Index
from tests.support.needs import need
from tests.support.px import UV
from tests.support.scenes import WHO, on, play

CI, PINS = "docs/how-to/use-in-ci.md", "docs/how-to/pin-system-packages.md"
UPGRADE, OFFLINE = "docs/how-to/upgrade-and-update.md", "docs/how-to/work-without-a-network.md"
TUTORIAL, METAFLOW = "docs/tutorial/first-sandbox.md", "docs/tutorial/metaflow.md"
DISK, CAPABILITIES = "docs/how-to/free-disk-space.md", "docs/reference/capabilities.md"
AUDIT, CACHE, PUSH = (
    "docs/how-to/audit-a-sandbox.md",
    "docs/how-to/share-a-cache.md",
    "docs/how-to/push-to-a-registry.md",
)

# Beginnings of commands that no scene runs, and why.
_MAKE = "it is what runs these tests, or takes as long"
_INSTALL = "test_release.py and ci/ install px by its wheel and by pip"
_ACCOUNT = "it needs an account, a key or a cluster; the servers in tests/servers stand for them elsewhere"
_MAINTAINERS = "for px's maintainers, takes minutes; tests/integration/debian locks bases"
_CLUSTER = "it needs a cluster; tests/integration/clusters has small ones of Slurm and Ray"
_OUTSIDE = "it downloads from a host that is neither a package index nor a Debian mirror"
NOT_RUN = {
    "make ": _MAKE,
    "pip install ": _INSTALL,
    "git pull": _INSTALL,
    "uv tool install ": _INSTALL,
    "pip download px-sandbox": "px would have to be on an index",
    "px bundle export app.bundle --files wheels": "the wheels are those of the line above it; supply/ exports files",
    "sudo ": "it changes the machine that runs the tests",
    "UV_PYTHON_CACHE_DIR=": _OUTSIDE,
    "px sandbox audit --advisories debian-tracker": _OUTSIDE,
    "px run --sandbox playwright install": _OUTSIDE,
    "px run --sandbox python scrape.py": _OUTSIDE,
    "px base lock": _MAINTAINERS,
    "export PX_ALPINE_MIRROR=": _MAINTAINERS,
    "python tests/metaflow_core.py": _MAINTAINERS,
    "docker login": _ACCOUNT,
    "gpg --export": _ACCOUNT,
    "PX_CACHE_KEYS=": "the keys are those of the line above it; supply/test_cache.py signs",
    "export E2B_API_KEY": _ACCOUNT,
    "export METAFLOW_": _ACCOUNT,
    "export PX_EXTRA_CA_CERTS": "a path of the reader's; oci/ pushes to a registry with such a certificate",
    "python flow.py --": _ACCOUNT,
    "px run --sandbox --gpu": "it needs a GPU",
    "px test --sandbox --gpu": "it needs a GPU",
    "python flow.py card view": "it opens a browser",
    "px sandbox templates": _ACCOUNT,
    "export DAYTONA_API_KEY": _ACCOUNT,
    "python3 -m venv /shared": _CLUSTER,
    "export PX_HOME=/shared": _CLUSTER,
    "srun ": _CLUSTER,
    "px add 'ray[default]'": _CLUSTER,
    "px run --sandbox ray ": _CLUSTER,
}


def reason(one: Documented) -> str | None:
    return next((why for start, why in NOT_RUN.items() if one.text.startswith(start)), None)


UNRUN = frozenset(one for one in documented() if reason(one) is not None)

# --- scenes ----------------------------------------------------------------------------------------------------

HOST = (
    *on("README.md", "cd my-uv-project", "px status", "px sync"),
    *on(CI, "px sync --frozen", "px status --check"),
    *on(UPGRADE, "px status"),
    *on("docs/how-to/allow-user-namespaces.md", "px doctor"),
    *on("docs/reference/commands.md"),
    *on(CAPABILITIES, without=UNRUN),
    *on(DISK),
)
SHOP = (
    *on(
        "README.md", 'px run --sandbox python -c "import psycopg2"', "px test --sandbox", "px pack image --out app.tar"
    ),
    *on(
        "README.md", "px run --sandbox pytest", "px sandbox explain", "px sync --sandbox --frozen && px test --sandbox"
    ),
    *on(CI, "px sync --sandbox --frozen", "px test --sandbox"),
    *on("docs/reference/network.md"),
    *on("docs/how-to/other-programs.md"),
)
PLAIN = on("README.md", "px run pytest")
FIRST = on(TUTORIAL)
DOCKERFILE = on("docs/how-to/from-a-dockerfile.md")
PINNING = (
    *on(PINS),
    *on(UPGRADE, "px sandbox pin", "px sandbox update", "px sync --sandbox"),
    *on("docs/reference/bases.md", "px sandbox pin"),
    *on("docs/how-to/use-a-provider.md", "px sandbox add apt", "px sandbox pin", "px sandbox remove apt"),
    *on(CI, "px sandbox outdated --security", "px sandbox audit --advisories advisories/ --sarif audit.sarif"),
    *on(AUDIT, without=UNRUN),
)
REGISTRY = (*on(PUSH, without=UNRUN), *on(CI, "px pack image --tag registry.example.org/app:1.0 --push"))
REGISTRY = (*REGISTRY, *on(CACHE, without=UNRUN), *on(OFFLINE, without=UNRUN))
FLOW = (
    *on("README.md", "python flow.py run --with sandbox"),
    *(one for one in on(METAFLOW, without=UNRUN) if one.text != "cd examples/flow"),
)
ENTER = on(METAFLOW, "cd examples/flow")
LOOKING = (*on("docs/how-to/look-at-a-sandbox.md"), *on("docs/reference/manifest.md", without=UNRUN))
SCENES = (HOST, SHOP, PLAIN, FIRST, DOCKERFILE, PINNING, REGISTRY, ENTER, FLOW, LOOKING)


def test_every_command_is_run_or_has_a_reason() -> None:
    played = {one.text for scene in SCENES for one in scene}
    assert not played & {one.text for one in UNRUN}, "run and not run"
    left = [str(one) for one in documented() if one.text not in played and one not in UNRUN]
    assert left == [], "play it in a scene, or say in NOT_RUN why not"
    assert [start for start in NOT_RUN if not any(one.text.startswith(start) for one in documented())] == []


def test_finding_commands() -> None:
    page = "```sh\n# why\npx a  # b\npx 'x # y' \\\n  -v\n```\n```console\n$ px c\nsaid\n```\n```\npx not\n```\n"
    assert list(commands(page)) == ["px a", "px 'x # y' -v", "px c"]


def test_commands_on_the_host(app: Path, index: Index, tmp_path: Path) -> None:
    """With the real default home below HOME, which the last command removes."""
    home = tmp_path / "home"
    (home / ".config/fish/completions").mkdir(parents=True)
    shutil.move(app, home / "my-uv-project")
    said = play(HOST, home, {"HOME": str(home), "PX_HOME": ""})
    assert "postgres" in said
    assert "complete -c px" in (home / ".config/fish/completions/px.fish").read_text()
    assert not (home / ".px").exists()


def example(name: str, to: Path) -> Path:
    """An example of the repository, locked and committed."""
    shutil.copytree(REPO / "examples" / name, to, ignore=shutil.ignore_patterns(".px", ".metaflow", "uv.lock"))
    (to / "report.py").write_text("print('a report')\n")
    subprocess.run([UV, "lock", "--quiet"], cwd=to, check=True)
    return committed(to)


def committed(root: Path) -> Path:
    (root / ".gitignore").write_text(".px/\n*.tar\n*.bundle\n.metaflow/\n__pycache__/\n*.egg-info/\n")
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "first"]):
        subprocess.run(["git", *command], cwd=root, env=WHO, check=True)
    return root


@pytest.mark.slow
@pytest.mark.network
def test_commands_of_the_shop(tmp_path: Path, warm_home: Home) -> None:
    need("bubblewrap")
    root = example("shop", tmp_path / "shop")
    (tmp_path / "jq").write_text("#!/bin/sh\n")
    said = play(SHOP, root, {"PX_HOME": str(warm_home.root)}, {"/usr/local/bin/jq:": f"{tmp_path}/jq:"})
    assert said.count("a report") == 2
    assert "file: psycopg2" in said


@pytest.mark.slow
@pytest.mark.network
def test_commands_of_a_plain_project(tmp_path: Path, warm_home: Home) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "plain"\nversion = "1"\nrequires-python = ">=3.11"\n[dependency-groups]\ndev = ["pytest"]\n'
    )
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    subprocess.run([UV, "lock", "--quiet"], cwd=tmp_path, check=True)
    assert "1 passed" in play(PLAIN, tmp_path, {"PX_HOME": str(warm_home.root)})


@pytest.mark.slow
@pytest.mark.network
def test_commands_of_the_tutorial(tmp_path: Path, warm_home: Home) -> None:
    need("bubblewrap", "dockerd")
    with running_docker() as engine:
        said = play(FIRST, tmp_path, {"PX_HOME": str(warm_home.root), "DOCKER_HOST": engine.host})
    assert "Debian GNU/Linux 12" in said
    assert "Hello from shop" in said


@pytest.mark.slow
@pytest.mark.network
def test_commands_of_a_dockerfile(tmp_path: Path, warm_home: Home) -> None:
    need("bubblewrap")
    (tmp_path / "web").mkdir()
    (tmp_path / "web/requirements.txt").write_text("flask\n")
    assert "Base: debian-12" in play(DOCKERFILE, tmp_path / "web", {"PX_HOME": str(warm_home.root)})


@pytest.mark.slow
@pytest.mark.network
def test_commands_about_pins_and_advisories(tmp_path: Path, warm_home: Home) -> None:
    need("bubblewrap")
    root = tmp_path / "app"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["jinja2==3.1.2"]\n'
        "[tool.px.sandbox.capabilities]\npostgres = true\n"
    )
    subprocess.run([UV, "lock", "--quiet"], cwd=root, check=True)
    (root / "advisories").mkdir()
    (root / "advisories/jinja2.json").write_text(json.dumps(advisories.JINJA2))
    shown = re.search(r"^```json\n(.*?)^```", (REPO / AUDIT).read_text(), re.MULTILINE | re.DOTALL)
    assert shown is not None
    (root / "vex.json").write_text(shown[1])
    said = play(PINNING, root, {"PX_HOME": str(warm_home.root)})
    assert "CVE-2024-22195" in said
    assert (root / "audit.sarif").is_file()


@pytest.mark.slow
def test_commands_that_look_at_sandboxes(app: Path, index: Index, warm_home: Home, tmp_path: Path) -> None:
    """Two commits, an image of each, and the ids of both, which take the place of those on the page."""
    need("bubblewrap")
    env = {"PX_HOME": str(warm_home.root), "TMPDIR": str(tmp_path / "temporary"), "PX_PATIENCE": "3600"}
    (tmp_path / "temporary").mkdir()
    ids = []
    for dependency, name in (("hello", "old"), ("needs-new", "new")):
        manifest = (app / "pyproject.toml").read_text()
        (app / "pyproject.toml").write_text(
            manifest.replace('dependencies = ["hello"]', f'dependencies = ["{dependency}"]')
        )
        subprocess.run([UV, "lock", "--quiet"], cwd=app, check=True)
        committed(app)
        subprocess.run(["git", "branch", "-M", "main"], cwd=app, check=True)
        play([Documented("", f"px {c}") for c in ("sync --sandbox", f"pack image --out {name}.tar")], app, env)
        said = play([Documented("", "px sandbox diff HEAD --json")], app, env)
        ids.append(re.findall(r'"sbx_id": "([0-9a-f]{12})', said)[1])
    shown = re.findall(r"[0-9a-f]{12}", " ".join(one.text for one in LOOKING))
    said = play(LOOKING, app, env, dict(zip(shown, ids, strict=True)))
    assert said.count("needs-new") >= 4
    assert "Valid file" in said
    assert (app / "sandbox.html").is_file()


@pytest.mark.slow
@pytest.mark.network
def test_commands_with_a_registry(tmp_path: Path, warm_home: Home) -> None:
    """The registry of the pages is one on loopback, which skopeo is told to be without TLS."""
    need("bubblewrap", "skopeo")
    root = tmp_path / "app"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["idna"]\n'
        '[tool.px]\ntest = ["python", "-c", "import idna"]\n'
    )
    subprocess.run([UV, "lock", "--quiet"], cwd=root, check=True)
    committed(root)
    home, env = tmp_path / "home", {"PX_HOME": str(warm_home.root)}
    (home / ".config/containers").mkdir(parents=True)
    play((Documented("", "px sync --sandbox"), Documented("", "px bundle export app.bundle")), root, env)
    digest = play((Documented("", "px bundle export app.bundle"),), root, env).split()[-1]
    with registry.running() as server:
        insecure = f'[[registry]]\nlocation = "{server.host}"\ninsecure = true\n'
        (home / ".config/containers/registries.conf").write_text(insecure)
        shown = re.search(r"sha256:[0-9a-f]{64}", "".join(one.text for one in on(OFFLINE)))
        assert shown is not None
        replace = {"registry.example.org": server.host, shown[0]: digest}
        env |= {"HOME": str(home), "PX_CACHE": f"{server.host}/team/px-cache"}
        play(REGISTRY, root, env, replace)


@pytest.mark.slow
@pytest.mark.network
def test_commands_of_the_flow(tmp_path: Path, warm_home: Home) -> None:
    need("bubblewrap")
    example("flow", tmp_path / "examples/flow")
    env = {"PX_HOME": str(warm_home.root), "USERNAME": "me", "METAFLOW_USER": "me", "HOME": str(tmp_path)}
    said = play((*ENTER, *FLOW), tmp_path, env)
    assert "Debian GNU/Linux 12" in said
