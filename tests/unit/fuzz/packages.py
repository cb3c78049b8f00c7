"""Packages: .deb, .apk, wheels, builds of CPython, ELF files, and the indexes that list packages."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from px.alpine import build as alpine
from px.alpine.apk import read_apk
from px.alpine.index import Index as AlpineIndex
from px.alpine.index import parse_index
from px.debian.archive import BadArchiveError, decompress, members
from px.debian.deb822 import parse_relations, parse_stanza, stanzas
from px.debian.image import Image
from px.debian.locking import release
from px.debian.locking.index import Index
from px.debian.locking.release import UntrustedError
from px.debian.unpack import BadPackageError, Reading, load, unpack_all
from px.debian.versions import sort_key
from px.elf import parse_elf
from px.env.layout import BadEntryPointError, entry_point_script, read_entry_points
from px.env.wheel import WheelOf, unpack_wheel
from px.errors import PxError
from px.sandbox.layers.runtime import _tree
from px.store.canonical import canonical_encode
from px.store.tree import TreeWriter, remove_tree
from tests.support.alpine import pack
from tests.support.debian import Mirror, SignedArchive, ar_member, make_deb, pin, stanza, tar_member
from tests.support.elf import make_elf
from tests.support.wheels import WheelSpec
from tests.unit.fuzz.mutations import NAMES, PACKERS, Dice, mutated, tars

_MEMBERS = [
    tar_member("./usr/bin/a", b"#!/bin/sh\n", mode=0o755),
    tar_member("./usr/lib/l", b"", kind=b"2", to="../bin"),
]


@functools.cache
def debs() -> tuple[bytes, ...]:
    made = [make_deb("a", _MEMBERS, compression=c, fields="Replaces: b (<< 2), c | d\n") for c in ("", ".gz", ".xz")]
    # Real ones, where this machine has some.
    real = sorted(Path("/var/cache/apt/archives").glob("*.deb"), key=lambda p: (p.stat().st_size, p.name))[:3]
    return (*made, *(p.read_bytes() for p in real if p.stat().st_size < 50_000))


def _unpacked(content: bytes, how: Reading, name: str = "a", version: str = "1.0-1") -> None:
    """Into a tree, beside a file that must stay as it is."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "file").write_bytes(content)
        with suppress(BadPackageError):
            image = Image(TreeWriter(root / "tree"))
            unpack_all(image, [pin(name, content, version=version)], lambda _: root / "file", how)
            canonical_encode("tree", image.finish())
        assert sorted(os.listdir(root)) == ["file", "tree"]
        assert (root / "file").read_bytes() == content
        remove_tree(root / "tree")


def deb(content: bytes) -> None:
    _unpacked(content, Reading())
    _unpacked(content, Reading(functools.partial(load, stop=re.compile(r"usr/lib/.*"))))


def made_debs(dice: Dice) -> bytes:
    """Good outside, with anything in the archives."""
    suffix = dice.pick(sorted(PACKERS))
    fields = mutated(dice, [b"Replaces: b (<< 2), c | d:any [x] <y>\nDepends: libc6\n"])
    control = b"Package: a\nVersion: 1.0-1\n" + fields
    parts = [ar_member("debian-binary", b"2.0\n")]
    archive = pack([tar_member("./control", control)])
    parts.append(ar_member("control.tar.gz", archive))
    parts.append(ar_member(f"data.tar{suffix}", PACKERS[suffix](tars(dice))))
    return b"!<arch>\n" + b"".join(parts)


def tar(content: bytes) -> None:
    with suppress(BadArchiveError):
        for member in members(content):
            assert len(member.content) <= len(content)


def compressed(case: tuple[str, bytes]) -> None:
    with suppress(BadArchiveError):
        decompress(case[1], case[0].removeprefix("."))


def streams(dice: Dice) -> tuple[str, bytes]:
    name = dice.pick([name for name in PACKERS if name])
    return name, mutated(dice, [PACKERS[name](b"hello " * 1000), PACKERS[name](b"")])


