"""An index on loopback with a handful of small wheels, for every test that needs packages but not the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from px.home import Home
from px.workflow.tasks.packages import task_pins
from tests.support.bases import usable_locks
from tests.support.index import Index, serving
from tests.support.wheels import WheelSpec

CLI = "[console_scripts]\nhello = hello:main\n"
HELLO = b"import sys, leaf\ndef main():\n    print('hello', *sys.argv[1:])\n    return 3\n"
SPECS = [
    WheelSpec("leaf", "1.0"),
    WheelSpec("leaf", "2.0"),
    WheelSpec("hello", "1.0", files={"hello/__init__.py": HELLO}, requires=("leaf<2",), entry_points=CLI),
    WheelSpec("needs-new", "1.0", requires=("leaf>=2",)),
    WheelSpec("ns-one", "1.0", files={"ns/one.py": b"ONE = 1\n"}),
    WheelSpec("ns-two", "1.0", files={"ns/two.py": b"TWO = 2\n", "ns_two.pth": b"import os; os.NS_TWO = 1\n"}),
    WheelSpec("with-data", "1.0", files={"with_data-1.0.data/data/share/with-data/x.txt": b"x"}),
    WheelSpec("scripted", "1.0", files={"scripted-1.0.data/scripts/old-style": b"#!python\nprint('old style')\n"}),
    WheelSpec("linter", "1.0"),
    WheelSpec("extra-thing", "1.0"),
    # What a task of Metaflow needs; px prefers the older ones (src/px/data/tasks.toml).
    WheelSpec("boto3", task_pins()["boto3"], requires=("botocore",)),
    WheelSpec("boto3", "99.0", requires=("botocore",)),
    WheelSpec(
        "botocore", task_pins()["botocore"], entry_points="[console_scripts]\nbotocore-says = botocore:VERSION\n"
    ),
    WheelSpec("requests", task_pins()["requests"]),
    WheelSpec("requests", "99.0"),
]


@pytest.fixture(scope="session", autouse=True)
def _usable_bases(warm_home: Home) -> Iterator[None]:
    """Bases whose packages the mirror still has: locked anew when the shipped pins have gaps."""
    found = usable_locks(warm_home.root / "tests" / "usable-bases")
    with pytest.MonkeyPatch.context() as patch:
        if found is not None:
            patch.setenv("PX_BASES", str(found))
        yield


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheelhouse")
    for spec in SPECS:
        spec.write(directory)
    return directory


@pytest.fixture
def index(wheelhouse: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    """The index, set as uv's default, with uv's cache in the test's own directory."""
    with serving(wheelhouse) as found:
        monkeypatch.setenv("UV_DEFAULT_INDEX", found.url)
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
        yield found


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A locked-nothing project that depends on ``hello``."""
    root = tmp_path / "app"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "0.1"\nrequires-python = ">=3.11"\ndependencies = ["hello"]\n'
        '[project.optional-dependencies]\nmore = ["extra-thing"]\n'
        '[dependency-groups]\nlint = ["linter"]\n'
        '[tool.px.env]\nAPP_MODE = "test"\n'
    )
    return root
