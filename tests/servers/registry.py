"""A registry of the OCI distribution specification 1.1, with what Debian's lacks: the referrers API, a least size of
chunks, answers that sit elsewhere.  It keeps everything in memory and checks what the specification has it check.

Tests look at ``requests`` and put a function in ``first`` that may answer in its place.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

INDEX = "application/vnd.oci.image.index.v1+json"
_ROUTE = re.compile(r"/v2/(?P<repo>.+)/(?P<what>blobs/uploads|blobs|manifests|referrers)/(?P<name>[^/]*)")


@dataclass(frozen=True)
class Request:
    """One request, its body read."""

    method: str
    path: str
    query: dict[str, str]
    scopes: str
    """What a token is asked for; several scopes have spaces between."""
    headers: dict[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """What is sent back."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def refusal(status: int, code: str, message: str = "", **headers: str) -> Answer:
    body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
    return Answer(status, {"Content-Type": "application/json", **headers}, body)


@dataclass
class OciRegistry:
    """The content of the registry, and how it behaves."""

    knows_referrers: bool = True
    least_chunk: int = 0
    absolute: str = ""
    """What ``Location`` begins with; nothing makes it relative, which the specification allows."""
    first: Callable[[Request], Answer | None] = lambda _: None
    requests: list[Request] = field(default_factory=list)
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    port: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def count(self, method: str, part: str) -> int:
        return sum(r.method == method and part in r.path for r in self.requests)

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            own = self.first(request)
            if own is not None:
                return own
            if request.path == "/v2/":
                return Answer(200)
            route = _ROUTE.fullmatch(request.path)
            if route is None:
                return refusal(404, "NAME_UNKNOWN")
            handle: Callable[[Request, str, str], Answer] = getattr(self, "_" + route["what"].replace("/", "_"))
            return handle(request, route["repo"], route["name"])

    def _location(self, path: str) -> dict[str, str]:
        return {"Location": self.absolute + path}

    def _blobs(self, request: Request, repo: str, digest: str) -> Answer:
        found = self.blobs.get((repo, digest))
        return refusal(404, "BLOB_UNKNOWN") if found is None else Answer(200, {}, found)

    def _blobs_uploads(self, request: Request, repo: str, name: str) -> Answer:
        if request.method == "POST":
            return self._begin(request, repo)
        content = self.uploads.get(name)
        if content is None:
            return refusal(404, "BLOB_UPLOAD_UNKNOWN")
        where = self._location(request.path) | {"Range": f"0-{max(len(content) - 1, 0)}"}
        if request.method == "GET":
            return Answer(204, where)
        if request.method == "PATCH":
            return self._chunk(request, content, where)
        return self._finish(request, repo, name, content)

    def _begin(self, request: Request, repo: str) -> Answer:
        wanted = request.query.get("mount", "")
        source = self.blobs.get((request.query.get("from", ""), wanted))
        if source is not None:
            self.blobs[repo, wanted] = source
            return Answer(201, self._location(f"/v2/{repo}/blobs/{wanted}"))
        name = uuid.uuid4().hex
        self.uploads[name] = bytearray()
        least = {"OCI-Chunk-Min-Length": str(self.least_chunk)} if self.least_chunk else {}
        return Answer(202, self._location(f"/v2/{repo}/blobs/uploads/{name}") | least)

    def _chunk(self, request: Request, content: bytearray, where: dict[str, str]) -> Answer:
        ranged = request.headers.get("content-range")
        if ranged is not None:
            if ranged != f"{len(content)}-{len(content) + len(request.body) - 1}":
                return Answer(416, where)
            # Only the last one may be short; whether it was is known when the upload ends.
            if self.least_chunk and len(content) % self.least_chunk:
                return refusal(400, "BLOB_UPLOAD_INVALID", "a chunk was too small")
        content += request.body
        return Answer(202, where | {"Range": f"0-{max(len(content) - 1, 0)}"})

    def _finish(self, request: Request, repo: str, name: str, content: bytearray) -> Answer:
        content += request.body
        digest = request.query["digest"]
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            return refusal(400, "DIGEST_INVALID")
        self.blobs[repo, digest] = bytes(content)
        del self.uploads[name]
        return Answer(201, self._location(f"/v2/{repo}/blobs/{digest}"))

    def _manifests(self, request: Request, repo: str, name: str) -> Answer:
        if request.method != "PUT":
            found = self.manifests.get((repo, name))
            return (
                refusal(404, "MANIFEST_UNKNOWN") if found is None else Answer(200, {"Content-Type": found[0]}, found[1])
            )
        document = json.loads(request.body)
        missing = [d for d in self._blobs_of(document) if (repo, d) not in self.blobs]
        if missing:
            return refusal(400, "MANIFEST_BLOB_UNKNOWN", missing[0])
        digest = f"sha256:{hashlib.sha256(request.body).hexdigest()}"
        for key in (name, digest):
            self.manifests[repo, key] = request.headers["content-type"], request.body
        subject = document.get("subject")
        known = {"OCI-Subject": subject["digest"]} if subject and self.knows_referrers else {}
        return Answer(201, self._location(f"/v2/{repo}/manifests/{digest}") | known)

    @staticmethod
    def _blobs_of(document: dict[str, Any]) -> list[str]:
        if "config" not in document:
            return []
        return [d["digest"] for d in (document["config"], *document["layers"])]

    def _referrers(self, request: Request, repo: str, digest: str) -> Answer:
        if not self.knows_referrers:
            return refusal(404, "NAME_UNKNOWN")
        found = {}
        for (where, name), (media_type, content) in self.manifests.items():
            document = json.loads(content)
            if where == repo and name.startswith("sha256:") and document.get("subject", {}).get("digest") == digest:
                kind = document.get("artifactType") or document["config"]["mediaType"]
                entry = {"mediaType": media_type, "digest": name, "size": len(content), "artifactType": kind}
                found[name] = entry | ({"annotations": document["annotations"]} if document.get("annotations") else {})
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [found[name] for name in sorted(found)]}
        return Answer(200, {"Content-Type": INDEX}, json.dumps(index).encode())


def _handler(registry: OciRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            parts = urlsplit(self.path)
            asked = parse_qs(parts.query)
            query = {key: values[0] for key, values in asked.items()}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {key.lower(): value for key, value in self.headers.items()}
            found = registry.answer(
                Request(self.command, parts.path, query, " ".join(asked.get("scope", ())), headers, body)
            )
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            if found.status != 204:
                self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(found.body)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = serve  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    return Handler


@contextmanager
def running(registry: OciRegistry | None = None) -> Iterator[OciRegistry]:
    """Serve it on a port of loopback."""
    registry = registry or OciRegistry()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(registry))
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
