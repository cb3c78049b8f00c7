"""Wheels: what a good one becomes, and that every kind of bad one is refused with nothing left behind."""

from __future__ import annotations

import csv
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from px import bounds
from px.env.layout import BadEntryPointError, read_entry_points
from px.env.wheel import WheelOf, unpack_wheel
from px.errors import PxError
from px.store.objects import Draft, Payload, Store
from px.store.tree import Entry
from tests.support.bounded import memory, no_hang
from tests.support.wheels import WheelSpec, sha256


def unpack(store: Store, wheel: Path, name: str = "thing") -> str:
    def make(draft: Draft) -> Payload:
        return unpack_wheel(wheel, draft.tree(), WheelOf(name, "1.0", sha256(wheel)))

    return store.ensure("pkg-build", sha256(wheel), make)


GOOD = WheelSpec(
    "thing",
    files={
        "thing/data.bin": b"\0" * 3_000_000,
        "thing-1.0.data/scripts/tool": b"#!python\nprint(1)\n",
        "thing-1.0.data/data/share/thing/a.txt": b"a",
        "thing-1.0.data/headers/thing.h": b"/* */",
        "thing-1.0.data/purelib/extra.py": b"x = 1\n",
        "thing.pth": b"import sys\n",
    },
    entry_points="[console_scripts]\nthing = thing:main\n[gui_scripts]\nThing-GUI = thing.gui:run [x]\n",
    modes={"thing/data.bin": 0o100755},
)


def test_a_good_wheel(store: Store, tmp_path: Path) -> None:
    payload = store.payload("pkg-build", unpack(store, GOOD.write(tmp_path)))
    paths = {str(e[1]): e for e in cast("list[Entry]", payload["tree"])}
    for expected in ("lib/thing/data.bin", "bin/tool", "data/share/thing/a.txt", "include/thing.h", "lib/extra.py"):
        assert expected in paths
    assert paths["lib/thing/data.bin"][2] == 0o755
    assert paths["bin/tool"][2] == 0o755
    assert payload["scripts"] == [["Thing-GUI", "thing.gui:run", True], ["thing", "thing:main", False]]
    assert payload["tags"] == ["py3-none-any"]


def test_the_installed_record_names_where_files_went(store: Store, tmp_path: Path) -> None:
    oid = unpack(store, GOOD.write(tmp_path))
    record = store.tree("pkg-build", oid) / "lib/thing-1.0.dist-info/RECORD"
    rows = list(csv.reader(record.read_text().splitlines()))
    assert rows == sorted(rows)
    names = [r[0] for r in rows]
    assert "../../../bin/tool" in names
    assert "../../../bin/thing" in names
    assert "../../../share/thing/a.txt" in names
    assert "thing-1.0.dist-info/RECORD" in names
    assert not any(".data/" in n for n in names)


def test_the_same_wheel_gives_the_same_oid_in_another_store(tmp_path: Path) -> None:
    from px.home import Home

    wheel = GOOD.write(tmp_path)
    assert unpack(Store(Home(tmp_path / "a")), wheel) == unpack(Store(Home(tmp_path / "b")), wheel)


BAD = {
    "dotdot": WheelSpec("thing", files={"../evil.py": b""}),
    "inner dotdot": WheelSpec("thing", files={"thing/../../evil.py": b""}),
    "absolute": WheelSpec("thing", files={"/etc/evil": b""}),
    "backslash": WheelSpec("thing", files={"..\\evil.py": b""}),
    "scheme dotdot": WheelSpec("thing", files={"thing-1.0.data/scripts/../../../evil": b""}),
    "unknown scheme": WheelSpec("thing", files={"thing-1.0.data/elsewhere/evil": b""}),
    "link out": WheelSpec("thing", files={"thing/link": b"../../../etc/passwd"}, modes={"thing/link": 0o120777}),
    "absolute link": WheelSpec("thing", files={"thing/link": b"/etc/passwd"}, modes={"thing/link": 0o120777}),
    "twice": WheelSpec("thing", twice=("thing/__init__.py",)),
    "file and directory": WheelSpec("thing", files={"thing/a": b"", "thing/a/b": b""}),
    "unrecorded": WheelSpec("thing", files={"thing/extra.py": b""}, unrecorded=("thing/extra.py",)),
    "wrong hash": WheelSpec("thing", files={"thing/extra.py": b"x"}, wrong_hash=("thing/extra.py",)),
    "script name": WheelSpec("thing", entry_points="[console_scripts]\n../../evil = thing:main\n"),
    "two dist-infos": WheelSpec("thing", files={"other-1.dist-info/METADATA": b""}),
    "RECORD field": WheelSpec("thing", more_record="a" * 140_000 + ",,\n"),
    "deep": WheelSpec("thing", files={"a/" * 1500 + "f.py": b""}),
    "long name": WheelSpec("thing", files={"thing/" + "a" * 256: b""}),
    "long name in UTF-8": WheelSpec("thing", files={"thing/" + "\u20ac" * 100: b""}),
    "long path": WheelSpec("thing", files={("d" * 200 + "/") * 25 + "f": b""}),
    "long link": WheelSpec("thing", files={"thing/link": b"a/" * 3000 + b"a"}, modes={"thing/link": 0o120777}),
    "link to nothing": WheelSpec("thing", files={"thing/link": b""}, modes={"thing/link": 0o120777}),
    "link with NUL": WheelSpec("thing", files={"thing/link": b"a\0b"}, modes={"thing/link": 0o120777}),
    "link out of the env": WheelSpec(
        "thing", files={"thing-1.0.data/data/share/l": b"../../x"}, modes={"thing-1.0.data/data/share/l": 0o120777}
    ),
    # By name `x` leads to `thing`.  But thing/up is the root, and the directory above that is outside.
    "chain of links": WheelSpec(
        "thing",
        files={"thing/up": b"..", "x": b"thing/up/.."},
        modes={"thing/up": 0o120777, "x": 0o120777},
    ),
    "script called python": WheelSpec("thing", files={"thing-1.0.data/scripts/python": b"#!/bin/sh\n"}),
    "script called python3.12": WheelSpec("thing", files={"thing-1.0.data/scripts/python3.12": b"#!/bin/sh\n"}),
    "data called bin/python3": WheelSpec("thing", files={"thing-1.0.data/data/bin/python3": b"#!/bin/sh\n"}),
    "data called bin": WheelSpec("thing", files={"thing-1.0.data/data/bin": b""}),
    "data called lib64": WheelSpec("thing", files={"thing-1.0.data/data/lib64": b""}),
    "pyvenv.cfg": WheelSpec("thing", files={"thing-1.0.data/data/pyvenv.cfg": b"home = /evil\n"}),
    "px's own marker": WheelSpec("thing", files={"thing-1.0.data/data/px-env.json": b"{}"}),
    "entry point called python": WheelSpec("thing", entry_points="[console_scripts]\npython = thing:main\n"),
    "entry point called python3": WheelSpec("thing", entry_points="[console_scripts]\npython3 = thing:main\n"),
    "entry point with NUL": WheelSpec("thing", entry_points="[console_scripts]\na\0b = thing:main\n"),
    "target with NUL": WheelSpec("thing", entry_points="[console_scripts]\na = thing:ma\0in\n"),
    "entry point with a long name": WheelSpec("thing", entry_points=f"[console_scripts]\n{'a' * 256} = thing:main\n"),
    "large RECORD": WheelSpec("thing", more_record="a,,\n" * 9_000_000),
    "a bomb": WheelSpec("thing", files={"thing/zeros": bytes(8 << 20)}),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_bad_wheel_is_refused(store: Store, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FREE", 1 << 20)  # so that a bomb need not be large
    wheel = BAD[name].write(tmp_path / "wheels")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PxError) as caught:
        unpack(store, wheel)
    assert caught.value.code == "PX203"
    assert "thing" in caught.value.what
    assert not list(store.objects())
    left = {p for p in tmp_path.rglob("*") if p.is_file()} - set(before)
    assert {p.parent.name for p in left} <= {"locks"}


def test_not_a_zip(store: Store, tmp_path: Path) -> None:
    wheel = tmp_path / "thing-1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK\3\4 not really")
    with pytest.raises(PxError, match="PX203"):
        unpack(store, wheel)


