"""The log that a trampoline keeps in Metaflow's datastore."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from metaflow.datastore import FlowDataStore
from metaflow.mflog import TASK_LOG_SOURCE
from metaflow.plugins.datastores.local_storage import LocalStorage

from metaflow_extensions.sandbox.plugins.remote.log import SMALL, TaskLog


@pytest.mark.parametrize("size", [10, SMALL + 10], ids=["small", "large"])
def test_what_was_added_is_in_the_datastore_and_nowhere_else(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    store = FlowDataStore("F", storage_impl=LocalStorage, ds_root=str(tmp_path / "root"))
    task = store.get_task_datastore("1", "start", "1", attempt=0, mode="w")
    log = TaskLog(task)
    log.add(0, "x" * size)
    log._save()
    log.add(0, "after")
    log.add(1, "\udcff")  # a byte that is not UTF-8
    assert os.listdir(scratch) == []
    log.close()
    reader = store.get_task_datastore("1", "start", "1", attempt=0, mode="r", allow_not_done=True)
    saved = [reader.load_logs([TASK_LOG_SOURCE], name)[0][1] for name in ("stdout", "stderr")]
    assert saved == [b"x" * size + b"\nafter\n", b"\xff\n"]
