"""Packages into a tree: merged /usr, what is left out, who may replace whom, and what is refused."""

from __future__ import annotations

import random
import tarfile
from typing import TYPE_CHECKING, cast

import pytest

from px.debian.image import Below, Image
from px.debian.unpack import BadPackageError, Unpacked, unpack_all
from px.store.tree import TreeWriter
from tests.support.debian import TarMember, make_deb, pin, tar_member

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from px.store.tree import Entry

SYM, DIR, LINK = tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.LNKTYPE


class Unpacking:
    """A new tree with merged /usr, into which tests unpack packages that they make."""

    def __init__(self, root: Path, below: list[Below] | None = None):
        self.debs = root / "debs"
        self.debs.mkdir(parents=True, exist_ok=True)
        self.image = Image(TreeWriter(root / "tree"), below or [])
        if not below:
            for name in ("bin", "lib"):
                self.image.directory(f"usr/{name}")
                self.image.link(name, f"usr/{name}")

    def run(self, packages: Mapping[str, list[TarMember]], fields: Mapping[str, str] | None = None) -> list[Unpacked]:
        pins = []
        for name, members in packages.items():
            content = make_deb(name, members, fields=(fields or {}).get(name, ""))
            (self.debs / name).write_bytes(content)
            pins.append(pin(name, content))
        random.shuffle(pins)
        return unpack_all(self.image, pins, lambda p: self.debs / p.name)

    def spec(self) -> dict[str, Entry]:
        return {str(e[1]): e for e in cast("list[Entry]", self.image.writer.finish())}


@pytest.fixture
def unpacking(tmp_path: Path) -> Unpacking:
    return Unpacking(tmp_path)


def test_merged_usr(unpacking: Unpacking) -> None:
    members = [
        tar_member("./bin", kind=DIR, mode=0o755),
        tar_member("./bin/gunzip", b"#!", mode=0o755),
        tar_member("./bin/uncompress", kind=LINK, to="./bin/gunzip"),
        tar_member("./lib/x86_64-linux-gnu/libz.so.1", kind=SYM, to="libz.so.1.2"),
        tar_member("./bin", kind=SYM, to="usr/bin"),
    ]
    unpacking.run({"gzip": members})
    spec = unpacking.spec()
    assert spec["bin"] == ["l", "bin", "usr/bin"]
    assert spec["usr/bin/gunzip"][:3] == ["f", "usr/bin/gunzip", 0o755]
    assert spec["usr/bin/uncompress"] == ["h", "usr/bin/uncompress", "usr/bin/gunzip"]
    assert spec["usr/lib/x86_64-linux-gnu/libz.so.1"] == ["l", "usr/lib/x86_64-linux-gnu/libz.so.1", "libz.so.1.2"]


def test_what_an_image_does_not_get(unpacking: Unpacking) -> None:
    dropped = [
        "man/man1/a.1.gz",
        "locale/de/a.mo",
        "info/a.info",
        "doc/a/changelog.gz",
        "doc/a/examples/x",
        "lintian/a",
    ]
    kept = ["doc/a/copyright", "a/data", "doc-things"]
    unpacking.run({"a": [tar_member(f"./usr/share/{path}", b"x") for path in dropped + kept]})
    files = {p for p, e in unpacking.spec().items() if e[0] == "f"}
    assert files == {f"usr/share/{path}" for path in kept}


def test_no_file_runs_with_another_users_rights(unpacking: Unpacking) -> None:
    unpacking.run({"a": [tar_member("./bin/su", mode=0o4755), tar_member("./var/mail", kind=DIR, mode=0o2775)]})
    spec = unpacking.spec()
    assert spec["usr/bin/su"][2] == 0o755
    assert spec["var/mail"][2] == 0o775


def test_replaces(unpacking: Unpacking) -> None:
    shared = "./usr/bin/tool"
    unpacking.run(
        {
            "new": [tar_member(shared, b"new")],
            "old-and-much-larger": [tar_member(shared, b"o"), tar_member("./x", random.randbytes(999))],
        },
        {"new": "Replaces: old-and-much-larger (<< 2)\n"},
    )
    assert (unpacking.image.writer.root / "usr/bin/tool").read_bytes() == b"new"


def test_replaces_whatever_the_order_is(tmp_path: Path) -> None:
    for i, padding in enumerate((0, 999)):
        unpacking = Unpacking(tmp_path / str(i))
        packages = {
            "new": [tar_member("./t", b"new"), tar_member("./p", random.randbytes(padding))],
            "old": [tar_member("./t", b"old"), tar_member("./q", random.randbytes(500))],
        }
        unpacking.run(packages, {"new": "Replaces: old\n"})
        assert (unpacking.image.writer.root / "t").read_bytes() == b"new"


def test_two_packages_with_one_path(unpacking: Unpacking) -> None:
    with pytest.raises(BadPackageError, match="usr/bin/tool belongs to"):
        unpacking.run({"a": [tar_member("./usr/bin/tool", b"a")], "b": [tar_member("./usr/bin/tool", b"b")]})