def apk_of(data: bytes, info: bytes = b"pkgname = a\npkgver = 1.0-1\nreplaces = b<2\n") -> bytes:
    packed = PACKERS[".gz"](data)
    info += b"datahash = " + hashlib.sha256(packed).hexdigest().encode() + b"\n"
    return pack([tar_member(".PKGINFO", info)], last=False) + packed


def apk(content: bytes) -> None:
    with suppress(BadArchiveError):
        read_apk(content)
    _unpacked(content, Reading(alpine.load))


def apk_index(content: bytes) -> None:
    with suppress(KeyError, ValueError):
        AlpineIndex(parse_index(content.decode("utf-8"), "main"))


def text(content: bytes) -> None:
    """deb822, and what is in its fields."""
    for part in stanzas(content.decode("utf-8", "replace")):
        with suppress(ValueError):
            for value in parse_stanza(part).values():
                parse_relations(value)
        with suppress(ValueError):
            sort_key(part[:50])


def debian_index(content: bytes) -> None:
    with suppress(ValueError):
        index = Index([("a", content.decode("utf-8", "replace"))])
        for found in index._newest.values():
            _ = found.depends, found.conflicts, found.provides, found.priority


@functools.cache
def _signed() -> tuple[bytes, Path]:
    archive, mirror = SignedArchive(), Mirror()
    archive.publish(mirror, {"": [stanza("a")]})
    keys = Path(tempfile.mkdtemp()) / "keys"
    return mirror.files["dists/bookworm/InRelease"], archive.keyring(keys)


def signed_release(content: bytes) -> None:
    with suppress(UntrustedError):
        release.parse(release.verify(content, _signed()[1]))


def release_text(content: bytes) -> None:
    with suppress(UntrustedError):
        release.parse(content)


@functools.cache
def elfs() -> tuple[bytes, ...]:
    one = make_elf("libc.so.6", soname="x", rpath="$ORIGIN", interpreter="/lib/ld.so", wants=(("libc.so.6", "G_2"),))
    two = make_elf("a", weak=(("a", "b"),), versions=("V1", "V2"), runpath="/a:/b")
    real = sorted(
        (Path(sysconfig.get_path("stdlib")) / "lib-dynload").glob("*.so"), key=lambda p: (p.stat().st_size, p.name)
    )
    return (one, two, *(p.read_bytes() for p in real[:2]))


def elf(content: bytes) -> None:
    found = parse_elf(content)
    if found is not None:
        assert sum(map(len, found.needed)) < 1 << 23


@functools.cache
def wheels() -> tuple[bytes, ...]:
    specs = [
        WheelSpec(
            "thing",
            files={"thing-1.0.data/scripts/t": b"#!python\n", "thing.pth": b"x"},
            entry_points="[console_scripts]\na = b:c\n",
        ),
        WheelSpec("thing", files={"thing/l": b"../x"}, modes={"thing/l": 0o120777}),
    ]
    with tempfile.TemporaryDirectory() as folder:
        return tuple(spec.write(Path(folder)).read_bytes() for spec in specs)


