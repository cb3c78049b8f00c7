"""The main job on a machine that has no compiler, no libpq and no Docker: first try, then a real query."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from px.home import Home
from tests.integration.engines.conftest import eventually
from tests.integration.sandbox.homes import leftovers, objects
from tests.support.postgres import running_postgres
from tests.support.px import run_px, snapshot

IMPORTS = "import psycopg2, PIL.Image; print(psycopg2.__version__.split()[0], PIL.Image.new('L', (1, 1)).size)"


@pytest.fixture
def nothing_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "no-programs"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    for name in ("gcc", "cc", "pg_config", "docker", "uv", "git"):
        assert shutil.which(name) is None


def test_first_try_without_compiler_libpq_or_docker(
    database: Path, cold: Home, seed: Home, nothing_on_path: None, private_tmp: Path
) -> None:
    before = snapshot(database)
    done = run_px("run", "--sandbox", "python", "-c", IMPORTS, cwd=database)
    assert done.stdout == "2.9.10 (1, 1)\n"
    assert "Building psycopg2 2.9.10 in the sandbox with postgres" in done.stderr
    assert snapshot(database) == before
    again = run_px("run", "--sandbox", "python", "-c", IMPORTS, cwd=database)
    assert (again.stdout, again.stderr) == (done.stdout, "")
    assert not list(private_tmp.iterdir())
    assert not leftovers(cold)
    # What another store made of the same lock, at another time and place, is the same to the byte.
    assert objects(cold, "pkg-build") <= objects(seed, "pkg-build")
    (image,) = (p.name for p in (cold.sandbox / "images").iterdir() if not p.name.startswith("."))
    assert (seed.sandbox / "images" / image / "manifest.json").is_file()


@pytest.fixture
def postgres() -> Iterator[int]:
    """A PostgreSQL server on loopback; its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running_postgres("127.0.0.1", port):
        eventually("a server that listens", lambda: _listens(port))
        yield port


def _listens(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


QUERY = """\
import psycopg2, sys
with psycopg2.connect(host="127.0.0.1", port=sys.argv[1], user="px", dbname="postgres", connect_timeout=20) as db:
    cursor = db.cursor()
    cursor.execute("create table t (x int); insert into t values (40), (2); select sum(x) from t")
    print(cursor.fetchone()[0])
with open("/proc/self/maps") as f:
    print({line.split()[-1].rpartition("/")[0] for line in f if "libpq.so" in line})
"""


def test_a_query_against_a_real_server(database: Path, warm: Home, postgres: int) -> None:
    (database / "query.py").write_text(QUERY)
    done = run_px("run", "--sandbox", "query.py", str(postgres), cwd=database)
    assert done.stdout.splitlines() == ["42", "{'/usr/lib/x86_64-linux-gnu'}"] or os.uname().machine != "x86_64"
    alone = run_px("run", "--sandbox", "--no-network", "query.py", str(postgres), cwd=database, check=False)
    assert alone.returncode == 1
    assert "Connection refused" in alone.stderr or "unreachable" in alone.stderr


def test_one_sbx_id_wherever_and_whenever_it_is_asked(database: Path, own: Home, seed: Home) -> None:
    explained = run_px("sandbox", "explain", "--json", cwd=database)
    details = json.loads(explained.stdout)["details"]
    run_px("run", "--sandbox", "python", "-c", "pass", cwd=database)
    assert (own.sandbox / "images" / details["sbx_id"] / "manifest.json").is_file()
    again = json.loads(run_px("sandbox", "explain", "--json", cwd=database).stdout)["details"]
    other = json.loads(run_px("sandbox", "explain", "--json", cwd=database, PX_HOME=str(seed.root)).stdout)["details"]
    assert details == again == other
    assert [(c["name"], c["explicit"]) for c in details["capabilities"]] == [("postgres", False)]
    reasons = {r["source"]: r for r in details["capabilities"][0]["reasons"]}
    assert reasons["lock"]["package"] == "psycopg2"
    assert reasons["elf"]["soname"] == "libpq.so.5"
    assert {"base", "base_os_oid", "profile_oid", "sbx_version", "packages", "layers", "auto"} <= set(details)
    manifest = json.loads((own.sandbox / "images" / details["sbx_id"] / "manifest.json").read_bytes())
    assert {k: manifest[k] for k in ("sbx_id", "base_os_oid", "profile_oid", "sbx_version", "capabilities")} == {
        **{k: details[k] for k in ("sbx_id", "base_os_oid", "profile_oid", "sbx_version")},
        "capabilities": ["postgres"],
    }
