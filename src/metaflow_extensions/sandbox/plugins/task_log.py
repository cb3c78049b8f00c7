"""Keeps the log of a remote task in the datastore, up to date while the task runs.

The launcher does it, not the sandbox: it gets every line anyway, and has Metaflow loaded, which in the sandbox would
be one more start of Metaflow for each task.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

SMALL = 1 << 20
LEAST_PAUSE = 2.0
STREAMS = ("stdout", "stderr")


class TaskLog:
    """The two streams of one attempt; saved every few seconds if they grew, and at the end."""

    def __init__(self, task_datastore: Any):
        self._datastore = task_datastore
        self._directory = tempfile.TemporaryDirectory(prefix="px-log-")
        self._files = [
            Path(self._directory.name, name).open("ab", buffering=0)  # noqa: SIM115 - open as long as the task runs
            for name in STREAMS
        ]
        self._changed = False
        self._ended = threading.Event()
        self._saver = threading.Thread(target=self._keep_saving, daemon=True)
        self._saver.start()

    def add(self, stream: int, line: str) -> None:
        self._files[stream].write(line.encode("utf-8", "surrogateescape") + b"\n")
        self._changed = True

    def close(self) -> None:
        self._ended.set()
        self._saver.join(timeout=30)
        self._save()
        for file in self._files:
            file.close()
        self._directory.cleanup()

    def _keep_saving(self) -> None:
        from metaflow.mflog import update_delay

        started = time.time()
        while not self._ended.wait(max(LEAST_PAUSE, update_delay(time.time() - started))):
            self._save()

    def _save(self) -> None:
        from metaflow.mflog import TASK_LOG_SOURCE
        from metaflow.util import Path as OnDisk

        if not self._changed:
            return
        self._changed = False
        paths = {name: Path(self._directory.name, name) for name in STREAMS}
        # As Metaflow's own saver does it: small logs as bytes, large ones from the file.
        small = all(path.stat().st_size < SMALL for path in paths.values())
        data = {name: path.read_bytes() if small else OnDisk(str(path)) for name, path in paths.items()}
        try:
            self._datastore.save_logs(TASK_LOG_SOURCE, data)
        except Exception:  # noqa: BLE001 - a log that cannot be saved now must not fail the task; the next try may do
            self._changed = True
