"""A build in the builder sandbox: it may spoil its own wheel, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from px.home import Home
from tests.integration.attacks import sdists
from tests.integration.attacks.conftest import SECRET
from tests.support.index import serving
from tests.support.px import UV, run_px

pytestmark = pytest.mark.network


def sync(root: Path) -> subprocess.CompletedProcess[str]:
    return run_px("sync", "--sandbox", cwd=root, check=False)


PLAIN = "def build_wheel(d, s=None, m=None):\n    return _wheel(d, {'evil.py': b''})\n"
REPLACE = """
import os, shutil

def get_requires_for_build_wheel(settings=None):
    for place in ("/build/requires", "/build/in/requires"):
        try:
            shutil.rmtree(place)
        except OSError:
            pass
        try:
            os.symlink("VICTIM", place)
        except OSError as e:
            print("no link:", e)
    return ["drop @ file://WHEEL"]
"""


@pytest.mark.parametrize("where", ["host", "inside"])
def test_build_requirements_are_not_installed_through_a_link(
    warm: Home, tmp_path: Path, victim: Path, where: str
) -> None:
    """C1: the backend turns the directory of its requirements into a link, then asks for one."""
    wheel = sdists.drop(tmp_path / "attacker")
    backend = REPLACE.replace("VICTIM", str(victim)).replace("WHEEL", str(wheel))
    if where == "inside":
        copy = f"open('/build/out/{wheel.name}', 'wb').write(bytes.fromhex('{wheel.read_bytes().hex()}'))"
        place = f"_host_path('/build/out') + '/{wheel.name}'"
        backend = REPLACE.replace("VICTIM", str(victim)).replace(
            'return ["drop @ file://WHEEL"]', f"{copy}\n    return ['drop @ file://' + {place}]"
        )
    evil = sdists.sdist(tmp_path / "sdists", "evil", backend + PLAIN)
    sync(sdists.project(tmp_path / "careless", evil))
    assert sorted(p.name for p in victim.iterdir()) == ["notes.txt"]


@pytest.mark.parametrize(
    "name",
    [
        "answer.json",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("constraints", "requires.in", "settings", "hook.py")),
    ],
)
def test_nothing_that_px_writes_for_a_build_goes_through_a_link(
    warm: Home, tmp_path: Path, victim: Path, name: str
) -> None:
    backend = f"""
import os
def get_requires_for_build_wheel(settings=None):
    for directory in ("/build", "/build/out", "/build/in"):
        try:
            os.symlink("{victim}/notes.txt", directory + "/{name}")
        except OSError:
            try:
                os.unlink(directory + "/{name}")
                os.symlink("{victim}/notes.txt", directory + "/{name}")
            except OSError as e:
                print(e)
    return ["wheel"]
"""
    evil = sdists.sdist(tmp_path / "sdists", "evil", backend + PLAIN)
    constraint = '[tool.uv]\nbuild-constraint-dependencies = ["setuptools>=40"]\nno-binary-package = ["wheel"]\n'
    sync(sdists.project(tmp_path / "careless", evil, constraint))
    assert (victim / "notes.txt").read_text() == "mine\n"


@pytest.mark.parametrize("wheel", ["{victim}/drop-1.0-py3-none-any.whl", "../../../{up}/drop-1.0-py3-none-any.whl"])
def test_the_wheel_comes_back_by_its_bare_name(warm: Home, tmp_path: Path, victim: Path, wheel: str) -> None:
    """A backend that names a file of the host as its wheel gets an error, not the file."""
    made = sdists.drop(victim)
    up = str(victim).lstrip("/")
    named = wheel.format(victim=victim, up="../" * 20 + up)
    evil = sdists.sdist(tmp_path / "sdists", "evil", f"def build_wheel(d, s=None, m=None):\n    return {named!r}\n")
    done = sync(sdists.project(tmp_path / "careless", evil))
    assert done.returncode != 0
    assert "PX909" in done.stderr
    assert made.is_file()


def test_a_wheel_whose_name_is_none(warm: Home, tmp_path: Path) -> None:
    backend = "def build_wheel(d, s=None, m=None):\n    open(d + '/evil.whl', 'w').close()\n    return 'evil.whl'\n"
    done = sync(sdists.project(tmp_path / "careless", sdists.sdist(tmp_path / "sdists", "evil", backend)))
    assert "PX903" in done.stderr, done.stderr


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_a_wheel_that_is_no_file(warm: Home, tmp_path: Path, victim: Path, kind: str) -> None:
    sdists.drop(victim)
    make = {
        "link": f"os.symlink('{victim}/drop-1.0-py3-none-any.whl', d + '/evil-1.0-py3-none-any.whl')",
        "fifo": "os.mkfifo(d + '/evil-1.0-py3-none-any.whl')",
        "directory": "os.mkdir(d + '/evil-1.0-py3-none-any.whl')",
    }[kind]
    backend = f"import os\ndef build_wheel(d, s=None, m=None):\n    {make}\n    return 'evil-1.0-py3-none-any.whl'\n"
    done = sync(sdists.project(tmp_path / "careless", sdists.sdist(tmp_path / "sdists", "evil", backend)))
    assert done.returncode != 0
    assert "PX909" in done.stderr


def test_a_build_cannot_poison_the_cache_of_uv(
    warm: Home, tmp_path: Path, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C2: uv links its cache into places that it installs to; a build that writes there changes the cache."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    backend = """
