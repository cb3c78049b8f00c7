"""Documents: manifests, locks, pins, images, names of images, and what registries answer."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shutil
import socketserver
import tempfile
import threading
from contextlib import suppress
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import tomlkit

from px.debian.lock import encode
from px.debian.locking.pins import encode_pins, read_pins
from px.env.artifacts import _select
from px.env.runtime import Runtime
from px.errors import PxError
from px.home import Home
from px.http import FetchError, Http, Retry
from px.oci import objects as documents_of_objects
from px.oci.documents import Descriptor, digest_of
from px.oci.image import ReadLayer, check_layers, compare, layer_files, read_images
from px.oci.layout import write_archive, write_layout
from px.oci.registry.auth import Challenge, find_credentials
from px.oci.registry.client import Registry, RegistryError, _retry_after
from px.oci.registry.reference import parse
from px.oci.sources import LayoutSource, source_of
from px.project.context import Context
from px.project.discovery import discover
from px.project.manifest import Manifest
from px.project.selection import Selection
from px.sandbox.labels import selection_of
from px.sandbox.manifest import read_manifest
from px.store.canonical import oid_of
from px.store.objects import Store
from px.store.tree import remove_tree
from px.workflow.why import chains
from tests.support.debian import make_lock, make_tar, pin, tar_member
from tests.unit.fuzz.mutations import ODD, PACKERS, Dice, damaged, mutated, tars
from tests.unit.oci.images import Files, make_image, make_release

# TOML has no null and no infinite depth of meaning: what tomlkit cannot write is left out.
TOML_ODD = [value for value in ODD if not {"null", "Infinity"} & set(re.findall(r"\w+", json.dumps(value)))]

MANIFEST = {
    "project": {
        "name": "a",
        "version": "1",
        "requires-python": ">=3.11",
        "dependencies": ["b>=1"],
        "scripts": {"x": "y:z"},
    },
    "dependency-groups": {"dev": ["c"]},
    "build-system": {"requires": ["hatchling"]},
    "tool": {
        "uv": {
            "workspace": {"members": ["p/*"], "exclude": []},
            "sources": {"b": [{"path": "b"}]},
            "cache-keys": [{"file": "*"}],
        },
        "px": {
            "env": {"A": "1"},
            "test": ["t"],
            "sandbox": {"base": "debian-12", "auto": True, "capabilities": {"postgres": True}, "exclude": ["x"]},
        },
    },
}
PYLOCK = {
    "lock-version": "1.0",
    "created-by": "t",
    "requires-python": ">=3.9",
    "packages": [
        {
            "name": "b",
            "version": "1.0",
            "marker": "python_version > '3'",
            "wheels": [
                {
                    "name": "b-1.0-py3-none-any.whl",
                    "url": "https://x/b-1.0-py3-none-any.whl",
                    "size": 1,
                    "hashes": {"sha256": "0" * 64},
                }
            ],
            "sdist": {"name": "b-1.0.tar.gz", "path": "b-1.0.tar.gz", "hashes": {"sha256": "0" * 64}},
        },
        {"name": "d", "directory": {"path": "d", "editable": True}},
        {"name": "v", "vcs": {"type": "git", "url": "https://x/v", "commit-id": "0" * 40}},
    ],
}
UVLOCK = {
    "version": 1,
    "package": [
        {"name": "a", "version": "1", "source": {"virtual": "."}, "dependencies": [{"name": "b", "marker": "x"}]},
        {
            "name": "b",
            "version": "1",
            "source": {"registry": "https://x"},
            "optional-dependencies": {"e": [{"name": "b"}]},
        },
    ],
}


def toml(document: Any) -> bytes:
    try:
        return tomlkit.dumps(document).encode("utf-8", "surrogateescape") if isinstance(document, dict) else b"x"
    except (TypeError, ValueError, AttributeError):
        return b""


def tomls(dice: Dice, seed: Any) -> bytes:
    return toml(damaged(dice, seed, TOML_ODD)) if dice.number(0, 1) else mutated(dice, [toml(seed)])


def manifest(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pyproject.toml"
        path.write_bytes(content)
        try:
            found = Manifest.read(path)
            _ = found.groups, found.extras, found.build_files, found.test_command, found.env, found.is_package
            _ = read_manifest(path, found.document), discover(Path(folder)).inputs
        except PxError as e:
            str(e)
        try:
            read_manifest(path)
        except PxError as e:
            str(e)


RUNTIME = Runtime("3.11.2", "cp311", "Linux", "x86_64", "glibc-2.36")


def pylock(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pyproject.toml").write_text('[project]\nname = "a"\n')
        (Path(folder) / "pylock.toml").write_bytes(content)
        try:
            _select(Context(Store(Home(Path(folder) / "home")), Path(folder)), Selection(), RUNTIME)
        except PxError as e:
            str(e)


def why(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pyproject.toml").write_text('[project]\nname = "a"\n')
        (Path(folder) / "uv.lock").write_bytes(content)
        try:
            chains(discover(Path(folder)), "b")
        except PxError as e:
            str(e)


def base_pins() -> Any:
    return json.loads(encode_pins({"amd64": make_lock([pin("a", b"x"), pin("b", b"y")])}))


def pins(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pins.json"
        path.write_bytes(content)
        try:
            for lock in read_pins(path).values():
                encode(lock)
        except PxError as e:
            str(e)


def jsons(dice: Dice, seed: Any) -> bytes:
    if dice.number(0, 1):
        return json.dumps(damaged(dice, seed)).encode()
    return mutated(dice, [json.dumps(seed).encode()])


@functools.cache
def layout() -> Path:
    """An image with two layers, as a directory and as an archive."""
    folder = Path(tempfile.mkdtemp())
    blobs, image = make_image(
        Home(folder / "home"), Files({"bin/x": b"x", "bin/l": "->x", "h": "=bin/x"}), Files({"y": b"y"})
    )
    write_layout(blobs, make_release(blobs, image), folder / "layout")
    write_archive(blobs, make_release(blobs, image), folder / "x.tar")
    return folder


def images(dice: Dice) -> dict[str, bytes]:
    """The documents of an image, one of them damaged, the digests of all correct."""
    blobs = layout() / "layout" / "blobs" / "sha256"
    index = json.loads((layout() / "layout" / "index.json").read_bytes())
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_bytes())
    config = json.loads((blobs / manifest["config"]["digest"][7:]).read_bytes())
    written: dict[str, bytes] = {}

    def kept(content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        written[f"blobs/sha256/{digest}"] = content
        return f"sha256:{digest}"

    which = dice.pick(["index", "manifest", "config"])
    content = jsons(dice, config) if which == "config" else json.dumps(config).encode()
    manifest["config"] |= {"digest": kept(content), "size": len(content)}
    content = jsons(dice, manifest) if which == "manifest" else json.dumps(manifest).encode()
    index["manifests"] = index["manifests"][:1]
    index["manifests"][0] |= {"digest": kept(content), "size": len(content)}
    written["index.json"] = jsons(dice, index) if which == "index" else json.dumps(index).encode()
    return written


def image(documents: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "layout"
        shutil.copytree(layout() / "layout", root)
        for name, content in documents.items():
            (root / name).write_bytes(content)
        try:
            _used(str(root))
        except PxError as e:
            str(e)


def archive(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tar"
        path.write_bytes(content)
        try:
            _used(str(path))
        except PxError as e:
            str(e)


def _used(name: str) -> None:
    for found in read_images(source_of(name)):
        _ = found.platform, found.labels
        compare(found, found)
        try:
            selection_of(found.labels)
        finally:
            check_layers(found)
            for one in found.layers:
                layer_files(one)


def archives(dice: Dice) -> bytes:
    """The one that px wrote, changed; or one in docker's own format, with other documents."""
    if dice.number(0, 1):
        return mutated(dice, [(layout() / "x.tar").read_bytes()])
    config = {"os": "linux", "rootfs": {"diff_ids": ["sha256:" + "0" * 64]}, "history": [{"created_by": "x"}]}
    files = [("manifest.json", jsons(dice, [{"Config": "c.json", "Layers": ["l.tar"]}]))]
    files += [("c.json", jsons(dice, config)), ("l.tar", bytes(1024))]
    return make_tar([tar_member(name, content) for name, content in files])


