"""Images read back, and what is said about two that differ."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING

import pytest
import zstandard

from px import bounds
from px.errors import PxError
from px.oci.image import ReadImage, ReadLayer, check_layers, compare, layer_files, read_images
from px.oci.layout import write_archive, write_layout
from px.oci.sources import BlobsSource, source_of
from tests.support.bounded import memory, no_hang
from tests.unit.oci.images import AMD64, ARM64, CREATED, Files, make_image, make_release, noise

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from px.home import Home

BASE = Files(
    {"bin/tool": noise(100_000), "etc/gone": b"x", "etc/mode": b"m", "etc/kind": b"k", "etc/same": "=etc/mode"}
)
CHANGED = Files(
    {"bin/tool": noise(100_001), "etc/mode": b"m", "etc/kind": "->mode", "etc/new": b"n", "etc/same": "=etc/mode"},
    {"etc/mode": 0o600},
)
APP = Files({"main.py": b"print()\n"})


def packed(home: Home, folder: Path, base: Files = BASE, **options: object) -> ReadImage:
    blobs, image = make_image(home, base, APP, **options)  # type: ignore[arg-type]
    write_layout(blobs, make_release(blobs, image), folder)
    (found,) = read_images(source_of(str(folder)))
    assert found.digest == image.digest
    return found


def test_layout_and_archive_read_alike(home: Home, tmp_path: Path) -> None:
    first = packed(home, tmp_path / "layout")
    blobs, image = make_image(home, BASE, APP)
    write_archive(blobs, make_release(blobs, image), tmp_path / "x.tar")
    (second,) = read_images(source_of(str(tmp_path / "x.tar")))
    assert compare(first, second) == []
    assert first.labels == {"px.sbx_id": "0" * 64}
    assert first.platform == AMD64


def test_dockers_own_archives_can_be_read(home: Home, tmp_path: Path) -> None:
    first = packed(home, tmp_path / "layout")
    # What `docker save` wrote before it knew OCI layouts: the config, uncompressed layers, manifest.json.
    import gzip

    with tarfile.open(tmp_path / "docker.tar", "w") as archive:
        for n, layer in enumerate(first.layers):
            with layer.open() as f:
                (tmp_path / f"{n}.tar").write_bytes(gzip.decompress(f.read()))
            archive.add(tmp_path / f"{n}.tar", f"{n}/layer.tar")
        (tmp_path / "config.json").write_text(json.dumps(first.config))
        (tmp_path / "manifest.json").write_text(
            json.dumps([{"Config": "config.json", "RepoTags": [], "Layers": ["0/layer.tar", "1/layer.tar"]}])
        )
        for name in ("config.json", "manifest.json"):
            archive.add(tmp_path / name, name)
    (second,) = read_images(source_of(str(tmp_path / "docker.tar")))
    assert compare(dataclasses.replace(first, annotations={}), second) == []


def test_other_files(home: Home, tmp_path: Path) -> None:
    first, second = packed(home, tmp_path / "1"), packed(home, tmp_path / "2", CHANGED)
    (found,) = compare(first, second)
    assert found.where == "layer 1 (px: base)"
    text = "\n".join(found.lines)
    assert "- etc/gone (file, mode 0644, owner 0:0, 1 bytes, sha256 2d711642b726)" in found.lines
    assert "+ etc/new (file, mode 0644, owner 0:0, 1 bytes, sha256 1b16b1df538b)" in found.lines
    assert "~ etc/mode: mode 0644 → 0600" in found.lines
    assert "~ etc/kind: file → symbolic link" in text
    assert "~ bin/tool: size 100000 → 100001, sha256 " in text


def test_other_compression(home: Home, tmp_path: Path) -> None:
    found = compare(packed(home, tmp_path / "1"), packed(home, tmp_path / "2", compression="zstd"))
    assert [d.lines[0] for d in found] == ["same files, compressed differently"] * 2


def test_other_config(home: Home, tmp_path: Path) -> None:
    from px.oci.config import ImageSpec

    spec = ImageSpec(AMD64, CREATED + 1, env={"PATH": "/bin", "X": "1"})
    (found,) = compare(packed(home, tmp_path / "1"), packed(home, tmp_path / "2", spec=spec))
    text = str(found)
    assert 'config.config.Env: ["PATH=/bin"] → ["PATH=/bin", "X=1"]' in text
    assert 'config.created: "2023-11-14T22:13:20Z" → "2023-11-14T22:13:21Z"' in text
    assert 'annotations.org.opencontainers.image.title: "demo" → null' in text


def test_another_number_of_layers(home: Home, tmp_path: Path) -> None:
    first = packed(home, tmp_path / "1")
    second = dataclasses.replace(first, layers=first.layers[:1], name="other")
    assert any(f"only in {tmp_path / '1'}" in str(d) for d in compare(first, second))


def test_several_platforms(home: Home, tmp_path: Path) -> None:
    blobs, amd64 = make_image(home, BASE, APP, platform=AMD64)
    _, arm64 = make_image(home, BASE, APP, platform=ARM64)
    write_archive(blobs, make_release(blobs, amd64, arm64, names=("a.org/x:1", "a.org/x:2")), tmp_path / "x.tar")
    assert [image.platform for image in read_images(source_of(str(tmp_path / "x.tar")))] == [AMD64, ARM64]


@pytest.mark.parametrize("damage", ["layer", "config", "missing", "index"])
def test_damage_is_found(damage: str, home: Home, tmp_path: Path) -> None:
    first = packed(home, tmp_path / "1")
    folder = tmp_path / "1" / "blobs" / "sha256"
    blobs, image = make_image(home, CHANGED, APP)
    other = packed(home, tmp_path / "2", CHANGED)
    if damage == "layer":
        victim = folder / first.layers[0].digest.removeprefix("sha256:")
        victim.write_bytes(blobs.path(image.layers[0].blob.digest).read_bytes())
    elif damage == "index":
        (tmp_path / "1" / "index.json").write_text("{}")
    else:
        victim = folder / json.loads((folder / first.digest[7:]).read_text())["config"]["digest"][7:]
        victim.unlink() if damage == "missing" else victim.write_text("{}")

    def look() -> None:
        (again,) = read_images(source_of(str(tmp_path / "1")))
        compare(again, other)

    with pytest.raises(PxError) as caught:
        look()
    assert caught.value.code == "PX923"


@pytest.mark.parametrize("index", ["[1]", '{"manifests":[]}', '{"manifests":["x"]}', '{"manifests":[{}]}', "{", ""])
def test_an_index_of_another_shape(index: str, home: Home, tmp_path: Path) -> None:
    packed(home, tmp_path / "1")
    (tmp_path / "1" / "index.json").write_text(index)
    with pytest.raises(PxError) as caught:
        read_images(source_of(str(tmp_path / "1")))
    assert caught.value.code == "PX923"


def test_a_layer_that_holds_other_files_than_its_config_claims(home: Home, tmp_path: Path) -> None:
    """The digest of its bytes is right, the digest of its files is another image's."""
    ours, other = packed(home, tmp_path / "1"), packed(home, tmp_path / "2", CHANGED)
    lying = dataclasses.replace(
        ours, layers=(dataclasses.replace(other.layers[0], diff_id=ours.layers[0].diff_id), *ours.layers[1:])
    )
    check_layers(lying)
    with pytest.raises(PxError, match="a layer's diff_id is"):
        compare(lying, ours)


