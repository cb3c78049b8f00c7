"""A server that E2B's SDK takes for E2B: control plane and envd on one address.

Point the SDK here with ``E2B_API_URL`` and ``E2B_SANDBOX_URL``.  A template of an image with a digest is that image,
pulled and unpacked, without its variables; all others are one image.  The real builder also installs programs of its
own with apt; this one only refuses an image in which that would fail at once.  It fails closed on egress lists,
pausing, volumes, MCP and identity tokens, and on every field it does not know.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import struct
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from .box import ENVIRONMENT
from .images import Pulled
from .provider import Provider, Sandbox, Template, failure, only_known, serve

if TYPE_CHECKING:
    import argparse

    from .box import Running

VERSION = "0.5.7"
KNOWN = {"templateID", "timeout", "metadata", "envVars", "allow_internet_access", "autoPauseMemory", "secure"}
TEMPLATES = {"base", "code-interpreter-v1"}
JSON_STREAM = "application/connect+json"
KEEPALIVE = 10.0


class E2B:
    """The handlers."""

    def __init__(self, provider: Provider):
        self.provider = provider
        self.processes: dict[tuple[str, int], Running] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v2/sandboxes", self.create),
            web.post("/sandboxes", self.create),
            web.get("/v2/sandboxes", self.list),
            web.get("/sandboxes/{id}", self.get),
            web.delete("/sandboxes/{id}", self.delete),
            web.post("/sandboxes/{id}/timeout", self.timeout),
            web.post("/v2/sandboxes/{id}/connect", self.connect),
            web.post("/sandboxes/{id}/connect", self.connect),
            web.post("/sandboxes/{id}/pause", self.refuse),
            web.get("/templates", self.template_list),
            web.delete("/templates/{id}", self.template_delete),
            web.get("/templates/aliases/{alias}", self.template_alias),
            web.post("/v3/templates", self.template_new),
            web.post("/v2/templates/{id}/builds/{build}", self.template_build),
            web.get("/templates/{id}/builds/{build}/status", self.template_status),
            web.get("/health", self.health),
            web.get("/files", self.read),
            web.post("/files", self.write),
            web.post("/process.Process/Start", self.start),
            web.post("/process.Process/Connect", self.refuse),
            web.post("/process.Process/List", self.processes_list),
            web.post("/process.Process/SendSignal", self.signal),
        ]

    # --- control plane ---

    async def create(self, request: web.Request) -> web.Response:
        self._authorized(request)
        body = await request.json()
        only_known(body, KNOWN)
        image, network = None, body.get("allow_internet_access", True)
        if body["templateID"] not in TEMPLATES:
            template = self.provider.template(body["templateID"])
            if template.state != "ready":
                raise failure(404, f"template {template.name!r} has no build that is ready")
            # The worst case: that a provider takes the files of an image and not its variables.
            image = None if template.image is None else Pulled(template.image.layers, ENVIRONMENT)
        labels, seconds = body.get("metadata") or {}, body.get("timeout", 15)
        sandbox = await self.provider.create(labels, body, seconds, network=network, image=image)
        return web.json_response(self._created(sandbox), status=201)

    def _created(self, sandbox: Sandbox) -> dict[str, Any]:
        return {
            "sandboxID": sandbox.id,
            "templateID": sandbox.request["templateID"],
            "clientID": "test",
            "envdVersion": VERSION,
            "envdAccessToken": sandbox.token,
            "domain": None,
        }

    def _described(self, sandbox: Sandbox) -> dict[str, Any]:
        template = self.provider.templates.get(sandbox.request["templateID"])
        sizes = {} if template is None else template.request
        end = datetime.now(UTC) + timedelta(seconds=sandbox.deadline - time.monotonic())
        return {
            "sandboxID": sandbox.id,
            "templateID": sandbox.request["templateID"],
            "clientID": "test",
            "envdVersion": VERSION,
            "startedAt": sandbox.created,
            "endAt": end.isoformat(),
            "cpuCount": sizes.get("cpuCount", 2),
            "memoryMB": sizes.get("memoryMB", 512),
            "diskSizeMB": 1024,
            "state": "running",
            "metadata": sandbox.labels,
        }

    async def list(self, request: web.Request) -> web.Response:
        self._authorized(request)
        # The SDK quotes names and values before it encodes the query.
        asked = {unquote(k): unquote(v) for k, v in parse_qsl(request.query.get("metadata", ""))}
        found = [s for s in self.provider.sandboxes.values() if asked.items() <= s.labels.items()]
        return web.json_response([self._described(s) for s in found])

    async def get(self, request: web.Request) -> web.Response:
        return web.json_response(self._described(self._sandbox(request)))

    async def delete(self, request: web.Request) -> web.Response:
        await self.provider.delete(self._sandbox(request))
        return web.Response(status=204)

    async def timeout(self, request: web.Request) -> web.Response:
        sandbox = self._sandbox(request)
        if not sandbox.dying:
            sandbox.deadline = time.monotonic() + (await request.json())["timeout"]
        return web.Response(status=204)

    async def connect(self, request: web.Request) -> web.Response:
        return web.json_response(self._created(self._sandbox(request)))

    async def refuse(self, request: web.Request) -> web.Response:
        raise failure(501, f"this test server does not implement {request.path}")

    def _authorized(self, request: web.Request) -> None:
        if request.headers.get("X-API-KEY") != self.provider.key:
            raise failure(401, "invalid API key")

    def _sandbox(self, request: web.Request) -> Sandbox:
        self._authorized(request)
        sandbox = self.provider.sandboxes.get(request.match_info["id"])
        if sandbox is None:
            raise failure(404, f"sandbox {request.match_info['id']} not found")
        return sandbox

    # --- templates ---

    async def template_alias(self, request: web.Request) -> web.Response:
        self._authorized(request)
        template = self.provider.template(request.match_info["alias"])
        return web.json_response({"templateID": template.id, "public": False})

    async def template_new(self, request: web.Request) -> web.Response:
        self._authorized(request)
        body = await request.json()
        only_known(body, {"name", "cpuCount", "memoryMB"})
        template = Template(body["name"], body, state="waiting")
        self.provider.templates[template.name] = template
        answer = {"templateID": template.id, "buildID": template.build, "public": False}
        return web.json_response({**answer, "names": [template.name], "tags": [], "aliases": []}, status=202)

    async def template_build(self, request: web.Request) -> web.Response:
        self._authorized(request)
        body = await request.json()
        only_known(body, {"fromImage", "fromTemplate", "force", "steps", "fromImageRegistry"})
        template = self.provider.template(request.match_info["id"])
        template.state = "building"
        template.login = (body.get("fromImageRegistry") or {}).get("username", "")
        self.provider.build(template, body.get("fromImage") or "", _refusal)
        return web.Response(status=202)

    async def template_status(self, request: web.Request) -> web.Response:
        self._authorized(request)
        template = self.provider.template(request.match_info["id"])
        answer = {"templateID": template.id, "buildID": template.build, "status": template.state}
        message = template.reason or "the image could not be unpacked"
        reason = {"reason": {"message": message}} if template.state == "error" else {}
        return web.json_response({**answer, **reason, "logs": [], "logEntries": []})

    async def template_list(self, request: web.Request) -> web.Response:
        self._authorized(request)
        return web.json_response([_template(t) for t in self.provider.templates.values()])

    async def template_delete(self, request: web.Request) -> web.Response:
        self._authorized(request)
        del self.provider.templates[self.provider.template(request.match_info["id"]).name]
        return web.Response(status=204)

    # --- envd ---

    def _inside(self, request: web.Request) -> Sandbox:
        sandbox = self.provider.sandboxes.get(request.headers.get("E2b-Sandbox-Id", ""))
        if sandbox is None:
            raise failure(502, "The sandbox was not found")
        if request.headers.get("X-Access-Token") != sandbox.token:
            raise failure(401, "invalid access token")
        return sandbox

    async def health(self, request: web.Request) -> web.Response:
        self._inside(request)
        return web.Response(status=204)

    async def read(self, request: web.Request) -> web.Response:
        content = await self._inside(request).box.read(request.query["path"])
        if content is None:
            raise failure(404, f"file {request.query['path']} not found")
        return web.Response(body=content)

    async def write(self, request: web.Request) -> web.Response:
        sandbox, written = self._inside(request), []
        self.provider.maybe_fail("fail_upload")
        if request.content_type == "application/octet-stream":
            files = [(request.query["path"], await request.read())]
        else:
            files = []
            async for part in await request.multipart():
                path = request.query.get("path") or part.filename  # type: ignore[union-attr]
                files.append((str(path), bytes(await part.read())))  # type: ignore[union-attr]
        for path, content in files:
            if not await sandbox.box.write(path, content):
                raise failure(500, f"{path} could not be written")
            written.append({"name": path.rpartition("/")[2], "type": "file", "path": path})
        return web.json_response(written)

    async def start(self, request: web.Request) -> web.StreamResponse:
        sandbox = self._inside(request)
        self.provider.maybe_fail("fail_exec")
        body = _unframed(await request.read())
        config = body["process"]
        only_known(body, {"process"})
        process = await sandbox.box.spawn(
            [config["cmd"], *config.get("args", [])],
            {**(sandbox.request.get("envVars") or {}), **config.get("envs", {})},
            config.get("cwd"),
        )
        process.process.stdin.close()
        self.provider.used(sandbox)
        self.processes[sandbox.id, process.pid] = process
        timeout = int(request.headers.get("Connect-Timeout-Ms", 0)) / 1000 or None
        return await self._streamed(request, sandbox, process, timeout)

    async def _streamed(
        self, request: web.Request, sandbox: Sandbox, process: Running, seconds: float | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": JSON_STREAM})
        await response.prepare(request)
        await response.write(_framed({"event": {"start": {"pid": process.pid}}}))
        events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        pumps = asyncio.gather(
            *(_pump(s, pipe, events) for s, pipe in (("stdout", process.stdout), ("stderr", process.stderr)))
        )
        ended = asyncio.create_task(_ended(process, pumps, events, seconds))
        drop = self.provider.drops_stream()
        with contextlib.suppress(ConnectionError):
            while True:
                event = await _next(events)
                if event is None:
                    break
                await response.write(_framed({"event": event}))
                if drop and "data" in event:
                    request.transport.abort()  # type: ignore[union-attr]
                    return response
            code = await ended
            if sandbox.id not in self.provider.sandboxes:
                gone = {"error": {"code": "unavailable", "message": f"sandbox {sandbox.id} was not found"}}
                await response.write(_framed(gone, flag=2))
                return response
            end = {"exitCode": code, "exited": code >= 0, "status": f"exit status {code}"}
            await response.write(_framed({"event": {"end": end}}))
            await response.write(_framed({}, flag=2))
        return response

    async def processes_list(self, request: web.Request) -> web.Response:
        sandbox = self._inside(request)
        running = [p for (box, _), p in self.processes.items() if box == sandbox.id and p.returncode is None]
        return web.json_response({"processes": [{"pid": p.pid, "config": {"cmd": "", "args": []}} for p in running]})

    async def signal(self, request: web.Request) -> web.Response:
        sandbox, body = self._inside(request), await request.json()
        process = self.processes.get((sandbox.id, int(body["process"]["pid"])))
        if process is None or process.returncode is not None:
            return web.json_response({"code": "not_found", "message": "process not found"}, status=404)
        process.kill()
        return web.json_response({})


def _refusal(image: Pulled) -> str:
    """What the real builder runs first must be there: dpkg's questions, then apt."""
    wanted = ("usr/bin/dpkg-query", "usr/bin/apt-get", "usr/bin/passwd", "var/lib/dpkg/status")
    missing = [path for path in wanted if not any((layer / path).is_file() for layer in image.layers)]
    return f"provisioning failed: the image has no {', '.join(missing)}" if missing else ""


