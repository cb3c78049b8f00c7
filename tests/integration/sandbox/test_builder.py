"""The builder sandbox: what it sees, and real packages built in two stores to the same bytes."""

from __future__ import annotations

import glob
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from px.home import Home
from px.store.tree import remove_tree
from tests.integration.sandbox.conftest import lock
from tests.integration.sandbox.homes import clone, objects
from tests.integration.sandbox.native import make_sdist, write_project
from tests.support.index import serving
from tests.support.px import PX, log_of, run_px
from tests.support.wheels import WheelSpec

USE = {
    "psycopg2": "import psycopg2; print(psycopg2.__libpq_version__ > 0)",
    "mysqlclient": "import MySQLdb; print(len(MySQLdb.get_client_info()) > 0)",
    "pycurl": "import pycurl; print('libcurl' in pycurl.version)",
    "python-ldap": "import ldap; print(ldap.VENDOR_VERSION > 0)",
    "uwsgi": "import subprocess; print(subprocess.run(['uwsgi', '--version']).returncode == 0)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", USE)
def test_the_same_source_gives_the_same_bytes(
    name: str, tmp_path: Path, seed: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "p"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        f'[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["{name}"]\n'
        f'[tool.uv]\nno-binary-package = ["{name}"]\n'
    )
    lock(root)
    empty = tmp_path / "no-programs"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))  # no compiler, no pg_config, no curl-config of the host
    made: list[set[str]] = []
    for where, zone, seed_of_hashes in (("one", "UTC", "1"), ("another place", "Asia/Tokyo", "2")):
        home = clone(seed, Home(tmp_path / where), ("source", "sandbox-base", "layer"))
        env: dict[str, Any] = {"PX_HOME": str(home.root), "TZ": zone, "PYTHONHASHSEED": seed_of_hashes}
        done = run_px("run", "--sandbox", "python", "-c", USE[name], cwd=root, timeout=600, **env)
        assert done.stdout.splitlines()[-1] == "True"
        assert f"Building {name}" in done.stderr
        made.append(objects(home, "pkg-build"))
        remove_tree(home.root)
    assert made[0] == made[1]


def test_code_is_optimised(native: Path, alone: Home) -> None:
    code = "import answer42; print(answer42.answer, answer42.optimized)"
    assert run_px("run", "--sandbox", "python", "-c", code, cwd=native).stdout == "42 1\n"


def test_debian_13_builds_too(native: Path, warm: Home) -> None:
    manifest = native / "pyproject.toml"
    manifest.write_text(manifest.read_text() + '\n[tool.px.sandbox]\nbase = "debian-13"\n')
    lock(native)
    code = "import sys, answer42; print(sys.version_info[1], answer42.answer)"
    assert run_px("run", "--sandbox", "python", "-c", code, cwd=native).stdout == "13 42\n"


def test_an_sdist_that_looks_around_sees_only_the_sandbox(tmp_path: Path, warm: Home) -> None:
    """A build is the least trusted code of all: no host files, no network, no way to reach either."""
    sdist = tmp_path / "nosy"
    sdist.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("s")
    look = (
        "import os, socket\n"
        f"print('SEEN', os.path.exists({str(secret)!r}), os.path.exists('/root/.ssh'), os.getuid(),"
        " socket.socket().connect_ex(('127.0.0.1', 22)) == 0, len(os.listdir('/sys/class/net')) if"
        " os.path.isdir('/sys/class/net') else 0, flush=True)\n"
    )
    made = make_sdist(sdist, "nosy", backend=look)
    root = lock(write_project(tmp_path / "p", made))
    run_px("sync", "--sandbox", cwd=root)
    (line,) = [row for row in log_of(root).read_text().splitlines() if "SEEN" in row][-1:]
    assert line.partition("SEEN")[2].split()[:4] == ["False", "False", "1000", "False"], line
    assert "\n    nosy " in run_px("status", "-v", cwd=root).stdout  # no env of this machine has it


