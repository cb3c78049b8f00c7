"""Alpine packages and indexes that somebody tampered with: each is refused with a PX error, and nothing is left."""

from __future__ import annotations

import base64
import gzip
import hashlib
import tarfile
from pathlib import Path

import pytest

from px import bounds
from px.alpine.apk import Stream, streams
from px.alpine.build import build_base
from px.alpine.index import parse_index
from px.alpine.mirror import KEYRING, keys_directory, mirrors
from px.alpine.relock import _signed_index
from px.alpine.signature import verify
from px.debian.image import Image
from px.debian.lock import BaseLock, PinnedPackage
from px.debian.locking.release import UntrustedError
from px.errors import PxError
from px.http import Download, Http
from px.store.objects import Store
from px.store.sources import ensure_source
from px.store.tree import TreeWriter
from tests.support.alpine import pack
from tests.support.debian import Mirror, TarMember, serving, tar_member


def apk(*members: TarMember) -> bytes:
    data = pack(list(members))
    info = f"pkgname = a\npkgver = 1.0-r0\ndatahash = {hashlib.sha256(data).hexdigest()}\n"
    return pack([tar_member(".PKGINFO", info.encode())], last=False) + data


def build(store: Store, tmp_path: Path, content: bytes) -> Path:
    """Build a base of one package that the lock pins; the tree."""
    digest = hashlib.sha256(content).hexdigest()
    pinned = PinnedPackage("a", "1.0-r0", "x86_64", "v3.20/main/x86_64/a.apk", len(content), digest, "main")
    lock = BaseLock("alpine-3.20", "amd64", "py312", 1, "v3.20", "20260101T000000Z", {"a": pinned}, ("a",), (), {})
    with serving(Mirror({"a.apk": content})) as server:
        ensure_source(store, Http(), Download(f"{server.url}/a.apk", digest, len(content)))
    build_base(store, lock, [pinned], Image(TreeWriter(tmp_path / "tree")))
    return tmp_path / "tree"


@pytest.mark.parametrize(
    "member",
    [
        tar_member("../outside", b"x"),
        tar_member("usr/../../outside", b"x"),
        tar_member("/etc/../../outside", b"x"),
        tar_member("usr/lib/out", kind=tarfile.SYMTYPE, to="../../../outside"),
        tar_member("usr/lib/out", kind=tarfile.SYMTYPE, to="/home/somebody"),
        tar_member("usr/lib/out", kind=tarfile.LNKTYPE, to="../outside"),
        tar_member("dev/sda", kind=tarfile.BLKTYPE),
        tar_member("run/pipe", kind=tarfile.FIFOTYPE),
    ],
    ids=lambda m: m[0].name + m[0].linkname,
)
def test_members_that_lead_out(store: Store, tmp_path: Path, member: TarMember) -> None:
    with pytest.raises(PxError) as caught:
        build(store, tmp_path, apk(tar_member("usr/bin/a", b"a"), member))
    assert caught.value.code == "PX903"
    assert not (tmp_path / "outside").exists()


def test_a_link_that_a_later_member_would_write_through(store: Store, tmp_path: Path) -> None:
    link = tar_member("usr/place", kind=tarfile.SYMTYPE, to="/etc")
    tree = build(store, tmp_path, apk(link, tar_member("usr/place/inside", b"x")))
    assert (tree / "etc/inside").read_bytes() == b"x", "links are followed inside the tree, and never out of it"


