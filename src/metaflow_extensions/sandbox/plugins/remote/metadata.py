"""Carries Metaflow's local metadata into a remote sandbox, and what the task recorded back.

In the sandbox, Metaflow would find no metadata of the run, and cards, tags and the client would fail.  So the run's
records go in before the step.  After it, the task's records come back through the datastore.
"""

from __future__ import annotations

import io
import os
import tarfile
import zlib
from pathlib import Path
from typing import Any

MOST_FILES = 2000
"""With more records than this, a task gets only those of the run itself, of its step and of itself."""
MOST_BYTES = 64 << 20
"""Of the records that come back; a record has some hundred."""


def seed(flow: str, run_id: str, step: str, task_id: str) -> bytes:
    """A tar of the run's metadata records, with paths as the sandbox's ``.metaflow`` has them."""
    from metaflow.plugins.datastores.local_storage import LocalStorage

    found = LocalStorage.get_datastore_root_from_config(lambda *_args, **_kwargs: None, create_on_absent=False)
    if found is None:
        return b""
    root = Path(found)
    run = root / flow / run_id
    records = sorted(p for p in run.rglob("_meta/*") if p.is_file())
    if len(records) > MOST_FILES:
        parts = [run / "_meta", run / "_parameters", run / step / "_meta", run / step / task_id / "_meta"]
        records = sorted(p for part in parts for p in part.rglob("*") if p.is_file() and "_meta" in p.parts)
    records += sorted(p for p in (root / flow / "_meta").glob("*") if p.is_file())
    return _tar({f".metaflow/{p.relative_to(root)}": p for p in records})


def to_datastore(flow: str, run_id: str, step: str, task_id: str, task_datastore: Any) -> None:
    """In the sandbox, after the task: save its records, and the run's tags, in the datastore."""
    from metaflow.metaflow_config import DATASTORE_LOCAL_DIR

    run = Path(DATASTORE_LOCAL_DIR) / flow / run_id
    parts = [run / "_meta", run / step / task_id]
    records = [p for part in parts for p in sorted(part.rglob("*")) if p.is_file()]
    blob = _tar({str(p): p for p in records})
    _, key = task_datastore.parent_datastore.save_data([blob], len_hint=1)[0]
    task_datastore._dangerous_save_metadata_post_done({"local_metadata": key})
    # The runner sends this key along with the exit code, so that the trampoline need not search for the records.
    with open(os.path.join(os.environ["PX_STATE"], "metadata"), "w") as f:
        f.write(key)


def from_datastore(flow_datastore: Any, key: str, task: tuple[str, str, str, str]) -> None:
    """In the trampoline: take over the records of a task (flow, run, step, id).  If it died early, there is no key.

    They come from inside the sandbox.  So only files count whose names are those of this task or of its run, and no
    link is followed or made.
    """
    from metaflow.exception import MetaflowException
    from metaflow.metaflow_config import DATASTORE_LOCAL_DIR
    from metaflow.plugins.datastores.local_storage import LocalStorage

    from px import tarballs

    if not key:
        return
    flow, run_id, step, task_id = task
    run = f"{DATASTORE_LOCAL_DIR}/{flow}/{run_id}"
    ours = (f"{run}/_meta/", f"{run}/{step}/{task_id}/")
    try:
        root = Path(LocalStorage.get_datastore_root_from_config(lambda *_args, **_kwargs: None))
        _, blob = next(flow_datastore.load_data([key]))
        content = zlib.decompressobj(wbits=31).decompress(blob, MOST_BYTES)
        with tarballs.open_tar(io.BytesIO(content), "r:") as tar:
            for member in tarballs.members(tar):
                plain = member.isreg() and not member.issparse() and ".." not in member.name.split("/")
                if plain and member.name.startswith(ours):
                    _take_over(tar, member, root / member.name.removeprefix(f"{DATASTORE_LOCAL_DIR}/"))
    except (MetaflowException, KeyError, OSError, ValueError, OverflowError, tarfile.TarError, zlib.error):
        return


def _take_over(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    from px.store.files import write_atomically

    file = tar.extractfile(member)
    if file is None or (path.exists() and member.mtime <= path.stat().st_mtime):
        return
    write_atomically(path, file.read(), durable=False)
    os.utime(path, (member.mtime, member.mtime))


def _tar(files: dict[str, Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(mode="w:gz", fileobj=buffer, compresslevel=1) as tar:
        for name, path in files.items():
            try:
                content, state = path.read_bytes(), path.stat()
            except FileNotFoundError:
                continue  # other tasks write now, and Metaflow writes under temporary names first
            member = tarfile.TarInfo(name)
            # A record is taken over only if it is newer than the one here, so it must keep its time.
            member.size, member.mtime = len(content), state.st_mtime
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
