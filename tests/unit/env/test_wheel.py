"""Wheels: what a good one becomes, and that every kind of bad one is refused with nothing left behind."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import cast

import pytest

from px.env.layout import read_entry_points
from px.env.wheel import WheelOf, unpack_wheel
from px.errors import PxError
from px.store.objects import Draft, Payload, Store
from px.store.tree import Entry
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
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_bad_wheel_is_refused(store: Store, tmp_path: Path, name: str) -> None:
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


def test_entry_points_keep_case_and_drop_extras() -> None:
    found = read_entry_points("[console_scripts]\nB = m:f\na=m.n:g [extra]\n[other]\nx = y\n")
    assert [(e.name, e.target) for e in found] == [("B", "m:f"), ("a", "m.n:g")]
