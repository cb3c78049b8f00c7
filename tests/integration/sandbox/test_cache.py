"""The cache of a project's sandbox: it outlives runs, belongs to one project, and is never more than a cache."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from px.home import Home
from tests.integration.sandbox.conftest import make_plain
from tests.support.px import PX, run_px

WRITE = "import os; open(os.path.expanduser('~/.cache/kept'), 'w').write('kept')"
READ = "import os; p = os.path.expanduser('~/.cache/kept'); print(os.path.exists(p))"
SHOW = "import os; print(os.environ['XDG_CACHE_HOME'], os.path.dirname(os.environ['NUMBA_CACHE_DIR']))"
# What a hostile program would leave: a directory that nobody may enter, a link out, a path that no call takes.
HOSTILE = """
import os
os.chdir(os.path.expanduser('~/.cache'))
os.symlink('/', 'out')
os.mkdir('closed'); os.chmod('closed', 0)
for _ in range(2000):
    os.mkdir('deep'); os.chdir('deep')
"""


def python(root: Path, code: str, *flags: str) -> str:
    return run_px("run", "--sandbox", *flags, "python", "-c", code, cwd=root).stdout.strip()


def caches(home: Home) -> list[str]:
    return sorted(name for name in os.listdir(home.caches) if not name.startswith("."))


def test_it_outlives_a_run_and_belongs_to_one_project(plain: Path, own: Home, tmp_path: Path) -> None:
    python(plain, WRITE)
    assert python(plain, READ) == "True"
    assert python(plain, SHOW) == "/home/px/.cache /home/px/.cache/numba"
    # The warm way and the other one alike, and not at all if the caller says so.
    assert python(plain, READ, "-e", "A=1") == "True"
    assert python(plain, READ, "--read-only") == "True"
    assert python(plain, READ, "--no-cache") == "False"
    assert python(plain, "import os; print('XDG_CACHE_HOME' in os.environ)", "--no-cache") == "False"
    assert python(plain, "import os; print(os.environ['XDG_CACHE_HOME'])", "-e", "XDG_CACHE_HOME=/tmp") == "/tmp"
    assert python(make_plain(tmp_path / "other"), READ) == "False"
    assert len(caches(own)) == 2


def test_garbage_collection_removes_it_whatever_is_in_it(plain: Path, own: Home) -> None:
    python(plain, HOSTILE)
    run_px("store", "gc", cwd=plain)
    assert len(caches(own)) == 1  # used a moment ago
    assert "cache of " in run_px("store", "gc", "--grace", "0", "--dry-run", cwd=plain).stdout
    run_px("store", "gc", "--grace", "0", cwd=plain)
    assert caches(own) == []
    assert python(plain, READ) == "False"


def test_what_runs_keeps_it(plain: Path, own: Home) -> None:
    code = f"{WRITE}; import sys; print('up', flush=True); sys.stdin.read()"
    command = [str(PX), "run", "--sandbox", "python", "-c", code]
    with subprocess.Popen(command, cwd=plain, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        run_px("store", "gc", "--grace", "0", cwd=plain)
        running.communicate("")
    assert python(plain, READ) == "True"


def test_a_home_that_cannot_be_written_does_without(plain: Path, own: Home) -> None:
    run_px("sync", "--sandbox", cwd=plain)
    own.caches.write_text("not a directory")
    assert python(plain, READ) == "False"
