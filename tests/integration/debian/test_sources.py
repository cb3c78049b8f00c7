"""Where packages come from: a mirror that has lost some, a snapshot that limits its callers, servers that are gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from px.cli import main as cli
from px.debian import download
from px.debian.download import ensure_packages
from px.debian.locking.check import check, gone_everywhere
from px.debian.mirror import mirrors
from px.errors import PxError
from px.platforms import host_architecture
from px.sandbox.layers.base import Base, ensure_base, load_base_lock
from px.store.objects import Store
from px.store.sources import find_source
from tests.support.debian import Mirror, make_deb, make_lock, pin, serving, tar_member

QUIET = 1
"""How many seconds the snapshot wants to be left alone, once it has refused a caller."""


@dataclass
class Snapshot:
    """A snapshot archive as its users know it: two connections, and at times a refusal with a time to wait."""

    files: dict[str, bytes]
    refuse_every: int = 9
    url: str = ""
    served: list[str] = field(default_factory=list)
    refused: int = 0
    most_at_once: int = 0
    at_once: int = 0
    banned_until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self) -> bool:
        """Whether this caller is served."""
        with self.lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            if time.monotonic() < self.banned_until or (len(self.served) + 1) % self.refuse_every == 0:
                self.served.append("(refused)")
                self.refused += 1
                self.banned_until = max(self.banned_until, time.monotonic() + QUIET)
                return False
            return True


@contextmanager
def snapshot(archive: Snapshot) -> Iterator[Snapshot]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served = archive.enter()
            path = self.path.split("/", 4)[4]  # /archive/debian/DATE/pool/…
            content = archive.files.get(path) if served else b"slow down"
            time.sleep(0.02)
            self.send_response(429 if not served else 200 if content is not None else 404)
            if not served:
                self.send_header("Retry-After", str(QUIET))
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            with archive.lock:
                archive.at_once -= 1
                if served:
                    archive.served.append(path)
            self.wfile.write(content or b"")

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    archive.url = f"http://127.0.0.1:{server.server_address[1]}/archive"
    try:
        yield archive
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.network
def test_a_mirror_that_lost_a_third_and_a_snapshot_with_limits(
    warm_store: Store, bookworm: Base, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = load_base_lock("debian-12", host_architecture())
    packages = lock.pinned(lock.base)
    files = {p.path: found.read_bytes() for p in packages if (found := find_source(warm_store, p.sha256))}
    assert len(files) == len(packages)
    lost = {p.path for p in packages[::3]}
    with (
        serving(Mirror({path: c for path, c in files.items() if path not in lost})) as mirror,
        snapshot(Snapshot(files)) as kept,
    ):
        monkeypatch.setenv("PX_DEBIAN_MIRROR", mirror.url)
        monkeypatch.setenv("PX_DEBIAN_SNAPSHOT", kept.url)
        assert ensure_base(store, lock).oid == bookworm.oid
        checked = check(lock, mirrors(lock.date)[0])
    assert kept.most_at_once <= 2
    assert kept.refused >= 1
    # Each of the two connections can be refused once before px knows that it shall wait.
    assert kept.refused <= 2 * (1 + len(lost) // (kept.refuse_every - 1))
    assert sorted(path for path in kept.served if path != "(refused)") == sorted(lost)
    assert {p.label for p in packages if p.path in lost} <= set(checked.gone)
    assert gone_everywhere([checked, check(lock, mirrors(lock.date)[0])]) == []  # neither server is there any more


GOOD = make_deb("good", [tar_member("./usr/share/good/data", b"x" * 5000)])


def test_a_server_that_is_gone_is_asked_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    original = download.Server.knock

    def knock(self: download.Server, url: str) -> None:
        asked.extend([] if self.unreachable else [url])
        original(self, url)

    monkeypatch.setattr(download.Server, "knock", knock)
    packages = [pin(f"p{n}", make_deb(f"p{n}", [])) for n in range(20)]
    lock = make_lock(packages)
    with serving(Mirror({p.path: make_deb(p.name, []) for p in packages})) as mirror:
        # Nobody listens on the discard port.
        monkeypatch.setenv("PX_DEBIAN_MIRROR", f"http://127.0.0.1:9/debian {mirror.url}")
        assert len(ensure_packages(store, lock, packages)) == 20
    assert len([url for url in asked if ":9/" in url]) <= download.CONNECTIONS


def test_a_lying_mirror_does_not_keep_the_next_from_being_asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pin("good", GOOD)
    with serving(Mirror({package.path: GOOD[:-1] + b"!"})) as liar, serving(Mirror({package.path: GOOD})) as honest:
        monkeypatch.setenv("PX_DEBIAN_MIRROR", f"{liar.url},{honest.url}")
        found = ensure_packages(store, make_lock([package]), [package])
    assert found["good"].read_bytes() == GOOD


def test_the_advice_for_a_pin_that_is_gone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pin("good", GOOD)
    with serving(Mirror({})) as mirror:
        monkeypatch.setenv("PX_DEBIAN_MIRROR", mirror.url)
        with pytest.raises(PxError) as caught:
            ensure_packages(store, make_lock([package]), [package])
    assert any("PX_DEBIAN_SNAPSHOT=official" in line for line in caught.value.fix)


def test_the_check_says_what_is_gone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lock = load_base_lock("debian-12", "amd64")
    there = {p.path: b"" for p in lock.packages.values() if p.name != "bash"}
    with serving(Mirror(there)) as mirror:
        monkeypatch.setenv("PX_DEBIAN_MIRROR", mirror.url)
        assert cli.run(["base", "check", "debian-12", "--architecture", "amd64"]) == 1
        assert lock.packages["bash"].label in capsys.readouterr().out
        mirror.files[lock.packages["bash"].path] = b""
        assert cli.run(["base", "check", "debian-12", "--architecture", "amd64"]) == 0
