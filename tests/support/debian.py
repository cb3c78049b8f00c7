"""Small Debian archives for tests: .deb files, signed indexes, and a mirror on loopback that can misbehave."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import tarfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, TypeAlias

import pysequoia

from px.debian.lock import BaseLock, Closure, PinnedPackage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path


TarMember: TypeAlias = "tuple[tarfile.TarInfo, bytes]"


def tar_member(
    name: str, content: bytes = b"", *, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, to: str = ""
) -> TarMember:
    """One member for :func:`make_tar`: a pair of tarfile's header and the content."""
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.size = kind, mode, to, len(content)
    return info, content


def make_tar(members: Sequence[TarMember], *, fmt: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=fmt) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def ar_member(name: str, content: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
    return head + content + b"\n" * (len(content) % 2)


COMPRESSORS: Mapping[str, Callable[[bytes], bytes]] = {
    "": lambda b: b,
    ".xz": lambda b: lzma.compress(b, preset=0),
    ".gz": lambda b: gzip.compress(b, mtime=0),
}


def make_deb(
    name: str,
    members: Sequence[TarMember],
    *,
    version: str = "1.0-1",
    compression: str = ".xz",
    fields: str = "",
    scripts: Mapping[str, bytes] | None = None,
) -> bytes:
    control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n{fields}".encode()
    files = [tar_member("./control", control)]
    files += [tar_member(f"./{script}", text, mode=0o755) for script, text in (scripts or {}).items()]
    pack = COMPRESSORS[compression]
    parts = [
        ar_member("debian-binary", b"2.0\n"),
        ar_member(f"control.tar{compression}", pack(make_tar(files))),
        ar_member(f"data.tar{compression}", pack(make_tar(members))),
    ]
    return b"!<arch>\n" + b"".join(parts)


def pin(name: str, content: bytes, *, version: str = "1.0-1", suite: str = "bookworm") -> PinnedPackage:
    path = f"pool/main/{name}_{version}_amd64.deb"
    return PinnedPackage(name, version, "amd64", path, len(content), hashlib.sha256(content).hexdigest(), suite)


def make_lock(packages: Sequence[PinnedPackage], capabilities: Mapping[str, Closure] | None = None) -> BaseLock:
    pins = {p.name: p for p in packages}
    base = tuple(sorted(pins))
    return BaseLock(
        "debian-12", "amd64", "py311", 1, "bookworm", "20260101T000000Z", pins, base, (), capabilities or {}
    )


@dataclass
class Mirror:
    """What a loopback mirror serves, by path, and how it misbehaves."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    """Path (or ``*``) -> ``404``, ``500``, ``slow``, ``truncated`` or ``flipped``."""
    asked: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(mirror: Mirror) -> Iterator[Mirror]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.removeprefix("/debian/").removeprefix("/debian-security/")
            mirror.asked.append(path)
            _answer(self, path, mirror)

        def do_HEAD(self) -> None:
            path = self.path.removeprefix("/debian/").removeprefix("/debian-security/")
            self.send_response(200 if mirror.files.get(path) is not None else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    mirror.url = f"http://127.0.0.1:{server.server_address[1]}/debian"
    try:
        yield mirror
    finally:
        server.shutdown()
        server.server_close()


def _answer(request: BaseHTTPRequestHandler, path: str, mirror: Mirror) -> None:
    fault = mirror.faults.get(path) or mirror.faults.get("*", "")
    content = mirror.files.get(path)
    status = int(fault) if fault.isdigit() else 200 if content is not None else 404
    body = content if status == 200 and content is not None else b"no"
    if fault == "flipped":
        body = body[:100] + bytes([body[100] ^ 1]) + body[101:]
    request.send_response(status)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if fault == "truncated":
        request.wfile.write(body[: len(body) // 2])
        request.close_connection = True
        request.connection.close()
        return
    if fault == "slow":
        request.wfile.write(body[:64])
        request.wfile.flush()
        time.sleep(3)
    request.wfile.write(body)


@dataclass
class SignedArchive:
    """A signed archive with one suite per pocket, for the relock tool."""

    codename: str = "bookworm"
    key: pysequoia.Tsk = field(default_factory=lambda: pysequoia.Tsk.generate("Test archive <archive@example.org>"))
    valid_for: timedelta = timedelta(days=7)

    def keyring(self, path: Path) -> Path:
        path.write_bytes(str(self.key.extract_certificate()).encode())
        return path

    def publish(self, mirror: Mirror, stanzas: Mapping[str, Sequence[str]], architecture: str = "amd64") -> None:
        """Put signed indexes into the mirror: pocket ("", "-updates", "-security") -> stanzas of packages."""
        for pocket in ("", "-updates", "-security"):
            suite = self.codename + pocket
            packed = lzma.compress("\n\n".join(stanzas.get(pocket, ())).encode() + b"\n")
            digest = hashlib.sha256(packed).hexdigest()
            place = f"dists/{suite}/main/binary-{architecture}"
            mirror.files[f"{place}/by-hash/SHA256/{digest}"] = packed
            release = self._release(suite, f"main/binary-{architecture}/Packages.xz", packed)
            mirror.files[f"dists/{suite}/InRelease"] = self.sign(release)

    def _release(self, suite: str, path: str, packed: bytes) -> bytes:
        now = datetime.now(UTC)
        lines = [
            "Origin: Debian",
            f"Suite: {suite}",
            f"Codename: {suite}",
            f"Date: {now:%a, %d %b %Y %H:%M:%S} UTC",
            f"Valid-Until: {now + self.valid_for:%a, %d %b %Y %H:%M:%S} UTC",
            "SHA256:",
            f" {hashlib.sha256(packed).hexdigest()} {len(packed)} {path}",
        ]
        return ("\n".join(lines) + "\n").encode()

    def sign(self, text: bytes) -> bytes:
        return bytes(pysequoia.sign(self.key.signer(), text, mode=pysequoia.SignatureMode.CLEAR))


def stanza(name: str, version: str = "1.0-1", **fields: str) -> str:
    """An index stanza; underscores in field names stand for hyphens."""
    rows = {"Package": name, "Version": version, "Architecture": "amd64", "Priority": "optional"}
    rows |= {"Filename": f"pool/main/{name}_{version}_amd64.deb", "Size": "10", "SHA256": "0" * 64}
    rows |= {key.replace("_", "-"): value for key, value in fields.items()}
    return "\n".join(f"{key}: {value}" for key, value in rows.items())


def newer_deb(content: bytes, version: str, more: TarMember) -> bytes:
    """A real package again, under a newer version and with one more file."""
    members, at = {}, 8
    while at < len(content):
        name, size = content[at : at + 16].decode().strip().rstrip("/"), int(content[at + 48 : at + 58])
        members[name] = content[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    control = _read_tar(next(m for n, m in members.items() if n.startswith("control.tar")))
    data = _read_tar(next(m for n, m in members.items() if n.startswith("data.tar")))
    text = next(c for info, c in control if info.name == "./control").decode()
    lines = [f"Version: {version}" if line.startswith("Version: ") else line for line in text.splitlines()]
    control = [(i, c) for i, c in control if i.name != "./control"]
    control.append(tar_member("./control", ("\n".join(lines) + "\n").encode()))
    parts = [
        ar_member("debian-binary", b"2.0\n"),
        ar_member("control.tar.xz", COMPRESSORS[".xz"](make_tar(control))),
        ar_member("data.tar.xz", COMPRESSORS[".xz"](make_tar([*data, more]))),
    ]
    return b"!<arch>\n" + b"".join(parts)


def _read_tar(packed: bytes) -> list[TarMember]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        return [(m, f.read() if (f := tar.extractfile(m)) and m.isreg() else b"") for m in tar]
