"""What ``--network allow`` costs: the start of a run, and the rate of a download, beside the host's own network.

The server is on this machine's loopback, which is faster than any cable: the relay is what is measured.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import tempfile
import threading
from pathlib import Path

from bench.engines import BIN, Project
from bench.timing import compare, table
from px.store.tree import remove_tree

ROUNDS = 20
DOWNLOADS = 7
MEGABYTES = 1024
RECEIVE = """\
import socket, sys, time
s = socket.create_connection(("localhost", int(sys.argv[1])))
buffer, total, started = bytearray(1 << 18), 0, time.perf_counter()
while n := s.recv_into(buffer):
    total += n
print(total / 1e6 / (time.perf_counter() - started))
"""


def serve() -> int:
    """A server that sends the same bytes to everybody; its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    piece = bytes(1 << 20)

    def send(connection: socket.socket) -> None:
        with connection:
            for _ in range(MEGABYTES):
                connection.sendall(piece)

    def accept() -> None:
        while True:
            threading.Thread(target=send, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.getsockname()[1])


def rate(project: Project, port: int, *flags: str) -> float:
    """Megabytes in a second, as a target in the sandbox sees them."""
    argv = [str(BIN / "px"), "run", "--sandbox", *flags, "python", "-c", RECEIVE, str(port)]
    return float(subprocess.run(argv, cwd=project.root, env=project.env, check=True, capture_output=True).stdout)


def main() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="px-bench-network-"))
    try:
        project = Project(scratch)
        run = ("python", "-c", "pass")
        everyone = {
            "--network host": project.px("run", "--sandbox", "--network", "host", *run),
            "--network none": project.px("run", "--sandbox", "--network", "none", *run),
            "--allow-net example.org": project.px("run", "--sandbox", "--allow-net", "example.org", *run),
        }
        compare(everyone, rounds=2)
        table("a start (aim: allow adds at most 10 ms)", compare(everyone, rounds=ROUNDS), base="--network host")
        port = serve()
        rates: dict[str, list[float]] = {"direct": [], "relay": []}
        for _ in range(DOWNLOADS):
            rates["direct"].append(rate(project, port, "--network", "host"))
            rates["relay"].append(rate(project, port, "--allow-net", f"localhost:{port}"))
        direct, relay = (statistics.median(found) for found in rates.values())
        print(f"\na download of {MEGABYTES} MB (aim: at least half of the direct rate)")
        print(f"  direct: {direct:.0f} MB/s; through the relay: {relay:.0f} MB/s, {relay / direct:.2f} of it")
    finally:
        remove_tree(scratch)
