"""The records of a remote task: what comes back was written in the sandbox, where anybody may have written it."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaflow_extensions.sandbox.plugins.remote.metadata import from_datastore, to_datastore

RUN = ".metaflow/F/1"
TASK = ("F", "1", "start", "2")


class Datastore:
    """As much of Metaflow's flow datastore as these functions use."""

    def __init__(self, blob: bytes = b""):
        self.blob = blob
        self.parent_datastore = self

    def save_data(self, blobs: list[bytes], len_hint: int) -> list[tuple[str, str]]:
        (self.blob,) = blobs
        return [("", "key")]

    def _dangerous_save_metadata_post_done(self, _known: dict[str, str]) -> None:
        """Where it is does not matter here."""

    def load_data(self, keys: list[str]) -> Iterator[tuple[str, bytes]]:
        yield keys[0], self.blob


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's working directory, with a run in it."""
    root = tmp_path / "here"
    (root / RUN).mkdir(parents=True)
    monkeypatch.chdir(root)
    return root


def packed(*members: tuple[str, bytes | None]) -> bytes:
    """A file for each name; a link to a place if there is None instead of a content."""
    buffer = io.BytesIO()
    with tarfile.open(mode="w:gz", fileobj=buffer) as tar:
        for text, content in members:
            name, _, target = text.partition(" -> ")
            member = tarfile.TarInfo(name)
            member.mtime = 1_700_000_000
            if content is None:
                member.type, member.linkname = tarfile.SYMTYPE, target
            else:
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content or b""))
    return buffer.getvalue()


def records(root: Path) -> dict[str, str]:
    found = (p for p in (root / RUN).rglob("*") if p.is_file())
    return {str(p.relative_to(root / RUN)): p.read_text() for p in found}


def test_there_and_back(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "inside"
    for name in (f"{RUN}/_meta/_self.json", f"{RUN}/start/2/_meta/sysmeta_a.json"):
        (inside / name).parent.mkdir(parents=True, exist_ok=True)
        (inside / name).write_text(name)
    monkeypatch.chdir(inside)
    monkeypatch.setenv("PX_STATE", str(tmp_path))
    store = Datastore()
    to_datastore(*TASK, store)
    assert (tmp_path / "metadata").read_text() == "key"
    monkeypatch.chdir(here)
    from_datastore(store, "key", TASK)
    assert records(here) == {
        "_meta/_self.json": f"{RUN}/_meta/_self.json",
        "start/2/_meta/sysmeta_a.json": f"{RUN}/start/2/_meta/sysmeta_a.json",
    }
    (here / RUN / "_meta/_self.json").write_text("newer")
    from_datastore(store, "key", TASK)
    assert records(here)["_meta/_self.json"] == "newer", "a tag that was added meanwhile is kept"


def test_no_link_is_followed(here: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    blob = packed(
        (f"{RUN}/start/2/out -> {tmp_path}", None),
        (f"{RUN}/start/2/out/written", b"from inside"),
        (f"{RUN}/start/2/_meta/copied.json -> {tmp_path}/secret", None),
    )
    from_datastore(Datastore(blob), "key", TASK)
    assert not (tmp_path / "written").exists()
    assert "secret" not in records(here).values()


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        f"{RUN}/../../../../outside",
        ".metaflow/config.json",
        ".metaflow/G/1/_meta/a",
        f"{RUN}/start/3/_meta/a",
        f"{RUN}/start/2",
    ],
)
def test_only_records_of_the_task_and_its_run(here: Path, tmp_path: Path, name: str) -> None:
    from_datastore(Datastore(packed((name, b"{}"), (f"{RUN}/start/2/_meta/good", b"{}"))), "key", TASK)
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()] == [
        f"here/{RUN}/start/2/_meta/good"
    ]


GOOD = packed((f"{RUN}/start/2/_meta/a", b"{}"))


@pytest.mark.parametrize(
    "blob",
    [b"", b"no archive", GOOD[:40], GOOD[:-9], zlib.compress(b"\0" * 100, wbits=31)],
    ids=["empty", "no archive", "cut off soon", "cut off late", "not a tar"],  # GOOD has the time in it
)
def test_what_is_damaged_fails_no_task(here: Path, blob: bytes) -> None:
    from_datastore(Datastore(blob), "key", TASK)
    assert set(records(here)) <= {"start/2/_meta/a"}


def test_a_small_archive_that_is_huge_inside(here: Path) -> None:
    from_datastore(Datastore(packed((f"{RUN}/start/2/_meta/a", b"\0" * (100 << 20)))), "key", TASK)
    assert records(here) == {}
