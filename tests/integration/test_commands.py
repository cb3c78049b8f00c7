"""The commands on a real project with a real uv and a real index: what they do, refuse and leave alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.index import Index
from tests.support.needs import only_for
from tests.support.px import PX, UV, run_px, snapshot


def state(root: Path) -> str:
    found: str = json.loads(run_px("status", "--json", cwd=root).stdout)["details"]["host"]["state"]
    return found


@pytest.fixture
def synced(app: Path, index: Index) -> Path:
    run_px("sync", cwd=app)
    return app


def test_from_manifest_to_running(app: Path, index: Index) -> None:
    assert state(app) == "NeedsLock"
    done = run_px("sync", cwd=app)
    assert "env ready" in done.stderr
    assert done.stdout == ""
    assert state(app) == "Consistent"
    assert "up to date" in run_px("sync", cwd=app).stderr
    done = run_px("run", "hello", "--json", "a b", cwd=app, check=False)
    assert (done.returncode, done.stdout) == (3, "hello --json a b\n")
    code = "import os, sys, importlib.metadata as m; print(os.environ['APP_MODE'], m.version('leaf'), sys.prefix)"
    out = run_px("run", "python", "-c", code, cwd=app).stdout.split()
    assert out[:2] == ["test", "1.0"]
    assert out[2] == os.readlink(app / ".px/envs/current")


def test_only_px_appears_in_the_project_and_git_ignores_it(app: Path, index: Index) -> None:
    subprocess.run(["git", "init", "-q"], cwd=app, check=True)
    run_px("sync", cwd=app)
    subprocess.run(["git", "add", "-A"], cwd=app, check=True)
    tracked = subprocess.run(["git", "ls-files"], cwd=app, capture_output=True, text=True, check=True).stdout.split()
    assert tracked == ["pyproject.toml", "uv.lock"]
    assert sorted(p.name for p in app.iterdir()) == [".git", ".px", "pyproject.toml", "uv.lock"]


def test_add_and_remove(synced: Path) -> None:
    run_px("add", "ns-one", "ns-two", cwd=synced)
    code = "import ns.one, ns.two, os; print(ns.one.ONE + ns.two.TWO, os.NS_TWO)"
    assert run_px("run", "python", "-c", code, cwd=synced).stdout == "3 1\n"
    run_px("add", "--group", "extra", "with-data", "scripted", cwd=synced)
    run_px("sync", "--group", "extra", cwd=synced)
    assert (synced / ".px/envs/current/share/with-data/x.txt").read_text() == "x"
    assert run_px("run", "old-style", cwd=synced).stdout == "old style\n"
    run_px("remove", "ns-one", cwd=synced)
    assert run_px("run", "python", "-c", "import ns.one", cwd=synced, check=False).returncode == 1
    assert state(synced) == "Consistent"


@pytest.mark.parametrize(
    ("packages", "said"),
    [(["no-such-package"], "no-such-package"), (["needs-new"], "leaf"), (["not a requirement!"], "not a requirement")],
)
def test_a_failed_add_changes_nothing(synced: Path, packages: list[str], said: str) -> None:
    before, link = snapshot(synced), os.readlink(synced / ".px/envs/current")
    done = run_px("add", *packages, cwd=synced, check=False)
    assert done.returncode == 122
    assert done.stderr.startswith("PX100")
    assert said in done.stderr
    assert snapshot(synced) == before
    assert os.readlink(synced / ".px/envs/current") == link
    assert state(synced) == "Consistent"


def test_an_add_whose_env_cannot_be_built_changes_nothing(synced: Path, index: Index) -> None:
    before, link = snapshot(synced), os.readlink(synced / ".px/envs/current")
    index.gone.add("with_data-1.0-py3-none-any.whl")  # resolved from its metadata, then it cannot be fetched
    done = run_px("add", "with-data", cwd=synced, check=False)
    assert done.returncode == 123
    assert "PX201" in done.stderr
    assert "404" in done.stderr
    assert snapshot(synced) == before
    assert os.readlink(synced / ".px/envs/current") == link
    assert state(synced) == "Consistent"


def test_groups_and_extras_are_remembered(synced: Path) -> None:
    probe = ["run", "python", "-c", "import linter, extra_thing"]
    assert run_px(*probe, cwd=synced, check=False).returncode == 1
    run_px("sync", "--group", "lint", "--extra", "more", cwd=synced)
    run_px(*probe, cwd=synced)
    run_px("sync", cwd=synced)
    run_px(*probe, cwd=synced)
    run_px("sync", "--reset", cwd=synced)
    assert run_px(*probe, cwd=synced, check=False).returncode == 1
    assert "PX100" in run_px("sync", "--group", "nonsense", cwd=synced, check=False).stderr


def test_run_follows_the_lock_but_never_writes_it(synced: Path) -> None:
    lock = synced / "uv.lock"
    manifest = synced / "pyproject.toml"
    manifest.write_text(manifest.read_text().replace('["hello"]', '["hello", "ns-one"]'))
    before = snapshot(synced)
    done = run_px("run", "python", "-c", "pass", cwd=synced, check=False)
    assert done.returncode == 121
    assert "px sync" in done.stderr
    assert snapshot(synced) == before
    run_px("sync", cwd=synced)
    assert lock.read_bytes() != before["uv.lock"][1]
    run_px("run", "python", "-c", "import ns.one", cwd=synced)


@pytest.mark.parametrize("how", [{"flag": "--frozen"}, {"CI": "1"}, {"CI": "true"}])
def test_frozen_demands_consistency_and_writes_nothing(synced: Path, how: dict[str, str]) -> None:
    flags = [how["flag"]] if "flag" in how else []
    env: dict[str, Any] = {k: v for k, v in how.items() if k == "CI"}
    assert run_px("run", *flags, "python", "-c", "print(1)", cwd=synced, **env).stdout == "1\n"

    from px.store.tree import remove_tree

    remove_tree(Path(os.readlink(synced / ".px/envs/current")))
    before = snapshot(synced, ignore=())
    done = run_px("run", *flags, "python", "-c", "pass", cwd=synced, check=False, **env)
    assert done.returncode == 121
    assert "px sync --frozen" in done.stderr
    assert snapshot(synced, ignore=()) == before

    run_px("sync", *flags, cwd=synced, **env)
    manifest = synced / "pyproject.toml"
    manifest.write_text(manifest.read_text().replace('["hello"]', '["hello", "ns-one"]'))
    before = snapshot(synced, ignore=())
    for command in (["run", *flags, "python"], ["sync", *flags], ["test", *flags]):
        done = run_px(*command, cwd=synced, check=False, **env)
        assert done.returncode == 121, done.stderr
        assert "development machine" in done.stderr
    for command in (["add", *flags, "leaf"], ["remove", *flags, "hello"], ["update", *flags]):
        assert run_px(*command, cwd=synced, check=False, **env).stderr.startswith("PX011")
    assert snapshot(synced, ignore=()) == before


def test_a_missing_env_is_rebuilt_in_development(synced: Path) -> None:
    from px.store.tree import remove_tree

    remove_tree(Path(os.readlink(synced / ".px/envs/current")))
    assert run_px("run", "python", "-c", "print(1)", cwd=synced).stdout == "1\n"


def test_the_projects_link_is_that_of_the_home_in_use(synced: Path) -> None:
    current = synced / ".px/envs/current"
    ours = os.readlink(current)
    run_px("sync", cwd=synced, PX_HOME=str(synced.parent / "another-home"))
    assert os.readlink(current) != ours
    for removed in (False, True):
        if removed:
            current.unlink()
        assert "up to date" in run_px("sync", cwd=synced).stderr
        assert os.readlink(current) == ours


def test_a_wrong_hash_in_the_lock_is_refused(app: Path, index: Index) -> None:
    subprocess.run([UV, "lock", "-q"], cwd=app, check=True)
    lock = app / "uv.lock"
    text = lock.read_text()
    start = text.index("sha256:", text.index("hello-1.0-py3")) + 7
    right, wrong = text[start : start + 64], "0" * 64
    lock.write_text(text.replace(right, wrong))
    before = snapshot(app)
    done = run_px("sync", cwd=app, check=False)
    assert done.returncode == 123
    assert done.stderr.count("PX200") == 1
    assert right in done.stderr
    assert wrong in done.stderr
    assert snapshot(app) == before
    assert not (app / ".px").exists()
    home = Path(os.environ["PX_HOME"])
    assert not list((home / "envs").glob("*"))
    assert not list((home / "store/tmp").glob("*"))
    assert right not in [p.name for p in (home / "store/index").rglob("*")]


def test_a_hostile_wheel_is_refused(
    app: Path, wheelhouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.index import serving
    from tests.support.wheels import WheelSpec

    shutil.copytree(wheelhouse, tmp_path / "evil-index")
    WheelSpec("hello", files={"../../../../evil.py": b"x"}).write(tmp_path / "evil-index")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    with serving(tmp_path / "evil-index") as evil:
        monkeypatch.setenv("UV_DEFAULT_INDEX", evil.url)
        done = run_px("sync", cwd=app, check=False)
    assert done.returncode == 123
    assert "PX203" in done.stderr
    assert "hello" in done.stderr
    assert not list(tmp_path.rglob("evil.py"))
    assert not (app / ".px").exists()


def test_a_cut_connection_is_tried_again(app: Path, index: Index) -> None:
    subprocess.run([UV, "lock", "-q"], cwd=app, check=True)
    index.cut_after = 20
    run_px("sync", cwd=app)
    assert not index.cut_after
    run_px("run", "python", "-c", "import hello", cwd=app)


def test_offline_says_what_is_missing(app: Path, index: Index) -> None:
    subprocess.run([UV, "lock", "-q"], cwd=app, check=True)
    done = run_px("sync", "--offline", cwd=app, check=False)
    assert "PX202" in done.stderr
    run_px("sync", cwd=app)
    from px.store.tree import remove_tree

    remove_tree(Path(os.readlink(app / ".px/envs/current")))
    run_px("sync", "--offline", cwd=app)


def test_signals_stdin_and_codes_are_the_targets(synced: Path) -> None:
    echo = subprocess.run([PX, "run", "cat"], cwd=synced, input=b"\0in\n", capture_output=True, check=True)
    assert echo.stdout == b"\0in\n"
    for code in (0, 3, 255):
        assert run_px("run", "python", "-c", f"raise SystemExit({code})", cwd=synced, check=False).returncode == code
    assert run_px("run", "nothing-like-that", cwd=synced, check=False).returncode == 127
    bad = synced / "bad.sh"
    bad.write_text("#!/no/such/interpreter\n")
    bad.chmod(0o755)
    done = run_px("run", "./bad.sh", cwd=synced, check=False)
    assert (done.returncode, done.stderr[:5]) == (126, "PX021")
    with subprocess.Popen(
        [PX, "run", "sh", "-c", "echo up; exec sleep 60"], cwd=synced, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM


def test_gc_spares_the_env_of_a_running_target(synced: Path) -> None:
    from px.store.tree import remove_tree

    env = Path(os.readlink(synced / ".px/envs/current"))
    target = [str(PX), "run", "python", "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
    process = subprocess.Popen(target, cwd=synced, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    remove_tree(synced)
    other = env.parent.parent
    run_px("store", "gc", "--grace", "0", cwd=other)
    assert env.is_dir()
    process.communicate("")
    run_px("store", "gc", "--grace", "0", cwd=other)
    assert not env.exists()


def test_store_verify_repairs_by_unpacking_and_refetching(synced: Path) -> None:
    home = Path(os.environ["PX_HOME"])
    source = next(p for p in (home / "store/objects/source").iterdir())
    package = next(p for p in (home / "store/objects/pkg-build").glob("*/tree/lib/hello/__init__.py"))
    for path in (source / "data", package):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.chmod(0o644)
        path.write_bytes(content)
    done = run_px("store", "verify", "--no-repair", cwd=synced, check=False)
    assert "Repair them: px store verify" in done.stderr
    assert "pkg-build hello-1.0-py3-none-any.whl: left as it is" in done.stderr
    done = run_px("store", "verify", cwd=synced)
    assert source.name in done.stderr
    assert package.relative_to(home / "store/objects/pkg-build").parts[0] in done.stderr
    assert "2 damaged, 0 not repaired" in done.stdout
    assert run_px("store", "verify", cwd=synced).stdout.endswith("all whole\n")
    assert run_px("run", "hello", cwd=synced, check=False).returncode == 3


def test_gc_names_what_goes(synced: Path) -> None:
    run_px("remove", "hello", cwd=synced)
    said = run_px("store", "gc", "--grace", "0", "--dry-run", cwd=synced).stdout
    for kind in ("pkg-build", "source"):
        assert any(kind in line and "hello-1.0-py3-none-any.whl" in line for line in said.splitlines())


def test_store_verify_finds_what_is_missing(synced: Path) -> None:
    from px.store.tree import remove_tree

    package = next((Path(os.environ["PX_HOME"]) / "store/objects/pkg-build").glob("*/tree/lib/hello")).parents[2]
    remove_tree(package)
    record = next((Path(os.environ["PX_HOME"]) / "refs").glob("*.json"))
    old = record.with_name("old.json")
    old.write_text(json.dumps({"root": str(synced), "envs": {"host": {}}}))  # as another px may have written it
    done = run_px("store", "verify", "--no-repair", cwd=synced, check=False)
    assert "PX803" in done.stderr
    assert package.name in done.stderr
    done = run_px("store", "verify", cwd=synced)
    assert "it is missing" in done.stderr
    assert "1 damaged, 0 not repaired" in done.stdout
    assert run_px("store", "verify", cwd=synced).stdout.endswith("all whole\n")
    assert run_px("run", "hello", cwd=synced, check=False).returncode == 3


def test_px_test(synced: Path) -> None:
    done = run_px("test", cwd=synced, check=False)
    assert "PX022" in done.stderr
    assert "px add --dev pytest" in done.stderr
    manifest = synced / "pyproject.toml"
    manifest.write_text(
        manifest.read_text() + '[tool.px]\ntest = ["python", "-c", "import sys; sys.exit(len(sys.argv))"]\n'
    )
    assert run_px("test", "a", "-k", "b", cwd=synced, check=False).returncode == 4


def test_px_test_hands_on_what_it_does_not_know(synced: Path) -> None:
    show = """["python", "-c", "import sys; print(sys.argv[1:])"]"""
    manifest = synced / "pyproject.toml"
    manifest.write_text(f"{manifest.read_text()}\n[tool.px]\ntest = {show}\n")
    for given, passed in (
        (["-x"], ["-x"]),
        (["-k", "name", "tests"], ["-k", "name", "tests"]),
        (["--pdb", "-q", "-vx", "--maxfail=1"], ["--pdb", "-vx", "--maxfail=1"]),
        (["-x", "--", "-q"], ["-x", "-q"]),
        (["tests/a.py", "-q", "--sandbox"], ["tests/a.py", "-q", "--sandbox"]),
        (["-q", "--", "--"], ["--"]),
    ):
        assert run_px("test", *given, cwd=synced).stdout == f"{passed}\n"


def test_init(tmp_path: Path, index: Index) -> None:
    run_px("init", "fresh", "--name", "fresh-one", cwd=tmp_path)
    root = tmp_path / "fresh"
    assert state(root) == "Consistent"
    assert not (root / ".venv").exists()
    again = run_px("init", cwd=root, check=False)
    assert again.stderr.startswith("PX004")
    bad = run_px("init", "bad", "--name", "not a name!", cwd=tmp_path, check=False)
    assert bad.returncode == 122
    assert not (tmp_path / "bad").exists()


def test_init_leaves_what_is_there(tmp_path: Path, index: Index) -> None:
    root = tmp_path / "existing"
    (root / "src/thing").mkdir(parents=True)
    for name, content in {
        "main.py": "old\n",
        "README.md": "# Mine\n",
        ".gitignore": "x\n",
        "src/thing/a.py": "",
    }.items():
        (root / name).write_text(content)
    before = snapshot(root)
    run_px("init", cwd=root)
    assert state(root) == "Consistent"
    after = snapshot(root)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"pyproject.toml", "uv.lock"}
    assert not (root / ".git").exists()


def test_init_of_a_package_adds_only_what_it_needs(tmp_path: Path, index: Index) -> None:
    (tmp_path / "README.md").write_text("# Mine\n")
    before = snapshot(tmp_path)
    run_px("init", "--package", "--name", "mine", cwd=tmp_path, check=False)
    after = {name: found for name, found in snapshot(tmp_path).items() if not name.startswith(("px-home", "uv-cache"))}
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() <= {"pyproject.toml", "uv.lock", "src/mine/__init__.py"}


def test_init_replaces_no_lock(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text("version = 1\n")
    done = run_px("init", cwd=tmp_path, check=False)
    assert "uv.lock is there without a pyproject.toml" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.name not in ("px-home", "run")) == ["uv.lock"]


def test_the_project_itself_is_editable(tmp_path: Path) -> None:
    root = tmp_path / "with space é"
    (root / "src/mine").mkdir(parents=True)
    (root / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "1.5"\nrequires-python = ">=3.11"\n'
        '[project.scripts]\nmine = "mine:main"\n'
        '[build-system]\nrequires = ["setuptools>=77"]\nbuild-backend = "setuptools.build_meta"\n'
    )
    (root / "src/mine/__init__.py").write_text("def main():\n    print('one')\n")
    run_px("sync", cwd=root)
    assert run_px("run", "mine", cwd=root).stdout == "one\n"
    (root / "src/mine/__init__.py").write_text("def main():\n    print('another')\n")
    assert run_px("run", "mine", cwd=root).stdout == "another\n"
    version = run_px("run", "python", "-c", "import importlib.metadata as m; print(m.version('mine'))", cwd=root)
    assert version.stdout == "1.5\n"


def test_files_that_the_manifest_says_matter(tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra/a.txt").write_text("1")
    (tmp_path / "mine.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.11"\n'
        '[build-system]\nrequires = ["setuptools>=77"]\nbuild-backend = "setuptools.build_meta"\n'
        '[tool.setuptools]\npy-modules = ["mine"]\n[tool.uv]\ncache-keys = [{ file = "extra/*.txt" }]\n'
    )
    run_px("sync", cwd=tmp_path)
    for name in ("extra/a.txt", "extra/b.txt"):
        assert "up to date" in run_px("sync", cwd=tmp_path).stderr
        (tmp_path / name).write_text("2")
        refused = run_px("run", "--frozen", "python", "-c", "pass", cwd=tmp_path, check=False)
        assert "PX010" in refused.stderr
        assert state(tmp_path) == "NeedsEnv"
        assert "env ready" in run_px("sync", cwd=tmp_path).stderr


def test_an_sdist_that_cannot_be_built_names_what_is_missing(tmp_path: Path) -> None:
    import io
    import tarfile

    wheels = tmp_path / "wheels"
    wheels.mkdir()
    setup = (
        "from setuptools import setup, Extension\n"
        "setup(name='native', version='1.0', ext_modules=[Extension('native', ['n.c'])])\n"
    )
    with tarfile.open(wheels / "native-1.0.tar.gz", "w:gz") as archive:
        for name, text in (
            ("setup.py", setup),
            ("n.c", "#include <no-such-header.h>\n"),
            ("PKG-INFO", "Metadata-Version: 2.1\nName: native\nVersion: 1.0\n"),
        ):
            member = tarfile.TarInfo(f"native-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    root = tmp_path / "p"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["native"]\n'
        f'[tool.uv.sources]\nnative = {{ path = "{wheels / "native-1.0.tar.gz"}" }}\n'
    )
    done = run_px("sync", cwd=root, check=False)
    assert done.returncode == 123, done.stderr
    assert "PX204" in done.stderr
    assert "native 1.0" in done.stderr
    assert "no-such-header.h" in done.stderr or "gcc" in done.stderr
    assert "px sync --sandbox" in done.stderr
    manifest = root / "pyproject.toml"
    manifest.write_text(manifest.read_text().replace('"native"', ""))
    before = manifest.read_bytes()
    added = run_px("add", "--dev", "native", cwd=root, check=False)
    assert added.returncode == 123, added.stderr
    assert manifest.read_bytes() == before
    assert "px add --sandbox --dev native\n" in added.stderr


def test_a_workspace_has_one_env(tmp_path: Path, index: Index) -> None:
    root = tmp_path / "w"
    for name, needs in (("a", "hello"), ("b", "ns-one")):
        member = root / "packages" / name
        member.mkdir(parents=True)
        (member / "pyproject.toml").write_text(
            f'[project]\nname = "{name}"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["{needs}"]\n'
        )
    (root / "pyproject.toml").write_text(
        '[project]\nname = "root"\nversion = "1"\nrequires-python = ">=3.11"\n'
        '[tool.uv.workspace]\nmembers = ["packages/*"]\n'
    )
    run_px("sync", cwd=root / "packages/a")
    assert state(root) == "WConsistent"
    assert sorted(p.name for p in (root / "packages/a").iterdir()) == ["pyproject.toml"]
    for where in (root, root / "packages/a", root / "packages/b"):
        run_px("run", "python", "-c", "import hello, ns.one", cwd=where, CI="1")
    new = root / "packages/c"
    new.mkdir()
    (new / "pyproject.toml").write_text('[project]\nname = "c"\nversion = "1"\nrequires-python = ">=3.11"\n')
    assert state(root) == "WNeedsLock"
    assert run_px("run", "python", "-c", "1", cwd=root, check=False).returncode == 121


def test_the_manifest_of_a_dependency_by_path_is_watched(app: Path, index: Index) -> None:
    library = app.parent / "library" / "pyproject.toml"
    library.parent.mkdir()
    library.write_text(
        '[project]\nname = "library"\nversion = "1"\ndependencies = ["leaf"]\n[tool.uv]\npackage = false\n'
    )
    run_px("add", "../library", cwd=app)
    assert state(app) == "Consistent"
    library.write_text(library.read_text().replace('["leaf"]', '["leaf", "linter"]'))
    assert state(app) == "NeedsLock"
    assert run_px("run", "python", "-V", cwd=app, check=False, CI="1").stderr.startswith("PX010")
    assert "Locked" in run_px("sync", cwd=app).stderr
    run_px("run", "python", "-c", "import linter", cwd=app)


def test_a_locked_package_that_no_environment_needs(app: Path, index: Index) -> None:
    """uv keeps it in the lock without any file of it."""
    text = (app / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(text.replace('["hello"]', """["hello", "linter; sys_platform == 'never'"]"""))
    run_px("sync", cwd=app)
    assert 'name = "linter"' in (app / "uv.lock").read_text()
    assert run_px("run", "python", "-c", "import leaf", cwd=app).returncode == 0


def test_remove_finds_the_group_or_extra(synced: Path) -> None:
    done = run_px("remove", "linter", cwd=synced)
    assert "linter: removing from group lint" in done.stderr
    assert "linter" not in (synced / "pyproject.toml").read_text()
    run_px("remove", "Extra.Thing", cwd=synced)
    assert "extra-thing" not in (synced / "pyproject.toml").read_text()


def test_a_pylock_is_read_and_never_written(app: Path, index: Index) -> None:
    subprocess.run([UV, "lock", "-q"], cwd=app, check=True)
    subprocess.run([UV, "export", "-q", "--format", "pylock.toml", "-o", "pylock.toml"], cwd=app, check=True)
    (app / "uv.lock").unlink()
    before = snapshot(app)
    run_px("sync", cwd=app)
    run_px("run", "python", "-c", "import hello, leaf", cwd=app)
    assert run_px("add", "ns-one", cwd=app, check=False).stderr.startswith("PX105")
    assert snapshot(app) == before
    for flag, name in (("--extra", "nosuch"), ("--group", "nosuch"), ("--extra", "more"), ("--group", "lint")):
        refused = run_px("sync", flag, name, cwd=app, check=False).stderr
        assert refused.startswith("PX107")
        assert name in refused
    manifest = app / "pyproject.toml"
    manifest.write_text(manifest.read_text().replace('["hello"]', '["hello", "ns-one"]'))
    assert state(app) == "NeedsLock"
    # What px says to do next works as it is.
    action = json.loads(run_px("status", "--json", cwd=app).stdout)["details"]["host"]["next_action"]
    assert action in run_px("sync", cwd=app, check=False, CI="1").stderr
    path = f"{PX.parent}:{os.environ['PATH']}"
    subprocess.run(action.rpartition(": ")[2], shell=True, cwd=app, check=True, env={**os.environ, "PATH": path})
    assert state(app) == "Consistent"


def test_a_read_only_project_runs(synced: Path) -> None:
    only_for("an ordinary user", "root may write everywhere: nothing is read-only for it")
    synced.chmod(0o555)
    try:
        run_px("run", "python", "-c", "pass", cwd=synced)
    finally:
        synced.chmod(0o755)


def test_a_home_that_cannot_be_written_to(app: Path, index: Index, tmp_path: Path) -> None:
    """uv's cache goes to px's home then; not even root can make a directory in /proc."""
    (tmp_path / "user").mkdir()
    (tmp_path / "user/.cache").symlink_to("/proc/sys")
    env = {name: value for name, value in os.environ.items() if name not in ("UV_CACHE_DIR", "XDG_CACHE_HOME")}
    env["HOME"] = str(tmp_path / "user")
    subprocess.run([PX, "sync"], cwd=app, check=True, env=env)
    assert (tmp_path / "px-home/cache/uv/host").is_dir()


def test_root_in_somebody_elses_tree_is_warned(app: Path, index: Index) -> None:
    if os.geteuid() != 0:
        only_for("root", "only root can")
    os.chown(app, 1234, 1234)
    said = run_px("sync", cwd=app).stderr
    assert f"warning: {app} belongs to user 1234, and px runs as root" in said
    assert "sudo -u '#1234' px" in said


def test_update_moves_only_the_lock(app: Path, index: Index) -> None:
    manifest = app / "pyproject.toml"
    manifest.write_text(manifest.read_text().replace('["hello"]', '["leaf"]'))
    subprocess.run([UV, "lock", "-q", "--upgrade-package", "leaf==1.0"], cwd=app, check=True)
    run_px("sync", cwd=app)
    before = manifest.read_bytes()
    assert '"1.0"' in (app / "uv.lock").read_text().partition('\nname = "leaf"')[2][:30]
    run_px("update", "leaf", cwd=app)
    assert run_px("run", "python", "-c", "import leaf; print(leaf.VERSION)", cwd=app).stdout == "2.0\n"
    assert manifest.read_bytes() == before
    done = run_px("update", "laef", cwd=app, check=False)
    assert done.stderr.startswith("PX023")
    assert "leaf" in done.stderr


def test_a_script_of_a_project_that_is_not_installed(synced: Path) -> None:
    manifest = synced / "pyproject.toml"
    manifest.write_text(manifest.read_text() + '[project.scripts]\nserve = "app:main"\n')
    done = run_px("run", "serve", cwd=synced, check=False)
    assert done.returncode == 127
    assert "[tool.uv] package = true" in done.stderr


def test_status_names_groups_and_extras_and_what_is_chosen(synced: Path) -> None:
    run_px("sync", "--no-group", "lint", "--extra", "more", cwd=synced)
    lines = run_px("status", "-v", cwd=synced).stdout.splitlines()
    assert "  groups   lint" in lines
    assert "  extras   more" in lines
    assert "           with    default groups, not group lint, extra more" in lines


def test_a_broken_lock_says_how_to_make_it_again(synced: Path) -> None:
    (synced / "uv.lock").write_text("[[[")
    done = run_px("sync", cwd=synced, check=False)
    assert done.stderr.startswith("PX101")
    assert "rm uv.lock && px sync" in done.stderr
    subprocess.run(["sh", "-c", f"rm uv.lock && {PX} sync"], cwd=synced, check=True)
    assert state(synced) == "Consistent"