def layer(content: bytes) -> None:
    import io

    try:
        layer_files(ReadLayer("sha256:" + "0" * 64, "", len(content), "", lambda: io.BytesIO(content)))
    except PxError as e:
        str(e)


def layers(dice: Dice) -> bytes:
    pack = PACKERS[dice.pick(["", ".gz", ".zst"])]
    return pack(tars(dice)) if dice.number(0, 2) else mutated(dice, [pack(bytes(2048) + b"x" * 5000)])


CONTENT = b"hello"
OBJECT: Any = {
    "tree": [
        ["d", "bin", 0o755],
        ["f", "bin/x", 0o755, len(CONTENT), hashlib.sha256(CONTENT).hexdigest()],
        ["h", "bin/y", "bin/x"],
        ["l", "l", "bin/x"],
    ]
}


def objects(dice: Dice) -> tuple[bytes, bytes]:
    """An object as a shared cache sends it: the payload or the document around it damaged, the contents changed."""
    payload = damaged(dice, OBJECT) if dice.number(0, 3) else OBJECT
    try:
        oid = oid_of("layer", payload)
    except (TypeError, ValueError):
        oid = "0" * 64
    content = mutated(dice, [PACKERS[".zst"](CONTENT)], 1)
    at = Descriptor(documents_of_objects.CONTENT, digest_of(content), len(content)).document()
    document: Any = {"kind": "layer", "key": "0" * 64, "oid": oid, "payload": payload, "content": at, "refs": []}
    return jsons(dice, document) if not dice.number(0, 3) else json.dumps(document).encode(), content


