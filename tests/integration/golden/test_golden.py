"""Known ids: bases, sandboxes and images of four projects, made from nothing but the downloads.

Every number in the recipes of px (``RECIPE…``, ``SBX_VERSION``, ``LAYOUT``) stands for bytes.  When a test here fails,
the change at hand makes something else of the same inputs: raise the number of the recipe that it belongs to, so that
nobody keeps what an older px made, and write the new ids down here.  The projects have wheels only, each pinned.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from px.home import Home
from tests.integration.sandbox.homes import DOWNLOADS, clone
from tests.support.needs import only_for
from tests.support.px import run_px

HERE = Path(__file__).parent
BASES = {
    "debian-12 amd64": "85abcece36a4a86fa5a7b65dc45ebc410fc0199dc3664d52c8e5bb34069679c4",
    "debian-12 arm64": "17d45a7a689e33a4600225c70c4f588b5eab21d7734b440b22991b1fdfcef2b6",
    "debian-13 amd64": "0925f3d9381f0990eff71dd900a3265c0d7747a35220dbb9f2652fd92f13d242",
    "debian-13 arm64": "13b542ea894cd09e445a7ffc16daefb41edacfcb7d1d5743b99f8b7a68d3a5e9",
}
PLAIN = """\
[project]
name = "plain"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["attrs==24.2.0", "idna==3.10"]

[tool.px.sandbox]
base = "debian-12"
exclude = ["uv.lock"]
"""
NUMBERS = """\
[project]
name = "numbers"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["numpy==2.1.3", "pillow==11.0.0"]

[project.scripts]
numbers = "numbers_app:main"

[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[tool.px.sandbox]
base = "debian-12"
exclude = ["uv.lock"]

[tool.px.sandbox.capabilities]
xml = true
curl = true
"""
_FLASK = (
    '["flask==3.1.0", "werkzeug==3.1.3", "jinja2==3.1.4", "itsdangerous==2.2.0", "click==8.1.7", '
    '"blinker==1.9.0", "markupsafe==3.0.2"]'
)
WEB = f"""\
[project]
name = "web"
version = "1.0"
requires-python = ">=3.11"
dependencies = {_FLASK}

[tool.px.sandbox]
base = "debian-13"
exclude = ["uv.lock"]

[tool.px.sandbox.capabilities]
postgres = true
"""
MANIFESTS = {"plain": PLAIN, "numbers": NUMBERS, "web": WEB}
DATE = "2026-01-02T03:04:05Z"
GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (
        ("NAME", "a"), ("EMAIL", "a@example.org"), ("DATE", DATE))},
}  # fmt: skip


@pytest.fixture
def cold_home(warm_home: Home, tmp_path: Path) -> Home:
    """A home with the downloads only: everything else is made here and now."""
    only_for("a mirror that has every shipped pin", "bases that are locked anew have other ids")
    return clone(warm_home, Home(tmp_path / "home"), DOWNLOADS)


def make(name: str, root: Path) -> Path:
    """One of the projects, committed at a fixed time."""
    if name in MANIFESTS:
        root.mkdir()
        (root / "pyproject.toml").write_text(MANIFESTS[name])
        (root / f"{name}_app.py").write_text("def main():\n    print('hello')\n")
        (root / ".gitignore").write_text("uv.lock\n")
    else:
        shutil.copytree(HERE / name, root)
        (root / "gitignore").rename(root / ".gitignore")
    for command in (["init", "-q", "-b", "main", "."], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        subprocess.run(["git", *command], cwd=root, env={**os.environ, **GIT}, check=True)
    return root


def ids(root: Path, home: Home, platform: str) -> dict[str, Any]:
    done = run_px("pack", "image", "--json", "--platform", platform, cwd=root, PX_HOME=str(home.root))
    details = json.loads(done.stdout)["details"]
    return {**details["images"][0], "digest": details["digest"]}


@pytest.mark.network
@pytest.mark.parametrize(
    ("name", "base", "sbx_id", "digest"),
    [
        (
            "plain",
            "debian-12 amd64",
            "3cd72e2627c71b1d51482864742cba632f51971f7b6123cb1ccee3e2835815de",
            "sha256:fc23e27ff8e99863dcee4daa63d25bfe24263de4b56c4195242b560671d1db2b",
        ),
        pytest.param(
            "plain",
            "debian-12 arm64",
            "08fecbeaa9d6e8ccce23363ec6908217fa7bfa7dc7f166ab622e8e9a153eeacf",
            "sha256:211ade03806de7f12d0e2d1761b661344f2dde373c88cf0c403967d65189e621",
            marks=pytest.mark.slow,
        ),
        (
            "numbers",
            "debian-12 amd64",
            "0a1f4601db102a44cb09b712fe3de71993ccad0077cdb792ff588216970c8473",
            "sha256:d08b562d53f7016389c5899bb1537eeea0832a709cdc1cf14c6f74fd964b2f36",
        ),
        (
            "web",
            "debian-13 amd64",
            "ca92f89cf4313c370152c1c9aa7c00561c53672c946e9036e3bef78955c7118b",
            "sha256:fd088425c28f0bdad8317e18de459f0c336ebed4ad52041f52509b061a228e0b",
        ),
        pytest.param(
            "web",
            "debian-13 arm64",
            "f8c174db91308fe5a1573059f469c59bc6ca044e23b9d3a8d9f6ba6d1739ad79",
            "sha256:397ee8e0c5b9c10d73f4d106128debddfcc3051de4304a8ee897e3d6f6aa4ae3",
            marks=pytest.mark.slow,
        ),
        (
            "shop",
            "debian-12 amd64",
            "e3cae7695b70f8f775f63fbe897953bfc976dc8d66ff886cd7e6e7bc92b2de6e",
            "sha256:96aedeaf6d93c4494d771bd2487f45eef82e8d1e9b2bd32260abd405fef5b258",
        ),
    ],
)
def test_ids(cold_home: Home, tmp_path: Path, name: str, base: str, sbx_id: str, digest: str) -> None:
    root = make(name, tmp_path / name)
    run_px("sync", "--sandbox", "--no-dev", cwd=root, PX_HOME=str(cold_home.root))
    found = ids(root, cold_home, f"linux/{base.split()[1]}")
    assert (found["base_os_oid"], found["sbx_id"], found["digest"]) == (BASES[base], sbx_id, digest)