import glob, os
def build_wheel(d, s=None, m=None):
    for path in glob.glob("/build/**/leaf/__init__.py", recursive=True):
        try:
            os.chmod(path, 0o644)
            open(path, "a").write("POISON = 1\\n")
        except OSError as e:
            print(e)
    return _wheel(d, {'evil.py': b''})
"""
    evil = sdists.sdist(tmp_path / "sdists", "evil", backend, requires='"leaf"')
    with serving(wheelhouse) as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        root = sdists.project(tmp_path / "careless", evil)
        assert sync(root).returncode == 0
        venv = tmp_path / "venv"
        subprocess.run([UV, "venv", "-q", venv], check=True)
        subprocess.run([UV, "pip", "install", "-q", "--python", venv, "leaf"], check=True)
    said = subprocess.run(
        [venv / "bin/python", "-c", "import leaf; print(hasattr(leaf, 'POISON'))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.stdout == "False\n"


def test_a_build_cannot_poison_the_build_of_another_package(
    warm: Home, tmp_path: Path, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next project's build gets its requirements as they were published."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    poison = """
import glob, os
def build_wheel(d, s=None, m=None):
    found = (glob.glob(top + "/**/leaf/__init__.py", recursive=True) for top in ("/build", "/run", "/tmp", "/home"))
    for path in (path for paths in found for path in paths):
        try:
            open(path, "a").write("POISON = 1\\n")
        except OSError as e:
            print(e)
    return _wheel(d, {'evil.py': b''})
"""
    look = """
def build_wheel(d, s=None, m=None):
    import leaf
    return _wheel(d, {'good.py': b'POISON = %d' % hasattr(leaf, 'POISON')})
"""
    with serving(wheelhouse) as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        evil = sdists.sdist(tmp_path / "sdists", "evil", poison, requires='"leaf"')
        good = sdists.sdist(tmp_path / "sdists", "good", look, requires='"leaf"')
        assert sync(sdists.project(tmp_path / "first", evil)).returncode == 0
        second = sdists.project(tmp_path / "second", good)
        assert sync(second).returncode == 0
        said = run_px("run", "--sandbox", "python", "-c", "import good; print(good.POISON)", cwd=second)
    assert said.stdout == "0\n"


def test_a_build_does_not_see_the_password_of_an_index(
    warm: Home, tmp_path: Path, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M1: everything that a build can read goes into its wheel; the password must not be in it."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    backend = """
import os
def build_wheel(d, s=None, m=None):
    seen = repr(dict(os.environ)).encode()
    for top in ("/build", "/tmp", "/run", "/home", "/app", "/root", "/proc/1", "/proc/self"):
        for directory, _, names in os.walk(top):
            for name in names:
                try:
                    fd = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_NONBLOCK)
                    seen += os.read(fd, 100_000)
                    os.close(fd)
                except OSError:
                    pass
    return _wheel(d, {'evil.py': b'SEEN = %r' % (bytes.fromhex("SECRET") in seen)})
""".replace("SECRET", SECRET.encode().hex())
    evil = sdists.sdist(tmp_path / "sdists", "evil", backend, requires='"leaf"')
    with serving(wheelhouse, SECRET) as index:
        settings = (
            f'[[tool.uv.index]]\nname = "private"\nurl = "{index.url_with("reader", SECRET)}"\ndefault = true\n'
            '[tool.uv]\nno-binary-package = ["nothing"]\n'
        )
        root = sdists.project(tmp_path / "careless", evil, settings)
        assert sync(root).returncode == 0
        said = run_px("run", "--sandbox", "python", "-c", "import evil; print(evil.SEEN)", cwd=root)
    assert said.stdout == "False\n"


def test_what_a_build_leaves_does_not_outlive_it(warm: Home, tmp_path: Path) -> None:
    backend = """
import subprocess, sys
def build_wheel(d, s=None, m=None):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    return _wheel(d, {'evil.py': b''})
"""
    evil = sdists.sdist(tmp_path / "sdists", "evil", backend)
    assert sync(sdists.project(tmp_path / "careless", evil)).returncode == 0
    running = subprocess.run(["pgrep", "-f", "time.sleep.600."], capture_output=True, text=True, check=False)
    assert running.stdout == "", os.environ["PX_HOME"]