def test_two_packages_with_the_same_file(unpacking: Unpacking) -> None:
    unpacking.run({"a": [tar_member("./etc/x", b"1")], "b": [tar_member("./etc/x", b"1")]})
    assert unpacking.spec()["etc/x"][3] == 1


def test_a_layer_follows_the_links_of_the_base(unpacking: Unpacking, tmp_path: Path) -> None:
    unpacking.run(
        {"base": [tar_member("./usr/lib/ssl", kind=DIR), tar_member("./etc/ssl/certs", kind=SYM, to="/usr/lib/ssl")]}
    )
    spec = unpacking.spec()
    upper = Unpacking(tmp_path / "upper", [Below(unpacking.image.writer.root, list(spec.values()))])
    upper.run(
        {
            "more": [
                tar_member("./bin/x", b"1"),
                tar_member("./etc/ssl/certs/y", b"2"),
                tar_member("./etc/ssl/certs", kind=DIR),
            ]
        }
    )
    assert [p for p, e in upper.spec().items() if e[0] != "d"] == ["usr/bin/x", "usr/lib/ssl/y"]


HOSTILE: dict[str, tuple[list[TarMember], str]] = {
    "a member above the root": ([tar_member("../evil", b"x")], "leaves the tree"),
    "a member above the root, later": ([tar_member("./usr/../../evil", b"x")], "leaves the tree"),
    "an absolute member": ([tar_member("/etc/evil", b"x")], "absolute"),
    "a device": ([tar_member("./dev/sda", kind=tarfile.BLKTYPE)], "block device"),
    "a link above the root": ([tar_member("./usr/l", kind=SYM, to="../../../etc/passwd")], "leaves the tree"),
    "a link to the host": ([tar_member("./usr/l", kind=SYM, to="/home/user/.ssh")], "no package has files"),
    "a link that climbs": ([tar_member("./usr/l", kind=SYM, to="/usr/../home")], "no package has files"),
    "a hard link to the host": ([tar_member("./usr/l", kind=LINK, to="/etc/shadow")], "absolute"),
    "a hard link above the root": ([tar_member("./usr/l", kind=LINK, to="../../etc/shadow")], "leaves the tree"),
    "a hard link to nothing": ([tar_member("./usr/l", kind=LINK, to="./usr/nothing")], "not a file of this tree"),
    "a file below a file": ([tar_member("./a", b"x"), tar_member("./a/b", b"y")], "not a directory"),
    "a file twice": ([tar_member("./a", b"x"), tar_member("./a", b"y")], "two entries"),
    "a file over a directory": ([tar_member("./usr/bin", b"x")], "is a directory"),
    "a name that is too long": ([tar_member("./usr/" + "a" * 300, b"x")], "too long"),
    "a name that is too deep": ([tar_member("./usr/" + "a/" * 700 + "a", b"x")], "too deep"),
    "a link that is too long": ([tar_member("./usr/l", kind=SYM, to="a/" * 3000 + "a")], "no target"),
    "an absolute link that is too long": ([tar_member("./usr/l", kind=SYM, to="/usr/" + "a/" * 3000)], "too long"),
    "a name that is not text": ([tar_member("./usr/\udcff", b"x")], "not UTF-8"),
    "a target that is not text": ([tar_member("./usr/l", kind=SYM, to="\udcff")], "not UTF-8"),
    "a name with a zero byte": ([tar_member("./usr/l", kind=SYM, to="")], "nowhere"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_packages(name: str, unpacking: Unpacking, tmp_path: Path) -> None:
    members, problem = HOSTILE[name]
    with pytest.raises(BadPackageError, match=problem) as caught:
        unpacking.run({"evil": members})
    assert caught.value.package.name == "evil"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["debs", "tree"]


def test_writing_through_a_link_stays_in_the_tree(unpacking: Unpacking, tmp_path: Path) -> None:
    unpacking.run({"evil": [tar_member("./usr/l", kind=SYM, to="/var/x"), tar_member("./usr/l/file", b"x")]})
    assert unpacking.spec()["var/x/file"][3] == 1


def test_a_package_that_says_it_is_another(tmp_path: Path) -> None:
    content = make_deb("other", [])
    (tmp_path / "deb").write_bytes(content)
    with pytest.raises(BadPackageError, match="says that it is other"):
        unpack_all(Image(TreeWriter(tmp_path / "tree")), [pin("mine", content)], lambda _: tmp_path / "deb")


def test_a_deb_that_changed_on_disk_is_called_damaged(tmp_path: Path) -> None:
    content = make_deb("a", [])
    (tmp_path / "deb").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BadPackageError, match="not what the lock pins") as caught:
        unpack_all(Image(TreeWriter(tmp_path / "tree")), [pin("a", content)], lambda _: tmp_path / "deb")
    assert caught.value.damaged
