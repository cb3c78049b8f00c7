"""The sandboxes behind the servers: px's persistent one over px's own Debian base, or over a pulled image."""

from __future__ import annotations

import asyncio
import os
import sysconfig
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from px.engines.bubblewrap import Bubblewrap
from px.engines.session import Session
from px.errors import PxError
from px.home import Home
from px.platforms import DEFAULT_BASE
from px.store.objects import Store
from px.warm.spec import Mount, RunSpec, User
from px.workflow.sandbox import bare_sandbox

if TYPE_CHECKING:
    from px.engines.remote import Process

    from .images import Pulled

# What an image for Metaflow tasks has besides Python, so that a task need not install it first.
PACKAGES = "boto3 botocore s3transfer jmespath dateutil six.py urllib3 requests certifi idna charset_normalizer"
SITE = "/usr/local/lib/python3.11/dist-packages"
HOME = "/home/user"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": HOME, "LANG": "C.UTF-8", "USER": "user"}
# Images for Metaflow say so when they bring what it needs.
ENVIRONMENT["METAFLOW_SKIP_INSTALL_DEPENDENCIES"] = "1"


@dataclass
class Running:
    """A command in a box."""

    process: Process
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    async def wait(self) -> int:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[int] = loop.create_future()

        def work() -> None:
            code = self.process.wait()
            loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(code))

        # A thread for each: the loop's own pool is far smaller than the number of commands at once.
        threading.Thread(target=work, daemon=True).start()
        return await ended

    def write(self, data: bytes) -> None:
        os.write(self.process.stdin.fileno(), data)

    def kill(self) -> None:
        try:
            self.process.kill()
        except (PxError, OSError):
            return  # the whole box has ended


class Box:
    """A running sandbox."""

    def __init__(self, session: Session):
        self.session = session

    @classmethod
    async def start(cls, *, network: bool, image: Pulled | None = None) -> Box:
        return cls(await asyncio.to_thread(_session, network, image))

    async def spawn(self, argv: list[str], env: dict[str, str], cwd: str | None = None) -> Running:
        process = self.session.exec(argv, env=env, cwd=cwd)
        assert process.stderr is not None
        return Running(process, await _reader(process.stdout), await _reader(process.stderr))

    async def write(self, path: str, content: bytes) -> bool:
        try:
            made = await self.spawn(["mkdir", "-p", os.path.dirname(path) or "."], {})
            await made.wait()
            await asyncio.to_thread(self.session.write_bytes, path, content)
        except (OSError, PxError):
            return False
        return True

    async def read(self, path: str) -> bytes | None:
        try:
            return await asyncio.to_thread(self.session.read_bytes, path)
        except (OSError, PxError):
            return None

    async def stop(self) -> None:
        await asyncio.to_thread(self.session.destroy)


async def _reader(stream: IO[bytes]) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
    return reader


def _session(network: bool, image: Pulled | None) -> Session:
    spec = _own(network) if image is None else _from(image, network)
    return Session(Bubblewrap(Home.from_environment()), spec)


def _from(image: Pulled, network: bool) -> RunSpec:
    env = {**image.env, "HOME": HOME, "USER": "user"}
    return RunSpec(layers=image.layers, argv=(), env=env, cwd=HOME, home=HOME, user=User(name="user"), network=network)


def _own(network: bool) -> RunSpec:
    layers = _layers()
    python = Mount(layers[0] / "usr/bin/python3.11", "/usr/local/bin/python", read_only=True)
    site = Path(sysconfig.get_paths()["purelib"])
    found = [site / name for name in PACKAGES.split() if (site / name).exists()]
    return RunSpec(
        layers=layers,
        argv=(),
        env=ENVIRONMENT,
        cwd=HOME,
        home=HOME,
        user=User(name="user"),
        mounts=(python, *(Mount(path, f"{SITE}/{path.name}", read_only=True) for path in found)),
        network=network,
    )


@cache
def _layers() -> tuple[Path, ...]:
    return tuple(map(Path, bare_sandbox(Store(Home.from_environment()), DEFAULT_BASE).layers))
