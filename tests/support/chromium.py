"""A real Chromium, driven over a pipe by its DevTools protocol: no other program, no port, no network."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TIMEOUT = 120.0
# The tests may run as root in a container, where Chromium's own sandbox cannot be made.
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# Chromium reads commands from descriptor 3 and writes answers to 4; a shell would not take numbers above 9.
_START = """
import fcntl, os, sys
high = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 20) for number in sys.argv[1:3]]
for number, fd in zip((3, 4), high):
    os.dup2(fd, number)
    os.close(fd)
os.execvp("chromium", ["chromium", *sys.argv[3:]])
"""
_KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "/": (191, "/")}
_KEYS |= {"ArrowLeft": (37, ""), "ArrowUp": (38, ""), "ArrowRight": (39, ""), "ArrowDown": (40, "")}


class Chromium:
    """One page of one browser."""

    def __init__(self, to: int, answers: int):
        self._to, self._answers = to, answers
        self._numbers = itertools.count(1)
        self._buffer = b""
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    _session = ""

    def send(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == number:
                assert "error" not in found, found
                return found["result"]
            self.events.append(found)

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + TIMEOUT
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
            assert ready, "Chromium does not answer"
            piece = os.read(self._answers, 1 << 20)
            assert piece, "Chromium ended"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def open(self, what: Path | str) -> None:
        """Load a file or an address, and wait until it is loaded."""
        self.events.clear()
        self.send("Page.navigate", url=what.as_uri() if isinstance(what, Path) else what)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, *keys: str) -> None:
        for key in keys:
            code, text = _KEYS[key]
            given = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            self.send("Input.dispatchKeyEvent", type="keyDown", **given, **({"text": text} if text else {}))
            self.send("Input.dispatchKeyEvent", type="keyUp", **given)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def look(self, *, width: int = 1200, height: int = 900, dark: bool = False, phone: bool = False) -> None:
        """The size of the window, and whether the user wants dark colours."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        # A frame later everything has the new size.
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def printed(self, path: Path) -> None:
        """The page as a printer would get it, as a PDF."""
        found = self.send("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[str]:
        """What the browser wrote to its console: errors of scripts, and what the policy of the page forbade."""
        found = [e["params"]["entry"]["text"] for e in self.events if e.get("method") == "Log.entryAdded"]
        thrown = [e["params"]["exceptionDetails"] for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        return [*found, *map(str, thrown)]

    def requests(self) -> list[str]:
        """The addresses that the page asked for, itself included."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [e["params"]["request"]["url"] for e in sent]


@contextmanager
def chromium() -> Iterator[Chromium]:
    """A browser with a profile of its own, which ends with the block."""
    ours_out, theirs_in = os.pipe()[::-1]
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(prefix="px-chromium-", ignore_cleanup_errors=True) as profile:
        command = [sys.executable, "-c", _START, str(theirs_in), str(theirs_out)]
        command += [*_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        browser = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": profile},
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Chromium(ours_out, ours_in)
        finally:
            browser.terminate()
            try:
                browser.wait(30)
            except subprocess.TimeoutExpired:
                browser.kill()
                browser.wait()
            os.close(ours_out)
            os.close(ours_in)