@pytest.mark.parametrize("kind", ["gz", "xz"])
def test_a_compressed_archive_is_said_to_be_one(kind: str, home: Home, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", f"w:{kind}") as archive:  # type: ignore[call-overload]
        archive.add(__file__, "index.json")
    with pytest.raises(PxError, match="a compressed or damaged one"):
        source_of(str(tmp_path / "x.tar"))


def test_what_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    for text in (str(tmp_path / "file"), str(tmp_path), "px.local/never-packed:1"):
        with pytest.raises(PxError) as caught:
            source_of(text)
        assert caught.value.code == "PX923"


# --- images that somebody made to harm ----------------------------------------------------------------------------


def layer_of(content: bytes) -> ReadLayer:
    return ReadLayer(f"sha256:{hashlib.sha256(content).hexdigest()}", "", len(content), "", lambda: io.BytesIO(content))


def header(name: bytes, kind: bytes, size: bytes) -> bytes:
    """One header of a tar archive, with a correct sum."""
    found = bytearray(512)
    found[: len(name)], found[156:157], found[257:265] = name, kind, b"ustar\x0000"
    found[124 : 124 + len(size)] = size
    found[148:156] = b" " * 8
    found[148:156] = f"{sum(found):06o}\0 ".encode()
    return bytes(found)


HOSTILE_LAYERS = {
    # tarfile reads long names by recursion.
    "names without end": lambda: header(b"x", b"L", b"00000000001\0") + b"a" + bytes(511),
    # A negative number in base 256: tarfile goes back to where it came from.
    "a negative size": lambda: header(b"x", b"0", b"\xff" * 10 + b"\xfc\x00"),
    "a number that is none": lambda: header(b"x", b"x", b"00000000012\0") + b"9 size=x1\n".ljust(512, b"\0"),
}


@pytest.mark.parametrize("name", HOSTILE_LAYERS)
def test_a_layer_that_cannot_be_read_ends_with_an_error(name: str) -> None:
    with no_hang(), pytest.raises(PxError, match="PX923"):
        layer_files(layer_of(HOSTILE_LAYERS[name]() * 3000 + bytes(1024)))


def test_a_long_name_takes_no_more_memory_than_a_short_one() -> None:
    bomb = gzip.compress(header(b"x", b"L", b"00400000000\0") + bytes(64 << 20))
    with memory(40 << 20), pytest.raises(PxError, match="PX923"):
        layer_files(layer_of(bomb))


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_damaged_layer(pack: Callable[[bytes], bytes]) -> None:
    content = bytearray(pack(header(b"x", b"0", b"00003641100\0") + noise(1_000_000)))
    content[len(content) // 2 : len(content) // 2 + 100] = b"\xff" * 100
    with pytest.raises(PxError, match="PX923"):
        layer_files(layer_of(bytes(content)))


def test_a_layer_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "UNPACKED", 1 << 20)
    with pytest.raises(PxError, match="too large"):
        layer_files(layer_of(gzip.compress(header(b"x", b"0", b"00010000000\0") + bytes(2 << 20))))


BAD_DOCUMENTS = {
    "deep": "[" * 100_000 + "]" * 100_000,
    "no object": "[]",
    "size": '{"manifests": [{"mediaType": "a", "digest": "sha256:%s", "size": 1e999}]}' % ("0" * 64),
    "large": " " * (bounds.DOCUMENT + 1),
    "types": '{"manifests": [{"mediaType": 1, "digest": "sha256:%s", "size": 1}]}' % ("0" * 64),
}


@pytest.mark.parametrize("name", BAD_DOCUMENTS)
def test_an_index_that_is_not_one(tmp_path: Path, name: str) -> None:
    (tmp_path / "index.json").write_text(BAD_DOCUMENTS[name])
    with pytest.raises(PxError, match="PX923"):
        read_images(source_of(str(tmp_path)))


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"Labels": ["a"]}},
        {"config": {"Labels": {"a": 1}}},
        {"config": ["a"]},
        {"history": ["a"]},
        {"history": [{"created_by": 1}]},
        {"os": 1},
        {"config": {"Entrypoint": "sh"}},
        {"config": {"Cmd": [1]}},
        {"config": {"ExposedPorts": 1}},
        {"rootfs": {"diff_ids": ["../../etc/passwd", "b"]}},
    ],
)
def test_a_config_with_other_types(home: Home, tmp_path: Path, change: dict[str, object]) -> None:
    """Each would be met later, where nobody expects it."""
    blobs, image = make_image(home, BASE, APP)
    manifest = json.loads(blobs.read(image.digest))
    config = json.loads(blobs.read(manifest["config"]["digest"])) | change
    manifest["config"]["digest"] = blobs.add(json.dumps(config).encode())
    digest = blobs.add(json.dumps(manifest).encode())
    with pytest.raises(PxError, match="PX923"):
        read_images(BlobsSource("x", blobs, digest))


@pytest.mark.parametrize("content", [b"", b"x" * 1000, header(b"x", b"0", b"\xff" * 12) * 3])
def test_an_archive_that_is_not_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(content)
    with no_hang(), pytest.raises(PxError, match="PX923"):
        read_images(source_of(str(tmp_path / "x.tar")))
