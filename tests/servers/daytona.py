"""A server that Daytona's SDK takes for Daytona: API and toolbox on one address.

Point the SDK here with ``DAYTONA_API_URL``.  A snapshot of an image with a digest is that image, pulled and unpacked,
with its variables; all other images and snapshots are one image.  It fails closed on egress lists, volumes, secrets,
GPUs and on every field it does not know.  ``--minute`` shortens the minutes in which Daytona counts lifetimes.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from .provider import Provider, Sandbox, Template, failure, only_known, serve

if TYPE_CHECKING:
    import argparse

    from .box import Running

KNOWN = {"name", "env", "labels", "target", "cpu", "memory", "disk", "snapshot", "buildInfo"}
KNOWN |= {"autoStopInterval", "autoDeleteInterval", "ttlMinutes", "networkBlockAll"}
STATES = {"ready": "active", "building": "building", "error": "build_failed", "inactive": "inactive"}
MARKS = {"stdout": b"\x01\x01\x01", "stderr": b"\x02\x02\x02"}


@dataclass
class Command:
    """One command of a session: what it wrote so far, and its end."""

    id: str
    text: str
    log: list[tuple[str, bytes]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: int | None = None
    done: bool = False

    def add(self, stream: str, data: bytes) -> None:
        self.log.append((stream, data))
        self._wake()

    def end(self, code: int) -> None:
        self.exit_code, self.done = code, True
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def output(self, *streams: str) -> str:
        return b"".join(data for stream, data in self.log if stream in streams).decode("utf-8", "replace")


@dataclass
class Session:
    """One shell, shared by all commands of the session: a command that exits ends it."""

    shell: Running
    commands: dict[str, Command] = field(default_factory=dict)


class Daytona:
    """The handlers."""

    def __init__(self, provider: Provider, minute: float):
        self.provider, self.minute = provider, minute
        self.sessions: dict[tuple[str, str], Session] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def routes(self) -> list[web.RouteDef]:
        box = "/toolbox/{id}"
        return [
            web.post("/sandbox", self.create),
            web.get("/sandbox", self.list),
            web.get("/sandbox/{id}", self.get),
            web.delete("/sandbox/{id}", self.delete),
            web.post("/sandbox/{id}/ttl/{minutes}", self.ttl),
            web.post("/sandbox/{id}/autostop/{minutes}", self.get),
            web.post("/snapshots", self.snapshot_new),
            web.get("/snapshots", self.snapshot_list),
            web.get("/snapshots/{id}", self.snapshot_get),
            web.delete("/snapshots/{id}", self.snapshot_delete),
            web.post("/snapshots/{id}/activate", self.snapshot_activate),
            web.post("/snapshots/{id}/deactivate", self.snapshot_deactivate),
            web.post(f"{box}/process/execute", self.execute),
            web.post(f"{box}/process/session", self.session_new),
            web.get(box + "/process/session/{session}", self.session_get),
            web.delete(box + "/process/session/{session}", self.session_delete),
            web.post(box + "/process/session/{session}/exec", self.session_exec),
            web.get(box + "/process/session/{session}/command/{command}", self.command_get),
            web.get(box + "/process/session/{session}/command/{command}/logs", self.command_logs),
            web.post(f"{box}/files/bulk-upload", self.upload),
            web.post(f"{box}/files/bulk-download", self.download),
        ]

    # --- API ---

    async def create(self, request: web.Request) -> web.Response:
        self._authorized(request)
        body = await request.json()
        only_known(body, KNOWN)
        ttl = (body.get("ttlMinutes") or 10**6) * self.minute
        network, image = not body.get("networkBlockAll"), None
        if (body.get("snapshot") or "").startswith("px-"):
            template = self.provider.template(body["snapshot"])
            if template.state != "ready":
                raise failure(400, f"Snapshot {template.name} is {STATES[template.state]}")
            image = template.image
        sandbox = await self.provider.create(body.get("labels") or {}, body, ttl, network=network, image=image)
        return web.json_response(self._described(request, sandbox))  # 200: the SDK takes 201 for nothing

    def _described(self, request: web.Request, sandbox: Sandbox) -> dict[str, Any]:
        asked = sandbox.request
        return {
            "id": sandbox.id,
            "organizationId": "test",
            "name": asked.get("name") or sandbox.id,
            "user": "user",
            "env": asked.get("env") or {},
            "labels": sandbox.labels,
            "public": False,
            "networkBlockAll": bool(asked.get("networkBlockAll")),
            "kvm": False,
            "target": asked.get("target") or "test",
            "cpu": asked.get("cpu") or 1,
            "gpu": 0,
            "memory": asked.get("memory") or 1,
            "disk": asked.get("disk") or 3,
            "state": "started",
            "desiredState": "started",
            "createdAt": sandbox.created,
            "autoStopInterval": asked.get("autoStopInterval", 15),
            "toolboxProxyUrl": f"http://{request.host}/toolbox",
        }

    async def snapshot_new(self, request: web.Request) -> web.Response:
        self._authorized(request)
        body = await request.json()
        only_known(body, {"name", "imageName", "entrypoint", "cpu", "memory", "disk", "gpu"})
        if body["name"] in self.provider.templates:
            raise failure(409, f"Snapshot with name {body['name']!r} already exists")
        template = Template(body["name"], body)
        self.provider.templates[template.name] = template
        self.provider.build(template, body.get("imageName") or "")
        return web.json_response(_snapshot(template))

    async def snapshot_list(self, request: web.Request) -> web.Response:
        self._authorized(request)
        page, limit = int(request.query.get("page", 1)), int(request.query.get("limit", 100))
        found = sorted(self.provider.templates.values(), key=lambda t: t.created)
        items = [_snapshot(t) for t in found[(page - 1) * limit : page * limit]]
        pages = -(-len(found) // limit)
        return web.json_response({"items": items, "total": len(found), "page": page, "totalPages": pages})

    async def snapshot_get(self, request: web.Request) -> web.Response:
        self._authorized(request)
        return web.json_response(_snapshot(self.provider.template(request.match_info["id"])))

    async def snapshot_delete(self, request: web.Request) -> web.Response:
        self._authorized(request)
        del self.provider.templates[self.provider.template(request.match_info["id"]).name]
        return web.Response(status=200)

    async def snapshot_activate(self, request: web.Request) -> web.Response:
        self._authorized(request)
        template = self.provider.template(request.match_info["id"])
        if template.state != "inactive":
            raise failure(400, f"Snapshot {template.id} cannot be activated - it is in {template.state} state")
        template.state = "ready"
        return web.json_response(_snapshot(template))

    async def snapshot_deactivate(self, request: web.Request) -> web.Response:
        self._authorized(request)
        self.provider.template(request.match_info["id"]).state = "inactive"
        return web.Response(status=204)

    async def list(self, request: web.Request) -> web.Response:
        self._authorized(request)
        asked = json.loads(request.query.get("labels") or "{}")
        found = [s for s in self.provider.sandboxes.values() if asked.items() <= s.labels.items()]
        return web.json_response({"items": [self._described(request, s) for s in found], "nextCursor": None})

    async def get(self, request: web.Request) -> web.Response:
        return web.json_response(self._described(request, self._sandbox(request)))

    async def delete(self, request: web.Request) -> web.Response:
        sandbox = self._sandbox(request)
        await self.provider.delete(sandbox)
        return web.json_response({**self._described(request, sandbox), "state": "destroying"})

    async def ttl(self, request: web.Request) -> web.Response:
        sandbox, minutes = self._sandbox(request), int(request.match_info["minutes"])
        if not sandbox.dying:
            sandbox.deadline = time.monotonic() + (minutes or 10**6) * self.minute
        return web.json_response(self._described(request, sandbox))

    def _authorized(self, request: web.Request) -> None:
        if request.headers.get("Authorization") != f"Bearer {self.provider.key}":
            raise failure(401, "invalid API key")

    def _sandbox(self, request: web.Request) -> Sandbox:
        self._authorized(request)
        sandbox = self.provider.sandboxes.get(request.match_info["id"])
        if sandbox is None:
            raise failure(404, f"Sandbox with ID or name {request.match_info['id']} not found")
        return sandbox

    # --- toolbox ---

    async def execute(self, request: web.Request) -> web.Response:
        sandbox, body = self._sandbox(request), await request.json()
        only_known(body, {"command", "cwd", "timeout", "envs"})
        env = {**(sandbox.request.get("env") or {}), **(body.get("envs") or {})}
        # One stream for both: that is all that this request can return.
        command = ["bash", "-c", 'exec 2>&1; eval "$0"', body["command"]]
        process = await sandbox.box.spawn(command, env, body.get("cwd"))
        self.provider.used(sandbox)
        try:
            said = await asyncio.wait_for(process.stdout.read(), body.get("timeout") or None)
            code = await process.wait()
        except TimeoutError:
            process.kill()
            raise failure(408, "command execution timeout") from None
        if sandbox.id not in self.provider.sandboxes:
            raise failure(502, "the sandbox is gone")
        return web.json_response({"exitCode": code, "result": said.decode("utf-8", "replace")})

    async def session_new(self, request: web.Request) -> web.Response:
        sandbox, body = self._sandbox(request), await request.json()
        shell = await sandbox.box.spawn(["bash"], dict(sandbox.request.get("env") or {}))
        self.sessions[sandbox.id, body["sessionId"]] = Session(shell)
        return web.Response(status=201)

    def _session(self, request: web.Request) -> Session:
        sandbox = self._sandbox(request)
        session = self.sessions.get((sandbox.id, request.match_info["session"]))
        if session is None:
            raise failure(404, "session not found")
        return session

    async def session_get(self, request: web.Request) -> web.Response:
        session = self._session(request)
        commands = [_described(c) for c in session.commands.values()]
        return web.json_response({"sessionId": request.match_info["session"], "commands": commands})

    async def session_delete(self, request: web.Request) -> web.Response:
        self._session(request).shell.kill()
        return web.Response(status=204)

    async def session_exec(self, request: web.Request) -> web.Response:
        sandbox, session, body = self._sandbox(request), self._session(request), await request.json()
        self.provider.maybe_fail("fail_exec")
        only_known(body, {"command", "runAsync", "async"})
        if session.shell.returncode is not None:
            raise failure(410, "the session has ended")
        command = Command(uuid.uuid4().hex, body["command"])
        session.commands[command.id] = command
        self.provider.used(sandbox)
        running = asyncio.create_task(self._run(sandbox, session, command))
        self.tasks.add(running)
        running.add_done_callback(self.tasks.discard)
        if body.get("runAsync") or body.get("async"):
            return web.json_response({"cmdId": command.id}, status=202)
        await running
        out, err = command.output("stdout"), command.output("stderr")
        answer = {"cmdId": command.id, "exitCode": command.exit_code, "stdout": out, "stderr": err}
        return web.json_response({**answer, "output": command.output("stdout", "stderr")})

    async def _run(self, sandbox: Sandbox, session: Session, command: Command) -> None:
        base = f"/tmp/.session-{command.id}"
        make = await sandbox.box.spawn(["mkfifo", f"{base}.stdout", f"{base}.stderr"], {})
        await make.wait()
        line = f"{{ {command.text}\n}} >{base}.stdout 2>{base}.stderr </dev/null; echo $? >{base}.code\n"
        session.shell.write(line.encode())
        await asyncio.gather(*(self._pump(sandbox, command, stream, f"{base}.{stream}") for stream in MARKS))
        code = None
        for _ in range(20):
            code = await sandbox.box.read(f"{base}.code")
            if code or session.shell.returncode is not None:
                break
            await asyncio.sleep(0.02)
        command.end(int(code) if code else session.shell.returncode or 0)

    async def _pump(self, sandbox: Sandbox, command: Command, stream: str, path: str) -> None:
        reader = await sandbox.box.spawn(["cat", path], {})
        while data := await reader.stdout.read(65536):
            command.add(stream, data)

    def _command(self, request: web.Request) -> Command:
        command = self._session(request).commands.get(request.match_info["command"])
        if command is None:
            raise failure(404, "command not found")
        return command

    async def command_get(self, request: web.Request) -> web.Response:
        return web.json_response(_described(self._command(request)))

    async def command_logs(self, request: web.Request) -> web.StreamResponse:
        sandbox, command = self._sandbox(request), self._command(request)
        if request.query.get("follow", "").lower() != "true":
            out, err = command.output("stdout"), command.output("stderr")
            return web.json_response({"output": out + err, "stdout": out, "stderr": err})
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        drop, sent = self.provider.drops_stream(), 0
        while True:
            changed, ended = command.changed, command.done
            for stream, data in command.log[sent:]:
                await socket.send_bytes(MARKS[stream] + data)
                sent += 1
                if drop:
                    request.transport.abort()  # type: ignore[union-attr]
                    return socket
            if sandbox.id not in self.provider.sandboxes:
                await socket.close(code=1011, message=b"the sandbox is gone")
                return socket
            if ended:
                break
            await asyncio.wait([asyncio.create_task(changed.wait())], timeout=0.5)
        await socket.close()
        return socket

    async def upload(self, request: web.Request) -> web.Response:
        sandbox, paths = self._sandbox(request), {}
        self.provider.maybe_fail("fail_upload")
        async for part in await request.multipart():
            name, content = str(part.name), bytes(await part.read())  # type: ignore[union-attr]
            number, _, kind = name.partition(".")
            if kind == "path":
                paths[number] = content.decode()
            elif not await sandbox.box.write(paths[number], content):
                raise failure(500, f"{paths[number]} could not be written")
        return web.json_response({})

    async def download(self, request: web.Request) -> web.StreamResponse:
        sandbox, body = self._sandbox(request), await request.json()
        boundary = uuid.uuid4().hex
        parts = []
        for path in body["paths"]:
            content = await sandbox.box.read(path)
            name = "error" if content is None else "file"
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{path}"\r\n\r\n'
            parts.append(head.encode() + (b"file not found" if content is None else content) + b"\r\n")
        body_bytes = b"".join(parts) + f"--{boundary}--\r\n".encode()
        return web.Response(body=body_bytes, headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})


def _snapshot(template: Template) -> dict[str, Any]:
    asked = template.request
    return {
        "id": template.id,
        "organizationId": "test",
        "general": False,
        "name": template.name,
        "imageName": asked.get("imageName"),
        "state": STATES[template.state],
        "size": None,
        "entrypoint": asked.get("entrypoint"),
        "cpu": asked.get("cpu") or 1,
        "gpu": 0,
        "mem": asked.get("memory") or 1,
        "disk": asked.get("disk") or 3,
        "errorReason": "the image could not be unpacked" if template.state == "error" else None,
        "createdAt": template.created,
        "updatedAt": template.created,
        "lastUsedAt": None,
        "sourceSandboxId": None,
    }


def _described(command: Command) -> dict[str, Any]:
    return {"id": command.id, "command": command.text, "exitCode": command.exit_code}


def routes(provider: Provider, args: argparse.Namespace) -> list[web.RouteDef]:
    return Daytona(provider, args.minute).routes()


if __name__ == "__main__":
    serve("daytona", routes)