def test_members_that_are_too_large(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FREE", 1 << 20)
    with pytest.raises(PxError, match="too large"):
        build(store, tmp_path, apk(tar_member("usr/zeros", bytes(16 << 20))))
    header = tar_member("usr/huge", b"")[0]
    header.size = 1 << 40
    data = gzip.compress(header.tobuf(tarfile.GNU_FORMAT))
    info = f"pkgname = a\npkgver = 1.0-r0\ndatahash = {hashlib.sha256(data).hexdigest()}\n"
    with pytest.raises(PxError) as caught:
        build(store, tmp_path, pack([tar_member(".PKGINFO", info.encode())], last=False) + data)
    assert caught.value.code == "PX903"


def test_files_that_the_control_part_does_not_name(store: Store, tmp_path: Path) -> None:
    good, other = apk(tar_member("usr/bin/a", b"a")), pack([tar_member("usr/bin/a", b"b")])
    control = streams(good)[0].packed
    with pytest.raises(PxError, match="not those that its control part names"):
        build(store, tmp_path, control + other)


def test_commands_of_busybox_that_are_none(store: Store, tmp_path: Path) -> None:
    listed = b"/bin/ls\n/usr/bin/[\n../../../outside\n/etc/passwd\nbin/\xff\n"
    tree = build(store, tmp_path, apk(tar_member("etc/busybox-paths.d/busybox", listed)))
    assert sorted(p.name for p in tree.rglob("*") if p.is_symlink()) == ["[", "ls"]


# --- the index -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../a", "a/b", "", "-a", "a b", "x" * 300])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_index(f"C:Q1{'A' * 27}=\nP:{name}\nV:1.0-r0\nS:1", "main")


def test_versions_that_are_none() -> None:
    with pytest.raises(ValueError, match="not a package"):
        parse_index(f"C:Q1{'A' * 27}=\nP:a\nV:1/../../x\nS:1", "main")


def signed_by(name: str, signature: bytes = b"x") -> Stream:
    return streams(pack([tar_member(f".SIGN.RSA.{name}", signature)]))[0]


def test_an_index_without_a_signature(tmp_path: Path) -> None:
    with pytest.raises(UntrustedError, match="not signed"):
        _signed_index(pack([tar_member("APKINDEX", b"")]), tmp_path)


@pytest.mark.parametrize("name", ["../key.rsa.pub", "x" * 5000, "..", "/etc/passwd", "nobody.rsa.pub"])
def test_signatures_by_names_that_are_no_keys(tmp_path: Path, name: str) -> None:
    (tmp_path / "key.rsa.pub").write_text("secret")
    (tmp_path / "keys").mkdir()
    with pytest.raises(UntrustedError, match="none of the keys"):
        verify(signed_by(name), streams(pack([]))[0], tmp_path / "keys")


@pytest.mark.parametrize("text", ["", "no key", base64.b64encode(b"\x30\x03\x02\x01\x01").decode()])
def test_a_key_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "k.rsa.pub").write_text(text)
    with pytest.raises(UntrustedError, match="not an RSA public key"):
        verify(signed_by("k.rsa.pub"), streams(pack([]))[0], tmp_path)


def test_alpines_own_keys() -> None:
    found = sorted(KEYRING.glob("*.rsa.pub"))
    assert [path.name.rpartition("-")[2] for path in found] == ["6165ee59.rsa.pub", "616ae350.rsa.pub"]
    note = (KEYRING / "README.md").read_text()
    for path in found:
        assert hashlib.sha256(path.read_bytes()).hexdigest() in note
        with pytest.raises(UntrustedError, match="is not good"):
            verify(signed_by(path.name, bytes(512)), streams(pack([]))[0], KEYRING)


def test_where_packages_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PX_ALPINE_MIRROR", "https://one.example/alpine/, http://two.example/a http://three.example")
    assert [m.main for m in mirrors("alpine-3.20")] == [
        "https://one.example/alpine",
        "http://two.example/a",
        "http://three.example",
    ]
    for wrong in ("", " , ", "file:///etc", "/srv/alpine"):
        monkeypatch.setenv("PX_ALPINE_MIRROR", wrong)
        with pytest.raises(PxError) as caught:
            mirrors("alpine-3.20")
        assert caught.value.code == "PX900"
        assert "contains v3.20" in caught.value.fix[0]
    assert keys_directory("alpine-3.20") == KEYRING