def test_programs_among_the_build_requirements_run_in_the_sandbox(tmp_path: Path, warm: Home) -> None:
    """As meson and cython are: console scripts, which have the path of an interpreter in their first line."""
    entry = "[console_scripts]\nmy-generator = my_generator:main\n"
    module = {"my_generator/__init__.py": b"import sys\ndef main():\n    print('RUN BY', sys.executable)\n"}
    WheelSpec("my-generator", files=module, entry_points=entry).write(tmp_path / "index")
    calls = "import subprocess\nsubprocess.run(['my-generator'], check=True)\n"
    made = make_sdist(tmp_path / "sdist", "made", backend=calls, requires="my-generator")
    with serving(tmp_path / "index") as own:
        root = lock(write_project(tmp_path / "p", made, f'[[tool.uv.index]]\nname = "own"\nurl = "{own.url}"\n'))
        run_px("sync", "--sandbox", cwd=root)
    (line,) = [row for row in log_of(root).read_text().splitlines() if "RUN BY" in row][-1:]
    assert "RUN BY /usr/bin/python3" in line


def test_a_build_requirement_without_a_wheel_is_built_in_the_sandbox_too(tmp_path: Path, warm: Home) -> None:
    """PyGObject needs pycairo so; uv on this machine builds nothing of either."""
    index = make_sdist(tmp_path / "index", "needed").parent
    uses = "import needed\nprint('ANSWER', needed.answer, needed.__file__, flush=True)\n"
    made = make_sdist(tmp_path / "sdist", "made", backend=uses, requires="needed>=1")
    with serving(index) as own:
        more = f'[[tool.uv.index]]\nname = "own"\nurl = "{own.url}"\n'
        root = lock(write_project(tmp_path / "p", made, more))
        done = run_px("sync", "--sandbox", cwd=root)
    assert "Building needed 1.0 in the sandbox" in done.stderr
    (line,) = [row for row in log_of(root).read_text().splitlines() if "ANSWER" in row][-1:]
    assert "ANSWER 42 /build/requires/needed.cpython-311" in line


def test_build_requirements_are_as_the_project_constrains_them(tmp_path: Path, warm: Home) -> None:
    for version in ("1.0", "2.0"):
        files = {"my_tool/__init__.py": f"version = '{version}'\n".encode()}
        WheelSpec("my-tool", version, files=files).write(tmp_path / "index")
    uses = "import my_tool\nprint('TOOL', my_tool.version, flush=True)\n"
    made = make_sdist(tmp_path / "sdist", "made", backend=uses, requires="my-tool")
    with serving(tmp_path / "index") as own:
        more = f'[[tool.uv.index]]\nname = "own"\nurl = "{own.url}"\n[tool.uv]\nbuild-constraint-dependencies = '
        for constraint, got in (('["my-tool<2"]', "1.0"), ("[]", "2.0")):
            root = lock(write_project(tmp_path / "p", made, more + constraint))
            run_px("sync", "--sandbox", cwd=root)
            (line,) = [row for row in log_of(root).read_text().splitlines() if "TOOL" in row][-1:]
            assert line.endswith(f"TOOL {got}")


def test_a_build_is_told_what_the_project_says(tmp_path: Path, warm: Home) -> None:
    says = (
        "import os\ndef get_requires_for_build_wheel(config_settings=None):\n"
        "    print('TOLD', config_settings, os.environ.get('FAST'), flush=True)\n    return []\n"
    )
    made = make_sdist(tmp_path / "sdist", "told", backend=says)
    more = '[tool.uv]\nconfig-settings = {{ a = "{}" }}\nextra-build-variables = {{ told = {{ FAST = "1" }} }}\n'
    for value in ("x", "y"):
        root = lock(write_project(tmp_path / "p", made, more.format(value)))
        run_px("sync", "--sandbox", cwd=root)
        (line,) = [row for row in log_of(root).read_text().splitlines() if "TOLD" in row][-1:]
        assert line.endswith(f"TOLD {{'a': '{value}'}} 1")