def shared_object(case: tuple[bytes, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        blobs = Path(folder) / "layout" / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        packed = PACKERS[".zst"](case[0])
        for content in (packed, case[1]):
            (blobs / digest_of(content).removeprefix("sha256:")).write_bytes(content)
        at = Descriptor(documents_of_objects.DOCUMENT, digest_of(packed), len(packed))
        store = Store(Home(Path(folder) / "home"))
        with suppress(documents_of_objects.DamagedError):
            source = LayoutSource(Path(folder) / "layout")
            documents_of_objects.take(store, source, documents_of_objects.ObjectName("layer", "0" * 64), at)
        assert sorted(p.name for p in Path(folder).iterdir()) in (["home", "layout"], ["layout"])
        remove_tree(Path(folder) / "home")


def reference(content: bytes) -> None:
    try:
        parse(content.decode("utf-8", "replace"))
    except PxError as e:
        str(e)


def docker_config(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_bytes(content)
        try:
            find_credentials("a.org", {"DOCKER_CONFIG": folder, "HOME": folder}, path="x/y")
        except PxError as e:
            str(e)


DOCKER_CONFIG = {
    "auths": {"https://a.org/v1/": {"auth": "YTpi"}, "a.org/x": {"identitytoken": "t"}},
    "credHelpers": {"b.org": "no"},
}


def header_of_a_registry(content: bytes) -> None:
    said = content.decode("latin-1")
    Challenge.parse(said)
    headers = Message()
    try:
        headers["Retry-After"] = said
    except ValueError:
        return
    _retry_after(cast("Any", SimpleNamespace(headers={"Retry-After": said})))


class _Server(socketserver.ThreadingTCPServer):
    """Says the same bytes to everybody, and hangs up."""

    daemon_threads = allow_reuse_address = True
    said = b""


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.settimeout(5)
        with suppress(OSError):
            self.request.recv(65536)
            self.request.sendall(cast("_Server", self.server).said)


@functools.cache
def _server() -> _Server:
    found = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True).start()
    return found


@functools.cache
def _http() -> Http:
    return Http(retries=Retry(0))  # a TLS context takes longer than a case


def answer_of_a_registry(content: bytes) -> None:
    server = _server()
    server.said = content
    host = f"127.0.0.1:{server.server_address[1]}"
    registry = Registry(parse(f"{host}/a/b:1"), patience=0, http=_http())
    registry._base = f"http://{host}"
    for ask in (lambda: registry.manifest("1"), lambda: registry.has_blob("sha256:" + "0" * 64), registry._ping):
        try:
            ask()
        except (FetchError, RegistryError) as e:
            str(registry.unreadable(e))


HEADERS = [b'Bearer realm="https://a/t",service="s",scope="a b", Basic realm=x', b"Thu, 01 Jan 2026 00:00:00 GMT"]
ANSWERS = [
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"manifest":1}',
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b'HTTP/1.1 404 Not Found\r\nContent-Length: 37\r\n\r\n{"errors": [{"code": "X", "detail": 1}]}',
    b'HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer realm="http://127.0.0.1:1/t"\r\nContent-Length: 0\r\n\r\n',
    b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/x\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 429 Slow\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + PACKERS[".gz"](b'{"a": 1}'),
]

TARGETS: dict[str, tuple[Any, Any]] = {
    "manifest": (lambda dice: tomls(dice, MANIFEST), manifest),
    "pylock": (lambda dice: tomls(dice, PYLOCK), pylock),
    "uv.lock": (lambda dice: tomls(dice, UVLOCK), why),
    "pins": (lambda dice: jsons(dice, base_pins()), pins),
    "image": (images, image),
    "image archive": (archives, archive),
    "layer": (layers, layer),
    "shared object": (objects, shared_object),
    "reference": (
        lambda dice: mutated(dice, [b"a.org:5000/b/c:1@sha256:" + b"0" * 64, b"localhost/x", b"[::1]:5/x:y"]),
        reference,
    ),
    "docker config": (lambda dice: jsons(dice, DOCKER_CONFIG), docker_config),
    "header of a registry": (
        lambda dice: mutated(
            dice,
            [b'Bearer realm="https://a/t",service="s",scope="a b", Basic realm=x', b"Thu, 01 Jan 2026 00:00:00 GMT"],
        ),
        header_of_a_registry,
    ),
    "answer of a registry": (lambda dice: mutated(dice, ANSWERS), answer_of_a_registry),
}