def wheel(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, root = Path(folder) / "thing-1.0-py3-none-any.whl", Path(folder) / "tree"
        path.write_bytes(content)
        with suppress(PxError):
            payload = unpack_wheel(path, TreeWriter(root), WheelOf("thing", "1.0", "0" * 64))
            canonical_encode("pkg-build", payload)
            for entry in cast("list[list[str]]", payload["tree"]):
                if entry[0] == "l":
                    assert os.path.realpath(root / entry[1]).startswith(os.path.realpath(root) + "/"), entry
        assert sorted(os.listdir(folder)) in (["thing-1.0-py3-none-any.whl"], ["thing-1.0-py3-none-any.whl", "tree"])
        remove_tree(root)


def made_wheels(dice: Dice) -> bytes:
    """Good outside, with odd names, links, hashes and entry points."""
    places = [
        "",
        "thing/",
        "thing-1.0.data/data/",
        "thing-1.0.data/scripts/",
        "thing-1.0.data/headers/",
        "thing-1.0.dist-info/",
    ]
    odd = [*(n for n in NAMES if n.isascii()), "pyvenv.cfg", "python3", "lib64/x", "RECORD"]
    files, modes = dict[str, bytes](), dict[str, int]()
    for _ in range(dice.number(0, 4)):
        name = dice.pick(places) + dice.pick(odd)
        files[name] = dice.pick(NAMES).encode("utf-8", "surrogateescape")
        modes[name] = dice.pick([0o120777, 0o100644, 0o100755, 0o040755, 0])
    entry_points = mutated(dice, [b"[console_scripts]\na = b:c\nd=e.f:g [x]\n# x\n[gui_scripts]\nh = i:j\n", b""])
    record = mutated(dice, [b"", b'thing/x,sha256=abc,1\n"a""b",,\n', b"a,md5=0,\n"])
    spec = WheelSpec(
        "thing",
        files=files,
        modes=modes,
        entry_points=entry_points.decode("latin-1"),
        more_record=record.decode("latin-1"),
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            return spec.write(Path(folder)).read_bytes()
        except (UserWarning, UnicodeEncodeError):
            return b""


def entry_points(content: bytes) -> None:
    with suppress(BadEntryPointError):
        for found in read_entry_points(content.decode("utf-8", "replace")):
            assert "\n" not in entry_point_script("/p", found).splitlines()[2]
            assert "/" not in found.name
            assert found.name.isprintable()


def cpython(case: tuple[str, bytes]) -> None:
    choice = cast("Any", SimpleNamespace(version="3.11.2"))
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / f"python.tar{case[0]}"
        archive.write_bytes(case[1])
        with suppress(PxError):
            canonical_encode("tree", _tree(archive, TreeWriter(Path(folder) / "tree"), Path(folder), choice).finish())
        remove_tree(Path(folder) / "tree")


def cpythons(dice: Dice) -> tuple[str, bytes]:
    name = dice.pick([".gz", ".zst"])
    return name, PACKERS[name](tars(dice)) if dice.number(0, 2) else mutated(dice, [PACKERS[name](bytes(2048))])


def apks(dice: Dice) -> bytes:
    return apk_of(tars(dice)) if dice.number(0, 1) else mutated(dice, [apk_of(bytes(1024)), apk_of(b"")])


_STANZA = b"Package: a\nVersion: 1:1.0-1~x\nDepends: b (>= 1) | c\nProvides: e (= 1)\nPriority: x\nInfo: y\n z\n\n"
_RELEASE = (
    b"Codename: a\nDate: Sat, 14 Nov 2026 00:00:00 UTC\nValid-Until: Sat, 21 Nov 2026 00:00:00 UTC\nSHA256:\n "
    + b"0" * 64
    + b" 1 a/b\n"
)
_APKINDEX = b"C:Q1" + b"A" * 27 + b"=\nP:a\nV:1.0_rc1-r0\nS:1\nD:so:libc.so>=1 !b\np:c=1\nk:1\n\n"

TARGETS: dict[str, tuple[Any, Any]] = {
    "deb": (lambda dice: mutated(dice, debs()), deb),
    "deb, its archives": (made_debs, deb),
    "tar": (tars, tar),
    "compressed data": (streams, compressed),
    "apk": (apks, apk),
    "apk index": (lambda dice: mutated(dice, [_APKINDEX, _APKINDEX * 3]), apk_index),
    "deb822": (lambda dice: mutated(dice, [_STANZA, _STANZA * 2]), text),
    "debian index": (lambda dice: mutated(dice, [_STANZA * 2]), debian_index),
    "signed release": (lambda dice: mutated(dice, [_signed()[0]]), signed_release),
    "release": (lambda dice: mutated(dice, [_RELEASE]), release_text),
    "elf": (lambda dice: mutated(dice, elfs(), 12), elf),
    "wheel": (lambda dice: mutated(dice, wheels()), wheel),
    "wheel, its content": (made_wheels, wheel),
    "entry points": (lambda dice: mutated(dice, [b"[console_scripts]\na = b:c\nd=e.f:g [x]\n# x\n"]), entry_points),
    "cpython": (cpythons, cpython),
}