def test_a_build_that_requires_itself_ends(tmp_path: Path, warm: Home) -> None:
    index = make_sdist(tmp_path / "index", "itself", requires="itself").parent
    with serving(index) as own:
        more = f'[[tool.uv.index]]\nname = "own"\nurl = "{own.url}"\n'
        root = lock(write_project(tmp_path / "p", index / "itself-1.0.tar.gz", more))
        done = run_px("sync", "--sandbox", cwd=root, check=False)
    assert "the build requirements of itself 1.0 cannot be installed" in done.stderr


WAITS = "import time\nopen('/build/out/waiting-NUMBER', 'w').close()\nwhile True:\n    time.sleep(0.1)\n"


def _waiting(home: Home, name: str) -> list[str]:
    """The builds that wait.  Other tests remove directories beside them; the module glob, unlike Path.glob, goes on."""
    return glob.glob(f"{home.tmp}/**/{name}", recursive=True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_an_interrupted_build_is_no_failed_one(number: int, code: int, tmp_path: Path, warm: Home) -> None:
    made = make_sdist(tmp_path / "sdist", "waits", backend=WAITS.replace("NUMBER", str(int(number))))
    root = lock(write_project(tmp_path / "p", made))
    command = [str(PX), "sync", "--sandbox"]
    with subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True) as px:
        while not _waiting(warm, f"waiting-{int(number)}"):
            assert px.poll() is None
            time.sleep(0.1)
        px.send_signal(number)
        _, said = px.communicate()
    assert px.returncode == code
    assert "could not be built" not in said


FAILS = "import glob, time\nraise SystemExit('no such luck')\n"


@pytest.mark.parametrize(("number", "code"), [(None, 125), (signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_builds_side_by_side_end_together(number: int | None, code: int, tmp_path: Path, warm: Home) -> None:
    """If one fails, or px is interrupted, nobody waits for the others."""
    waits = WAITS.replace("NUMBER", f"9{int(number or 0)}")
    made = [make_sdist(tmp_path / "sdist", name, backend=waits) for name in ("waits", "waitstoo")]
    if number is None:
        made[1] = make_sdist(tmp_path / "sdist", "fails", backend=FAILS)
    root = write_project(tmp_path / "p", made[0])
    manifest, (other, _, _) = root / "pyproject.toml", made[1].name.partition("-")
    text = manifest.read_text().replace("dependencies = [", f'dependencies = ["{other}", ')
    manifest.write_text(f'{text}{other} = {{ path = "{made[1]}" }}\n')
    lock(root)
    with subprocess.Popen([str(PX), "sync", "--sandbox"], cwd=root, stderr=subprocess.PIPE, text=True) as px:
        while number and len(_waiting(warm, f"waiting-9{int(number)}")) < 2:
            assert px.poll() is None
            time.sleep(0.1)
        if number:
            px.send_signal(number)
        _, said = px.communicate(timeout=200)
    assert px.returncode == code
    assert ("no such luck" in said) == (number is None)


TRIES = """\
import os, subprocess
if subprocess.run(["c++", "-x", "c++", "-fsyntax-only", "-"], input=b"#include <vector>").returncode == 0:
    os.environ["CFLAGS"] += " -DFAST"
"""


@pytest.mark.parametrize(
    ("backend", "libraries", "called"), [(TRIES, "", "c++"), ("", "-DFAST -flto", "lto1")], ids=["c++", "lto"]
)
def test_a_build_that_turns_out_to_need_more_than_c(
    backend: str, libraries: str, called: str, tmp_path: Path, warm: Home
) -> None:
    """Neither shows in the source; the first would even go on without, and give something else."""
    includes = "#ifndef FAST\n#undef __OPTIMIZE__\n#endif\n"
    made = make_sdist(tmp_path / "sdist", "hidden", includes=includes, libraries=libraries, backend=backend)
    root = lock(write_project(tmp_path / "p", made))
    code = "import hidden; print(hidden.optimized)"
    assert run_px("run", "--sandbox", "python", "-c", code, cwd=root, timeout=300).stdout == "1\n"
    (line,) = [row for row in log_of(root).read_text().splitlines() if "more than a C compiler" in row]
    assert line.endswith(f"/{called}")
