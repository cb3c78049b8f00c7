"""What both servers share: the sandboxes that exist, their end of life, the faults that tests switch on, counts.

Tests talk to ``/_faults`` (PUT, a JSON object of the fields of :class:`Faults`) and ``/_stats`` (GET).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aiohttp import web

from px.errors import PxError

from .box import Box
from .images import pull

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .images import Pulled

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Faults:
    """Each is off when zero, empty or None; counters go down as they fire."""

    create_delay: float = 0.0
    fail_create: int = 0
    fail_upload: int = 0
    fail_exec: int = 0
    fail_status: int = 500
    retry_after: int | None = None
    drop_streams: int = 0
    """Cut this many streams, each after its first output."""
    die_after: float = 0.0
    """Seconds after its first command at which the next sandbox dies."""
    die_times: int = 0
    lose_deletes: int = 0
    """Answer this many deletions with success and do nothing."""
    build_delay: float = 0.0
    """Seconds that the building of a template takes."""
    fail_build: int = 0


@dataclass
class Sandbox:
    """One sandbox that a client made."""

    id: str
    labels: dict[str, str]
    request: dict[str, Any]
    box: Box
    deadline: float
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    dying: bool = False


@dataclass
class Template:
    """A template or snapshot, from the moment that somebody asked for it."""

    name: str
    request: dict[str, Any]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    build: str = field(default_factory=lambda: str(uuid.uuid4()))
    state: str = "building"
    reason: str = ""
    """Why its image was refused."""
    login: str = ""
    """The name with which its image is pulled."""
    image: Pulled | None = None
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat())


class Provider:
    """The state behind one server."""

    def __init__(self, key: str):
        self.key = key
        self.faults = Faults()
        self.sandboxes: dict[str, Sandbox] = {}
        self.created = 0
        self.destroyed = 0
        self.templates: dict[str, Template] = {}
        self.building: set[asyncio.Task[None]] = set()
        self.requests: list[str] = []
        self.creations: list[dict[str, Any]] = []

    async def create(
        self,
        labels: dict[str, str],
        request: dict[str, Any],
        seconds: float,
        *,
        network: bool = True,
        image: Pulled | None = None,
    ) -> Sandbox:
        self.creations.append(request)
        if self.faults.create_delay:
            await asyncio.sleep(self.faults.create_delay)
        self.maybe_fail("fail_create")
        box = await Box.start(network=network, image=image)
        sandbox = Sandbox(uuid.uuid4().hex[:20], labels, request, box, time.monotonic() + seconds)
        self.sandboxes[sandbox.id] = sandbox
        self.created += 1
        return sandbox

    def template(self, text: str) -> Template:
        """By name or id."""
        found = self.templates.get(text) or next((t for t in self.templates.values() if t.id == text), None)
        if found is None:
            raise failure(404, f"template {text!r} not found")
        return found

    def build(self, template: Template, reference: str, refuse: Callable[[Pulled], str] = lambda _: "") -> None:
        """Pull and unpack the image, and ``refuse`` it or not; the answer does not wait for it."""
        task = asyncio.create_task(self._build(template, reference, refuse))
        self.building.add(task)
        task.add_done_callback(self.building.discard)

    async def _build(self, template: Template, reference: str, refuse: Callable[[Pulled], str]) -> None:
        await asyncio.sleep(self.faults.build_delay)
        try:
            self.maybe_fail("fail_build")
            template.image = await pull(reference)
        except (web.HTTPException, PxError):
            template.state = "error"
        else:
            template.reason = refuse(template.image) if template.image else ""
            template.state = "error" if template.reason else "ready"

    def maybe_fail(self, fault: str) -> None:
        left: int = getattr(self.faults, fault)
        if left > 0:
            setattr(self.faults, fault, left - 1)
            raise failure(self.faults.fail_status, "switched on by the test", self.faults.retry_after)

    async def delete(self, sandbox: Sandbox) -> None:
        if self.faults.lose_deletes > 0:
            self.faults.lose_deletes -= 1
            return
        await self.end(sandbox)

    async def end(self, sandbox: Sandbox) -> None:
        if self.sandboxes.pop(sandbox.id, None) is not None:
            self.destroyed += 1
            await sandbox.box.stop()

    def used(self, sandbox: Sandbox) -> None:
        """A command was started: the fault that kills sandboxes counts from here."""
        if self.faults.die_times > 0 and not sandbox.dying:
            self.faults.die_times -= 1
            sandbox.dying = True
            sandbox.deadline = time.monotonic() + self.faults.die_after

    def drops_stream(self) -> bool:
        if self.faults.drop_streams > 0:
            self.faults.drop_streams -= 1
            return True
        return False

    async def expire(self) -> None:
        while True:
            for sandbox in [s for s in self.sandboxes.values() if s.deadline < time.monotonic()]:
                await self.end(sandbox)
            await asyncio.sleep(0.1)

    def stats(self) -> dict[str, Any]:
        return {
            "created": self.created,
            "destroyed": self.destroyed,
            "alive": sorted(self.sandboxes),
            "labels": [s.labels for s in self.sandboxes.values()],
            "requests": self.requests,
            "creations": self.creations,
            "templates": {t.name: t.state for t in self.templates.values()},
            "logins": {t.name: t.login for t in self.templates.values()},
            "faults": asdict(self.faults),
        }


def failure(status: int, message: str, retry_after: int | None = None) -> web.HTTPException:
    """An error as both providers spell it: JSON with a code and a message."""
    kind = type("Failure", (web.HTTPException,), {"status_code": status})
    headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
    body = json.dumps({"code": status, "statusCode": status, "message": message})
    error: web.HTTPException = kind(text=body, content_type="application/json", headers=headers)
    return error


def only_known(body: dict[str, Any], known: set[str]) -> None:
    """Refuse a request for something that this server would otherwise silently not do."""
    asked = {k for k, v in body.items() if v not in (None, False, {}, [], "", 0)}
    if asked - known:
        raise failure(400, f"this test server does not implement {sorted(asked - known)}")


def administration(provider: Provider) -> list[web.RouteDef]:
    async def faults(request: web.Request) -> web.Response:
        provider.faults = Faults(**await request.json())
        return web.json_response(asdict(provider.faults))

    async def stats(_request: web.Request) -> web.Response:
        return web.json_response(provider.stats())

    return [web.put("/_faults", faults), web.get("/_stats", stats)]


@web.middleware
async def as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count requests, and let nothing unknown look like success."""
    provider: Provider = request.app["provider"]
    if not request.path.startswith("/_"):
        provider.requests.append(f"{request.method} {request.path}")
    try:
        return await handler(request)
    except web.HTTPNotFound:
        raise failure(404, f"this test server has no {request.method} {request.path}") from None


def serve(name: str, routes: Callable[[Provider, argparse.Namespace], list[web.RouteDef]]) -> None:
    """Run a server in the foreground; its address is the first line on stdout."""
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--key", required=True, help="the API key that clients must present")
    parser.add_argument("--minute", type=float, default=60.0, help="how many seconds a minute has here")
    asyncio.run(_serve(parser.parse_args(), routes))


async def _serve(
    args: argparse.Namespace, routes: Callable[[Provider, argparse.Namespace], list[web.RouteDef]]
) -> None:
    provider = Provider(args.key)
    app = web.Application(middlewares=[as_json], client_max_size=1 << 30)
    app["provider"] = provider
    app.add_routes([*administration(provider), *routes(provider, args)])
    runner = web.AppRunner(app, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sockets = site._server.sockets  # type: ignore[union-attr]
    sys.stdout.write(f"http://127.0.0.1:{sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    expiring = asyncio.create_task(provider.expire())
    try:
        await _stdin_closed()
    finally:
        expiring.cancel()
        for sandbox in list(provider.sandboxes.values()):
            await provider.end(sandbox)
        await runner.cleanup()


async def _stdin_closed() -> None:
    """Serve until whoever started this server is gone."""
    await asyncio.to_thread(sys.stdin.read)