def _template(template: Template) -> dict[str, Any]:
    """A template as the list has it; its name has the team in front, as at E2B."""
    return {
        "templateID": template.id,
        "buildID": template.build,
        "buildStatus": template.state,
        "cpuCount": template.request.get("cpuCount", 2),
        "memoryMB": template.request.get("memoryMB", 512),
        "diskSizeMB": 1024,
        "public": False,
        "aliases": [template.name],
        "names": [f"team/{template.name}"],
        "createdAt": template.created,
        "updatedAt": template.created,
        "createdBy": None,
        "lastSpawnedAt": None,
        "spawnCount": 0,
        "buildCount": 1,
        "envdVersion": VERSION,
    }


def _framed(message: dict[str, Any], flag: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return struct.pack(">BI", flag, len(data)) + data


def _unframed(data: bytes) -> dict[str, Any]:
    _, size = struct.unpack(">BI", data[:5])
    message: dict[str, Any] = json.loads(data[5 : 5 + size])
    return message


async def _pump(name: str, pipe: asyncio.StreamReader, events: asyncio.Queue[dict[str, Any] | None]) -> None:
    while chunk := await pipe.read(65536):
        await events.put({"data": {name: base64.b64encode(chunk).decode()}})


async def _ended(
    process: Running,
    pumps: asyncio.Future[Any],
    events: asyncio.Queue[dict[str, Any] | None],
    seconds: float | None,
) -> int:
    try:
        await asyncio.wait_for(asyncio.shield(pumps), seconds)
    except TimeoutError:
        process.kill()  # envd kills a command at its deadline
    code = await process.wait()
    await events.put(None)
    return code


async def _next(events: asyncio.Queue[dict[str, Any] | None]) -> dict[str, Any] | None:
    try:
        return await asyncio.wait_for(events.get(), KEEPALIVE)
    except TimeoutError:
        return {"keepalive": {}}


def routes(provider: Provider, _args: argparse.Namespace) -> list[web.RouteDef]:
    return E2B(provider).routes()


if __name__ == "__main__":
    serve("e2b", routes)
