"""Keeps the log of a remote task in the datastore while the task runs.

The trampoline does this and not the sandbox.  It gets every line anyway, and it has Metaflow loaded; in the sandbox
this would be one more start of Metaflow for each task.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from typing import Any

SMALL = 1 << 20
LEAST_PAUSE = 2.0
STREAMS = ("stdout", "stderr")


class TaskLog:
    """The two streams of one attempt.  They are saved every few seconds if they grew, and at the end."""

    def __init__(self, task_datastore: Any):
        self._datastore = task_datastore
        # Files without names: nothing is left of them, however this process ends.
        self._files = [tempfile.TemporaryFile(buffering=0) for _ in STREAMS]  # noqa: SIM115 - open as long as the task runs
        self._changed = False
        self._ended = threading.Event()
        self._saver = threading.Thread(target=self._keep_saving, daemon=True)
        self._saver.start()

    def add(self, stream: int, line: str) -> None:
        file = self._files[stream].fileno()
        # At the end of the file, wherever the other thread is reading at this moment.
        os.pwrite(file, line.encode("utf-8", "surrogateescape") + b"\n", os.fstat(file).st_size)
        self._changed = True

    def close(self) -> None:
        self._ended.set()
        self._saver.join(timeout=30)
        self._save()
        for file in self._files:
            file.close()

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
        # As Metaflow itself does it: small logs are handed over as bytes, large ones as files.
        small = all(os.fstat(file.fileno()).st_size < SMALL for file in self._files)
        data: dict[str, Any] = {}
        for name, file in zip(STREAMS, self._files, strict=True):
            file.seek(0)
            data[name] = file.read() if small else OnDisk(f"/dev/fd/{file.fileno()}")
        try:
            self._datastore.save_logs(TASK_LOG_SOURCE, data)
        except Exception:  # noqa: BLE001 - the next try may succeed, and a log must not fail the task
            self._changed = True
