"""The tar writer: what it writes, tarfile reads back; the bytes are pinned."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from px.oci import tar
from px.oci.tar import EPOCH, ContentError, Part, write_tar
from px.store.tree import Entry, TreeWriter, UnsafePathError

if TYPE_CHECKING:
    from pathlib import Path


def tree(root: Path, files: dict[str, bytes]) -> tuple[TreeWriter, list[Entry]]:
    writer = TreeWriter(root)
    for path, content in files.items():
        writer.file(path, content)
    return writer, list(writer.finish())  # type: ignore[arg-type]


def archive(*parts: Part) -> bytes:
    out = io.BytesIO()
    write_tar(parts, out.write)
    return out.getvalue()


def members(content: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content)) as found:
        return {member.name: member for member in found}


def sample(root: Path) -> Part:
    writer = TreeWriter(root)
    writer.directory("tmp", 0o1777)
    writer.file("bin/tool", b"#!/bin/sh\n", 0o4755)
    writer.file("empty", b"")
    writer.symlink("bin/link", "tool")
    writer.symlink("abs", "/etc/passwd")
    writer.hardlink("bin/again", "bin/tool")
    writer.file("ünï", b"name")
    writer.symlink("to-ünï", "ünï")
    writer.file("x" * 101, b"1")
    writer.file("/".join(["d" * 50] * 4) + "/" + "f" * 50, b"2")
    writer.file("/".join(["e" * 60] * 5), b"3")
    writer.symlink("far", "t" * 150)
    return Part(root, list(writer.finish()))  # type: ignore[arg-type]


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    part = sample(tmp_path / "t")
    content = archive(part)
    found = members(content)
    assert sorted(found) == sorted(str(e[1]) for e in part.entries)
    with tarfile.open(fileobj=io.BytesIO(content)) as read:
        for entry in part.entries:
            member = found[str(entry[1])]
            assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (0, 0, "", "", EPOCH)
            if entry[0] == "f" and member.isreg():
                stream = read.extractfile(member)
                assert stream is not None
                assert hashlib.sha256(stream.read()).hexdigest() == entry[4]
            elif entry[0] == "l":
                assert member.linkname == entry[2]
    assert found["tmp"].mode == 0o1777
    assert found["bin/tool"].mode == 0o4755


def test_the_bytes_are_pinned(tmp_path: Path) -> None:
    # If this changes on purpose, tar.FORMAT must be raised: cached layers would have other digests than new ones.
    digest = hashlib.sha256(archive(sample(tmp_path / "t"))).hexdigest()
    assert (tar.FORMAT, digest) == (1, "5dc695da291630d314a1d4dda8b3c9383d02d59fa5bd1b274d1fc937cc8e9cd0")


def test_gnu_tar_reads_it_too(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(archive(sample(tmp_path / "t")))
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "x.tar", "-C", out], check=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    assert (out / "ünï").read_bytes() == b"name"
    assert (out / "/".join(["e" * 60] * 5)).read_bytes() == b"3"
    assert (out / "bin" / "again").samefile(out / "bin" / "tool")


def test_extension_records_only_where_needed(tmp_path: Path) -> None:
    part = tree(tmp_path / "t", {"a/" * 70 + "f": b"", "plain": b""})[1]
    assert b"PaxHeaders" not in archive(Part(tmp_path / "t", part))
    # Two with ü; 101 characters without a slash; three with no slash in the right place; a link of 150.
    assert archive(sample(tmp_path / "u")).count(b"PaxHeaders/") == 7


def test_a_hard_link_follows_the_name_that_comes_first(tmp_path: Path) -> None:
    writer = TreeWriter(tmp_path / "t")
    writer.file("z", b"content", 0o755)
    writer.hardlink("a", "z")
    writer.hardlink("m", "z")
    part = Part(tmp_path / "t", list(writer.finish()), "opt/x")  # type: ignore[arg-type]
    found = members(archive(part))
    assert found["opt/x/a"].isreg()
    assert found["opt/x/a"].mode == 0o755
    assert found["opt/x/m"].islnk()
    assert found["opt/x/z"].linkname == "opt/x/a"


def test_prefix_and_owners(tmp_path: Path) -> None:
    _, entries = tree(tmp_path / "t", {"app/a": b"", "home/me/.x": b"", "etc/b": b""})
    part = Part(tmp_path / "t", entries, "srv/one", (5, 6), owned=(("srv/one/home/me", (1000, 1001)),))
    found = {name: (m.uid, m.gid) for name, m in members(archive(part)).items()}
    assert found == {
        "srv": (0, 0), "srv/one": (5, 6), "srv/one/app": (5, 6), "srv/one/app/a": (5, 6), "srv/one/etc": (5, 6),
        "srv/one/etc/b": (5, 6), "srv/one/home": (5, 6), "srv/one/home/me": (1000, 1001),
        "srv/one/home/me/.x": (1000, 1001),
    }  # fmt: skip


def test_parts_are_merged(tmp_path: Path) -> None:
    one = Part(tmp_path / "1", tree(tmp_path / "1", {"lib/a": b"1"})[1], "opt")
    two = Part(tmp_path / "2", tree(tmp_path / "2", {"lib/b": b"2"})[1], "opt")
    assert list(members(archive(one, two))) == ["opt", "opt/lib", "opt/lib/a", "opt/lib/b"]
    assert archive(one, two) == archive(two, one)
    with pytest.raises(UnsafePathError, match="two entries"):
        archive(one, one)


def test_nothing_lies_below_a_link(tmp_path: Path) -> None:
    writer = TreeWriter(tmp_path / "1")
    writer.symlink("lib", "usr/lib")
    one = Part(tmp_path / "1", list(writer.finish()))  # type: ignore[arg-type]
    two = Part(tmp_path / "2", tree(tmp_path / "2", {"lib/b": b"2"})[1])
    with pytest.raises(UnsafePathError):
        archive(one, two)


@pytest.mark.parametrize("content", [b"other text", b"longer than it was before", b"", None])
def test_a_file_that_is_not_what_the_spec_says(content: bytes | None, tmp_path: Path) -> None:
    part = Part(tmp_path / "t", tree(tmp_path / "t", {"sub/a": b"0123456789"})[1])
    (tmp_path / "t" / "sub").chmod(0o755)
    (tmp_path / "t" / "sub" / "a").unlink()
    if content is not None:
        (tmp_path / "t" / "sub" / "a").write_bytes(content)
    with pytest.raises(ContentError, match="sub/a"):
        archive(part)


def test_sizes_at_the_edges_of_blocks(tmp_path: Path) -> None:
    sizes = [0, 1, 511, 512, 513, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (2 << 20)]
    part = Part(tmp_path / "t", tree(tmp_path / "t", {f"{n:02}": b"x" * size for n, size in enumerate(sizes)})[1])
    assert [m.size for m in members(archive(part)).values()] == sizes


def test_a_file_larger_than_ustar_can_say() -> None:
    block = tar.Header("huge", b"0", size=9 << 30).encode()
    with tarfile.open(fileobj=io.BytesIO(block + bytes(1024))) as found:
        member = found.next()
    assert member is not None
    assert (member.name, member.size) == ("huge", 9 << 30)
