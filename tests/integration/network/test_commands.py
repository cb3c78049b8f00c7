"""``px run --sandbox`` with a limited network: real clients, flags, the manifest's table, and other engines."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from px.home import Home
from px.workflow.doctor import LANDLOCK_SCOPES, landlock
from tests.integration.engines.conftest import eventually
from tests.integration.network.conftest import DATABASE, SHOP, Place
from tests.integration.network.servers import hello, http, over_tls, serving
from tests.support.needs import need
from tests.support.postgres import running_postgres
from tests.support.px import PX, run_px

pytestmark = pytest.mark.network

MANIFEST = """\
[project]
name = "client"
version = "1"
requires-python = ">=3.11,<3.12"
dependencies = {}
"""
CLIENT = """\
import psycopg2, requests
print(requests.get("https://shop.example/", timeout=20).text)
with psycopg2.connect(host="db.example", user="px", dbname="postgres", connect_timeout=20) as db:
    cursor = db.cursor()
    cursor.execute("select 40 + 2")
    print(cursor.fetchone()[0])
"""
REACH = "import socket; print(socket.create_connection(('shop.example', 80), 20).recv(100).decode())"


@pytest.fixture
def home(warm_home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    need("bubblewrap")
    monkeypatch.setenv("PX_HOME", str(warm_home.root))
    return warm_home


@pytest.fixture
def project(home: Home, tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(MANIFEST.format("[]"))
    run_px("sync", "--sandbox", cwd=tmp_path)
    return tmp_path


def px(machine: Place, project: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """px on the machine of the small world, which has no package index."""
    command = [*machine.prefix, "sh", "-c", 'cd "$0" && exec "$@"', str(project), str(PX), *args]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)


def test_requests_and_psycopg2(home: Home, tmp_path: Path, places: tuple[Place, Place]) -> None:
    machine, internet = places
    (tmp_path / "pyproject.toml").write_text(MANIFEST.format('["requests", "psycopg2-binary"]'))
    (tmp_path / "client.py").write_text(CLIENT)
    run_px("sync", "--sandbox", cwd=tmp_path)
    wrap, certificate = over_tls(tmp_path, "shop.example")
    with internet.entered():
        listener = socket.create_server((SHOP, 443))

    def listens() -> bool:
        with internet.entered(), socket.socket() as s:
            return s.connect_ex((DATABASE, 5432)) == 0

    flags = ("--allow-net", "shop.example", "--allow-net", "db.example:5432")
    with serving(listener, wrap(http)), running_postgres(DATABASE, 5432, internet.prefix):
        eventually("a server that listens", listens)
        done = px(machine, tmp_path, "run", "--sandbox", *flags, "client.py", PX_EXTRA_CA=str(certificate))
        assert (done.stdout, done.stderr) == ("you asked shop.example\n42\n", "")
        less = px(machine, tmp_path, "run", "--sandbox", *flags[:2], "client.py", PX_EXTRA_CA=str(certificate))
    assert less.stdout == "you asked shop.example\n"
    assert "px: the sandbox may not reach db.example; to allow it: --allow-net db.example\n" in less.stderr


def test_the_manifests_table_and_the_flags_before_it(project: Path, places: tuple[Place, Place]) -> None:
    machine, internet = places
    target = ("python", "-c", REACH)
    manifest = project / "pyproject.toml"
    with internet.entered():
        listener = socket.create_server((SHOP, 80))

    def reaches(*flags: str) -> bool:
        done = px(machine, project, "run", "--sandbox", *flags, *target)
        assert "gaierror" in done.stderr or done.returncode == 0, done.stderr
        return done.stdout == f"{SHOP}:80 \n"

    with serving(listener, hello):
        assert reaches()
        assert not reaches("--no-network")
        assert not reaches("--network", "none")
        assert not reaches("--network", "allow")
        for table, expected in (("mode = 'none'", False), ("allow = ['*.org']", False), ("mode = 'host'", True),
                                ("allow = ['shop.example']", True)):  # fmt: skip
            manifest.write_text(MANIFEST.format("[]") + f"[tool.px.sandbox.network]\n{table}\n")
            run_px("sync", "--sandbox", cwd=project)
            # The first run after a sync is warm already; both ways must see the table.
            assert [reaches(), reaches("--read-only")] == [expected] * 2, table
            assert reaches("--network", "host")
            assert reaches("--allow-net", "shop.example")
            assert not reaches("--no-network")


def test_wrong_flags(project: Path) -> None:
    for flags, said in (
        (("--network", "some"), "PX040  --network some: the modes are host, none, allow."),
        (("--no-network", "--allow-net", "a.org"), "PX040  --allow-net a.org: --network none leaves nothing to allow."),
        (("--allow-net", "a b"), "PX040  --allow-net a b: it is neither a host's name nor an address."),
        (("--publish", "8000"), "PX040  --publish 8000: with the host's network"),
    ):
        done = run_px("run", "--sandbox", *flags, "true", cwd=project, check=False)
        assert said in done.stderr
    done = run_px("run", "--allow-net", "a.org", "true", cwd=project, check=False)
    assert "PX041  --allow-net works only with --sandbox." in done.stderr


def test_a_server_inside_is_reached_from_outside(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code = "import socket; s = socket.create_server(('127.0.0.1', 8000)); s.accept()[0].sendall(b'from inside')"
    flags = ["--no-network", "--publish", f"{port}:8000"]
    running = subprocess.Popen([PX, "run", "--sandbox", *flags, "python", "-c", code], cwd=project)

    def said() -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as client:
                return client.recv(100)
        except OSError:
            return b""  # it does not listen yet

    assert eventually("an answer", said) == b"from inside"
    assert running.wait(30) == 0


def test_doctor_says_whether_abstract_sockets_are_closed(tmp_path: Path) -> None:
    """It must agree with what a sandbox with the host's network then finds."""
    listed = json.loads(run_px("doctor", "--json", cwd=tmp_path).stdout)["details"]["checks"]
    [check] = [row for row in listed if row["name"] == "abstract sockets"]
    assert check["verdict"] == ("ok" if landlock() >= LANDLOCK_SCOPES else "warn")


def test_abstract_sockets_of_the_host_are_closed_with_its_network(project: Path) -> None:
    name = f"px-test-{os.getpid()}"
    code = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        done = run_px("run", "--sandbox", "python", "-c", code, cwd=project, check=False)
    assert ("PermissionError" in done.stderr) == (landlock() >= LANDLOCK_SCOPES)
