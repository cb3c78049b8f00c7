"""Discovery, manifests, selections, records and chains."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from px.errors import PxError
from px.home import Home
from px.process import Finished
from px.project import situation as records
from px.project.context import Context
from px.project.discovery import discover, try_discover
from px.project.lock import read_pylock
from px.project.manifest import Manifest
from px.project.selection import Selection
from px.project.uv import explain, failure
from px.store.objects import Store
from px.warm import record as warm
from px.warm.record import VERSION
from px.workflow.door import restoring
from px.workflow.status import gather
from px.workflow.why import chains


def project(root: Path, text: str = '[project]\nname = "a"\n') -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").write_text(text)
    return root


def test_found_from_below(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    below = root / "src" / "deep"
    below.mkdir(parents=True)
    assert discover(below).root == root


def test_tool_settings_alone_are_no_project(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    below = project(root / "scripts", "[tool.ruff]\n")
    assert discover(below).root == root


def test_nothing_is_px001(tmp_path: Path) -> None:
    assert try_discover(tmp_path) is None
    with pytest.raises(PxError, match="PX001"):
        discover(tmp_path)


def test_what_an_env_depends_on_besides_manifest_and_lock(tmp_path: Path) -> None:
    root = project(
        tmp_path / "p",
        '[project]\nname = "a"\n[build-system]\n'
        '[tool.uv]\ncache-keys = [{ file = "src/**/*.c" }, "more.txt", { git = { commit = true } }]\n'
        '[tool.uv.sources]\nb = { path = "../b" }\nc = [{ path = "c.whl" }, { index = "i" }]\n',
    )
    for name in ("src/deep/x.c", "src/x.py", "more.txt", "c.whl"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    found = {os.path.relpath(path, root) for path in discover(root).inputs}
    of_b = {"../b/pyproject.toml", "../b/setup.py", "../b/setup.cfg"}
    known = {"pyproject.toml", "uv.lock", "uv.toml", ".python-version", "setup.py", "setup.cfg"}
    assert found == {"src/deep/x.c", "more.txt"} | of_b | known
    plain = project(tmp_path / "plain")
    assert {path.name for path in discover(plain).inputs} == {"pyproject.toml", "uv.lock", "uv.toml", ".python-version"}
    wrong = project(tmp_path / "wrong", '[project]\nname = "a"\n[tool.uv]\nsources = 5\n')
    with pytest.raises(PxError, match="PX003"):
        discover(wrong)


def workspace(tmp_path: Path) -> Path:
    members = 'members = ["packages/*", "tools"]\nexclude = ["packages/old"]\n'
    root = project(tmp_path / "w", f'[project]\nname = "root"\n[tool.uv.workspace]\n{members}')
    for name in ("packages/b", "packages/a", "packages/old", "tools", "elsewhere"):
        project(root / name, f'[project]\nname = "{Path(name).name}"\n')
    (root / "packages" / "no-manifest").mkdir()
    return root


def test_workspace_members_globs_and_exclude(tmp_path: Path) -> None:
    found = discover(workspace(tmp_path))
    assert found.is_workspace
    assert [m.name for m in found.members] == ["a", "b", "tools"]


def test_a_member_belongs_to_its_workspace(tmp_path: Path) -> None:
    root = workspace(tmp_path)
    found = discover(root / "packages" / "a")
    assert found.root == root
    assert found.name == "a"


@pytest.mark.parametrize("outside", ["packages/old", "elsewhere"])
def test_what_is_excluded_or_not_matched_stands_alone(tmp_path: Path, outside: str) -> None:
    root = workspace(tmp_path)
    found = discover(root / outside)
    assert found.root == root / outside
    assert not found.is_workspace


def test_pylock_counts_only_without_uv_lock(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    assert discover(root).lock.name == "uv.lock"
    (root / "pylock.toml").write_text("")
    assert discover(root).uses_pylock
    (root / "uv.lock").write_text("")
    assert discover(root).lock.name == "uv.lock"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[project\n", "PX002"),
        ("project = 1\n", "must be a table"),
        ("[project]\nname = 1\n", "project.name must be a string"),
        ("[tool.px]\ntest = 'pytest'\n", "must be an array of strings"),
        ("[tool.px.env]\nA = 1\n", "tool.px.env.A must be a string"),
        ("[tool.px]\nsandbx = 1\n", "no key 'sandbx'"),
        ("[project]\nname='a'\n[tool.uv.workspace]\nmembers = [1]\n", "must be an array of strings"),
    ],
)
def test_bad_manifests_are_named(tmp_path: Path, text: str, said: str) -> None:
    root = project(tmp_path / "p", text)
    with pytest.raises(PxError) as caught:
        _ = Manifest.read(root / "pyproject.toml").workspace
    assert said in str(caught.value)
    assert str(root / "pyproject.toml") in str(caught.value)


def test_a_selection_survives_the_record() -> None:
    chosen = Selection(groups=("a",), extras=("x",), all_extras=True, default_groups=False, python="3.12")
    assert Selection.from_json(json.loads(json.dumps(chosen.as_json()))) == chosen
    assert chosen.uv_flags() == ["--group", "a", "--extra", "x", "--all-extras", "--no-default-groups"]


def parts_of(record: records.ProjectRecord, root: Path) -> dict[str, str]:
    record.look(discover(root))
    return dict(record.parts)


def test_the_record_sees_content_not_times(home: Home, tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    record = records.load(home, root)
    first = parts_of(record, root)
    (root / "pyproject.toml").touch()
    assert parts_of(record, root) == first
    (root / "pyproject.toml").write_text("[project]\nname = 'b'\n")
    assert parts_of(record, root) != first
    (root / "pyproject.toml").write_text('[project]\nname = "a"\n')
    assert parts_of(record, root) == first
    (root / "uv.lock").write_text("")
    assert parts_of(record, root).keys() - first.keys() == {"uv.lock"}


@pytest.mark.parametrize(
    "more",
    [
        "# a comment\n",
        "[tool.ruff]\nline-length = 1\n",
        '[tool.px]\ntest = ["tox"]\n',
        "[tool.px.sandbox]\n",
        "[tool]\n",
    ],
)
def test_what_nothing_is_built_from_does_not_count(home: Home, tmp_path: Path, more: str) -> None:
    root = project(tmp_path / "p")
    record = records.load(home, root)
    first = parts_of(record, root)
    (root / "pyproject.toml").write_text('[project]\nname = "a"\n' + more)
    assert record.look(discover(root)), "the file is another one, which the next warm run must know"
    assert record.parts == first


def test_the_sandboxs_table_is_a_part_of_its_own(home: Home, tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    record = records.load(home, root)
    first = parts_of(record, root)
    (root / "pyproject.toml").write_text('[project]\nname = "a"\n[tool.px.sandbox]\nbase = "debian-13"\n')
    now = parts_of(record, root)
    assert {name for name in now if now[name] != first.get(name)} == {"[tool.px.sandbox]"}
    assert warm.parts_of(now, warm.HOST) == first
    (root / "pyproject.toml").write_text('[project]\nname = "a"\n[tool.px.sandbox]\nexclude = ["x"]\n')
    assert parts_of(record, root) == first, "px pack image reads it anew"


def test_what_describes_local_dependencies_is_an_input_too(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    sources = ['editable = "."', 'virtual = "../v"', 'directory = "vendored/d"', 'registry = "https://index.example"']
    packages = [f'[[package]]\nname = "n{i}"\nsource = {{ {source} }}\n' for i, source in enumerate(sources)]
    (root / "uv.lock").write_text("version = 1\n\n" + "\n".join(packages))
    found = [os.path.relpath(path, root) for path in discover(root).inputs]
    for directory in ("", "../v/", "vendored/d/"):
        assert {f"{directory}{name}" for name in ("pyproject.toml", "setup.py", "setup.cfg")} <= set(found)
    assert len(found) == len(set(found)) == 3 * 3 + 3


def test_a_change_within_the_same_instant_is_seen(home: Home, tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    record = records.load(home, root)
    first = parts_of(record, root)
    record.save()
    st = (root / "pyproject.toml").stat()
    (root / "pyproject.toml").write_text('[project]\nname = "b"\n')
    import os

    os.utime(root / "pyproject.toml", ns=(st.st_atime_ns, st.st_mtime_ns))
    assert parts_of(records.load(home, root), root) != first


def test_a_damaged_record_is_forgotten(home: Home, tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    path = records.record_path(home, root)
    path.parent.mkdir(parents=True)
    for text in ("", "{", '{"version": 99}', "[]", f'{{"version": {VERSION}}}'):
        path.write_text(text)
        assert records.load(home, root).envs == {}


def test_restoring_puts_everything_back(tmp_path: Path) -> None:
    kept, new = tmp_path / "kept", tmp_path / "new"
    kept.write_bytes(b"before")
    kept.chmod(0o640)

    def interrupted() -> None:
        with restoring([kept, new]):
            kept.write_bytes(b"after")
            new.write_bytes(b"x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert kept.read_bytes() == b"before"
    assert kept.stat().st_mode & 0o777 == 0o640
    assert not new.exists()


LOCK = """
version = 1
[[package]]
name = "app"
version = "0.1"
source = { editable = "." }
dependencies = [{ name = "web" }, { name = "tool", marker = "sys_platform == 'linux'" }]
[package.dev-dependencies]
dev = [{ name = "leaf" }]
[[package]]
name = "web"
version = "2"
source = { registry = "r" }
dependencies = [{ name = "leaf" }, { name = "loop" }]
[[package]]
name = "tool"
version = "3"
source = { registry = "r" }
dependencies = [{ name = "leaf" }]
[[package]]
name = "loop"
version = "1"
source = { registry = "r" }
dependencies = [{ name = "web" }]
[[package]]
name = "leaf"
version = "4"
source = { registry = "r" }
"""


def test_status_names_the_groups_and_extras_of_all_members(home: Home, tmp_path: Path) -> None:
    groups = "[dependency-groups]\n{} = []\n"
    root = project(tmp_path / "w", '[tool.uv.workspace]\nmembers = ["a"]\n' + groups.format("dev"))
    project(root / "a", '[project]\nname = "a"\n[project.optional-dependencies]\nx = []\n' + groups.format("lint"))
    status = gather(Context(Store(home, offline=True), root))
    assert (status.groups, status.extras) == (("dev", "lint"), ("x",))


def test_why_shows_every_chain(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    (root / "uv.lock").write_text(LOCK)
    found = [" > ".join(map(str, c)) for c in chains(discover(root), "Leaf")]
    assert found[0] == "app 0.1 > leaf 4 (group dev)"
    assert "app 0.1 > web 2 > leaf 4" in found
    assert "app 0.1 > tool 3 (sys_platform == 'linux') > leaf 4" in found
    assert len(found) == 3
    with pytest.raises(PxError) as caught:
        chains(discover(root), "lef")
    assert "leaf" in str(caught.value)


FORKED = """
version = 1
[manifest]
members = ["app", "core"]
[[package]]
name = "app"
version = "0.1"
source = { virtual = "." }
dependencies = [
    { name = "core" },
    { name = "leaf", version = "1", source = { registry = "r" }, marker = "python_full_version < '3.12'" },
    { name = "leaf", version = "2", source = { registry = "r" }, marker = "python_full_version >= '3.12'" },
]
[[package]]
name = "core"
version = "0.2"
source = { editable = "core" }
dependencies = [{ name = "vendored" }]
[[package]]
name = "vendored"
version = "0.3"
source = { virtual = "vendored" }
dependencies = [{ name = "deep" }]
[[package]]
name = "deep"
version = "5"
source = { registry = "r" }
[[package]]
name = "leaf"
version = "1"
source = { registry = "r" }
[[package]]
name = "leaf"
version = "2"
source = { registry = "r" }
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "leaf",
            ["app 0.1 > leaf 1 (python_full_version < '3.12')", "app 0.1 > leaf 2 (python_full_version >= '3.12')"],
        ),
        ("core", ["core 0.2", "app 0.1 > core 0.2"]),
        ("deep", ["core 0.2 > vendored 0.3 > deep 5"]),
    ],
)
def test_why_knows_versions_members_and_dependencies_by_path(tmp_path: Path, name: str, said: list[str]) -> None:
    root = project(tmp_path / "p")
    (root / "uv.lock").write_text(FORKED)
    assert [" > ".join(map(str, c)) for c in chains(discover(root), name)] == said