def patched(wheel: Path, change: Callable[[bytearray, int, int], None]) -> Path:
    """The wheel after a change to both headers of its first member: offsets in the local and the central one."""
    content = bytearray(wheel.read_bytes())
    change(content, content.index(b"PK\3\4"), content.index(b"PK\1\2"))
    wheel.write_bytes(content)
    return wheel


def test_an_encrypted_wheel(store: Store, tmp_path: Path) -> None:
    def encrypt(content: bytearray, local: int, central: int) -> None:
        content[local + 6] |= 1
        content[central + 8] |= 1

    with pytest.raises(PxError, match="PX203"):
        unpack(store, patched(GOOD.write(tmp_path), encrypt))


@pytest.mark.parametrize("method", [12, 14, 93, 99])
def test_a_wheel_compressed_in_another_way(store: Store, tmp_path: Path, method: int) -> None:
    """bzip2 and lzma too, which Python's zipfile decompresses without any bound."""

    def other(content: bytearray, local: int, central: int) -> None:
        content[local + 8] = content[central + 10] = method

    with pytest.raises(PxError, match="PX203"):
        unpack(store, patched(GOOD.write(tmp_path), other))


def test_a_member_that_is_larger_than_it_says(store: Store, tmp_path: Path) -> None:
    """The headers say ten bytes and the data is a bomb: reading it takes no more memory than ten bytes do."""
    wheel = WheelSpec("thing", files={"thing/zeros": bytes(100 << 20)}).write(tmp_path)
    content = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        at = archive.getinfo("thing/zeros").header_offset
    central = content.index(b"thing/zeros", at + 40) - 46
    content[at + 22 : at + 26] = content[central + 24 : central + 28] = (10).to_bytes(4, "little")
    wheel.write_bytes(content)
    with memory(80 << 20), pytest.raises(PxError, match="Bad CRC"):
        unpack(store, wheel)


def test_more_members_than_memory(store: Store, tmp_path: Path) -> None:
    wheel = tmp_path / "thing-1.0-py3-none-any.whl"
    entry = b"PK\1\2" + bytes(42)
    end = b"PK\5\6" + bytes(4) + struct.pack("<HHIIH", 0xFFFF, 0xFFFF, len(entry) * 1_000_000, 0, 0)
    wheel.write_bytes(entry * 1_000_000 + end)
    with memory(350 << 20), pytest.raises(PxError, match="PX203"):
        unpack(store, wheel)


def test_entry_points_with_much_white_space() -> None:
    """Python's configparser needs the square of their length for these lines: half a minute for the second."""
    found = read_entry_points("[console_scripts]\na" + " " * 60_000 + "= m:f\n")
    assert [(e.name, e.target) for e in found] == [("a", "m:f")]
    with pytest.raises(BadEntryPointError), no_hang():
        read_entry_points("[console_scripts]\na" + " " * 200_000 + "b\n")


def test_entry_points_keep_case_and_drop_extras() -> None:
    found = read_entry_points("[console_scripts]\nB = m:f\na=m.n:g [extra]\n[other]\nx = y\n")
    assert [(e.name, e.target) for e in found] == [("B", "m:f"), ("a", "m.n:g")]
