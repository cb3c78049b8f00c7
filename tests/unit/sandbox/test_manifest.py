"""Reading ``[tool.px.sandbox]``: what is right, and what every kind of mistake says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from px.engines.gpu.asked import Asked
from px.engines.network.modes import Wanted
from px.errors import PxError
from px.sandbox.manifest import SandboxManifest, governing_manifest, read_manifest

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_example_of_the_spec(tmp_path: Path) -> None:
    path = write(
        tmp_path / "pyproject.toml",
        '[tool.px.sandbox]\nbase = "debian-13"\nauto = true\n\n'
        "[tool.px.sandbox.capabilities]\npostgres = true\nxml = false\n",
    )
    found = read_manifest(path)
    expected = SandboxManifest(path, "debian-13", False, True, frozenset({"postgres"}), frozenset({"xml"}))
    assert found == expected


def test_nothing_said_means_the_defaults(tmp_path: Path) -> None:
    path = write(tmp_path / "pyproject.toml", "[project]\nname = 'x'\n")
    found = read_manifest(path)
    assert (found.base, found.base_is_default, found.auto) == ("debian-12", True, True)
    assert not found.enabled | found.disabled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Wanted()),
        ("[tool.px.sandbox.network]\nmode = 'none'\n", Wanted("none")),
        (
            "[tool.px.sandbox.network]\nallow = ['a.org', '10.0.0.0/8:22']\n",
            Wanted("allow", ("a.org", "10.0.0.0/8:22")),
        ),
    ],
)
def test_the_network(tmp_path: Path, text: str, expected: Wanted) -> None:
    assert read_manifest(write(tmp_path / "pyproject.toml", text)).network == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", Asked(1)), ("0", Asked(0)), ("'all'", Asked()), ("true", Asked()), ("false", Asked(0))],
)
def test_gpus(tmp_path: Path, value: str, expected: Asked) -> None:
    found = read_manifest(write(tmp_path / "pyproject.toml", f"[tool.px.sandbox]\ngpu = {value}\n")).gpu
    assert found == expected
    assert bool(found) == (value not in ("0", "false"))


def test_names_are_normalised(tmp_path: Path) -> None:
    path = write(tmp_path / "pyproject.toml", "[tool.px.sandbox.capabilities]\nPostgres = true\n")
    assert read_manifest(path).enabled == {"postgres"}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('[tool.px.sandbox]\nbase = "debian-12"\nbse = "x"\n', 3, "did you mean 'base'"),
        ("[tool.px.sandbox]\nbase = 12\n", 2, "must be a string"),
        ("\n\n[tool.px.sandbox]\n# yes\nauto = 'yes'\n", 5, "must be true or false"),
        ("[tool.px.sandbox]\ncapabilities = ['postgres']\n", 2, "must be a table"),
        ("[tool.px.sandbox]\nexclude = 'x'\n", 2, "must be an array of strings"),
        ("[tool.px.sandbox]\nexclude = [1]\n", 2, "must be an array of strings"),
        ("[tool.px.sandbox.capabilities]\ncurl = true\npostgres = 1\n", 3, "must be true or false, not 1"),
        ("[tool.px.sandbox.capabilities]\npostgres = true\nPostgres = true\n", 3, "twice"),
        ("[tool.px]\nsandbox = 3\n", 2, "must be a table"),
        ("[tool.px.sandbox]\nnetwork = 'none'\n", 2, "must be a table"),
        ("[tool.px.sandbox.network]\nmode = 'off'\n", 2, "must be one of host, none, allow"),
        ("[tool.px.sandbox.network]\nmode = 'allow'\nallow = 'a.org'\n", 3, "must be an array of strings"),
        ("[tool.px.sandbox.network]\nallow = ['a b']\n", 2, "'a b': it is neither a host's name nor an address"),
        ("[tool.px.sandbox.network]\nmode = 'none'\nallow = ['a.org']\n", 3, "with mode = 'allow' only"),
        ("[tool.px.sandbox.network]\nmode = 'none'\nalow = []\n", 3, "has no key 'alow'"),
        ("[tool.px]\nsandbox.auto = 3\n", 2, "must be true or false"),
        ("tool.px.sandbox.base = 3\n", 1, "must be a string"),
        ("[tool.px.sandbox]\ncapabilities = { postgres = 'on' }\n", 2, "must be true or false"),
        ("[tool.px.sandbox]\ngpu = -1\n", 2, "must be a number or 'all', not -1"),
        ("[tool.px.sandbox]\ngpu = 1.5\n", 2, "must be a number or 'all'"),
        ("[tool.px.sandbox]\ngpu = '1'\n", 2, "must be a number or 'all'"),
        ("[tool.px.sandbox]\ngpu = [0]\n", 2, "must be a number or 'all'"),
        ("[tool.px.sandbox]\npostgres = true\n", 2, "go into [tool.px.sandbox.capabilities]"),
    ],
)
def test_mistakes_name_the_file_and_the_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = write(tmp_path / "pyproject.toml", text)
    with pytest.raises(PxError) as caught:
        read_manifest(path)
    assert caught.value.code == "PX003"
    assert caught.value.what.startswith(f"{path}:{line}: ")
    assert said in caught.value.what


def test_an_unknown_capability_names_the_line_and_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "pyproject.toml", "[tool.px.sandbox.capabilities]\ncurl = true\npostgers = true\n")
    with pytest.raises(PxError) as caught:
        read_manifest(path)
    assert caught.value.code == "PX901"
    assert f"{path}:3" in caught.value.why[0]
    assert "'postgres'" in caught.value.fix[0]


def test_broken_toml_is_px002(tmp_path: Path) -> None:
    path = write(tmp_path / "pyproject.toml", "[tool.px.sandbox\n")
    with pytest.raises(PxError) as caught:
        read_manifest(path)
    assert caught.value.code == "PX002"


def test_the_workspace_root_wins_and_the_member_is_warned_about(tmp_path: Path) -> None:
    root = write(
        tmp_path / "pyproject.toml", "[tool.uv.workspace]\nmembers = ['a', 'b']\n[tool.px.sandbox]\nauto = false\n"
    )
    loud = write(tmp_path / "a" / "pyproject.toml", "[project]\nname = 'a'\n\n[tool.px.sandbox]\nbase = 'debian-13'\n")
    silent = write(tmp_path / "b" / "pyproject.toml", "[project]\nname = 'b'\n")
    manifest, warning = governing_manifest(root, loud)
    assert (manifest.base, manifest.auto) == ("debian-12", False)
    assert warning is not None
    assert f"{loud}:4" in warning
    assert governing_manifest(root, silent) == (manifest, None)
    assert governing_manifest(root) == (manifest, None)
    assert governing_manifest(loud, loud)[1] is None


def test_explicit_always_wins() -> None:
    inferred = frozenset({"postgres", "xml"})
    on, off = frozenset({"curl", "xml"}), frozenset({"postgres"})
    assert SandboxManifest(enabled=on, disabled=off).effective(inferred) == {"curl", "xml"}
    assert SandboxManifest(auto=False, enabled=on).effective(inferred) == on
    assert SandboxManifest().effective(inferred) == inferred