# --- manifests and locks that somebody made to harm ---------------------------------------------------------------

HOSTILE = {
    "deep": "a = " + "[" * 5000 + "]" * 5000,
    "deep keys": ".".join("a" * 3000) + " = 1",
    "a number": "a = " + "9" * 5000,
    "not text": "a = '\udcff'",
    "variable with =": '[project]\nname = "a"\n[tool.px.env]\n"LD_PRELOAD=/evil.so\\u0000" = "x"\n',
    "variable with = alone": '[project]\nname = "a"\n[tool.px.env]\n"A=B" = "x"\n',
    "variable without a name": '[project]\nname = "a"\n[tool.px.env]\n"" = "x"\n',
    "value with NUL": '[project]\nname = "a"\n[tool.px.env]\nA = "x\\u0000LD_PRELOAD=y"\n',
    "test with NUL": '[project]\nname = "a"\n[tool.px]\ntest = ["a\\u0000"]\n',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_manifest(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(HOSTILE[name], encoding="utf-8", errors="surrogateescape")
    with pytest.raises(PxError) as caught:
        Manifest.read(path)
    assert caught.value.code in ("PX002", "PX003")


@pytest.mark.parametrize("name", ["deep", "deep keys", "a number", "not text"])
def test_a_hostile_pylock(tmp_path: Path, name: str) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\n')
    (tmp_path / "pylock.toml").write_text(HOSTILE[name], encoding="utf-8", errors="surrogateescape")
    with pytest.raises(PxError, match="PX101"):
        read_pylock(discover(tmp_path))


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("error: Failed to build `app @ file:///src/app`\n", "build of app says.*instead of naming them under dynamic"),
        ("  x Failed to build `thing==1.0`\n", "build of thing says.*dependency-metadata"),
        ("  x Failed to download and build `thing==1.0`\n", "build of thing says.*dependency-metadata"),
        ("error: No solution found\n", "as asked"),
    ],
)
def test_the_remedy_for_a_build_that_failed_while_locking(said: str, remedy: str) -> None:
    assert re.search(remedy, failure("lock", Finished(1, "", said), "as asked").fix[0])


def test_a_hint_at_flags_of_uv_is_left_out_whole() -> None:
    hint = "hint: Either add it under:\n\n[tool.uv.extra-build-dependencies]\napp = ['x']\n\nor `uv pip install x`.\n"
    assert explain(f"error: Failed to build `app`\n{hint}") == "error: Failed to build `app`"
    assert explain(f"{hint}error: Failed\n  cause: y\n") == "error: Failed\n      cause: y"


def test_a_long_report_is_cut_in_the_middle() -> None:
    said = "\n".join(["error: Failed to build `app`", "  cause: Call failed", *(f"    line {n}" for n in range(500))])
    lines = explain(said).splitlines()
    assert len(lines) < 30
    assert lines[0] == "error: Failed to build `app`"
    assert lines[-1].strip() == "line 499"
