"""Blobs, configs, layouts and archives: deterministic, whole or not there, as the OCI schemas want them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from px.errors import PxError
from px.home import Home
from px.oci.blobs import Blobs, TreeRef
from px.oci.config import ImageSpec, build_image, config_document
from px.oci.documents import DOCKER, FORMATS, OCI, Platform
from px.oci.layout import open_output, write_archive, write_layout
from px.store.objects import Store
from tests.unit.oci.images import AMD64, ARM64, CREATED, Files, make_image, make_release, noise

if TYPE_CHECKING:
    from pathlib import Path

BASE = Files({"bin/tool": noise(2_000_000), "etc/x": b"x", "bin/link": "->tool"}, {"bin/tool": 0o755})
APP = Files({"main.py": b"print()\n", "ünï": b"u"})

DETERMINISM = """
import sys
from pathlib import Path
from px.home import Home
from px.oci.layout import write_archive
from tests.unit.oci.images import make_release
from tests.unit.oci.test_layout import APP, BASE, make_image
blobs, image = make_image(Home(Path(sys.argv[1])), BASE, APP)
write_archive(blobs, make_release(blobs, image, names=("px.local/demo:1.0", "example.org/b:2")), Path(sys.argv[2]))
print(image.digest)
"""


def test_the_same_bytes_in_another_home_umask_zone_locale_and_hash_seed(tmp_path: Path) -> None:
    found = set()
    for n, (flags, env) in enumerate(
        [
            ([], {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "1"}),
            (["-O"], {"TZ": "America/Lima", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"}),
        ]
    ):
        done = subprocess.run(
            [sys.executable, *flags, "-c", DETERMINISM, tmp_path / f"home{n}", tmp_path / f"{n}.tar"],
            env={**os.environ, **env, "PYTHONPATH": os.pathsep.join(sys.path)},
            umask=0o077 if n else 0o022,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add((done.stdout, (tmp_path / f"{n}.tar").read_bytes()))
    assert len(found) == 1


def test_a_layer_is_packed_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    store, blobs = Store(home), Blobs(home)
    tree = TreeRef("layer", BASE.store(store))
    made = blobs.store_layer(store, [tree])

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("packed again")

    monkeypatch.setattr("px.oci.blobs.compress", refuse)
    assert Blobs(home).store_layer(store, [tree]) == made
    with pytest.raises(AssertionError):
        blobs.store_layer(store, [TreeRef("layer", tree.oid, "elsewhere")])


def test_a_lost_or_damaged_blob_is_made_again(home: Home) -> None:
    store, blobs = Store(home), Blobs(home)
    tree = TreeRef("layer", BASE.store(store))
    made = blobs.store_layer(store, [tree])
    path = blobs.path(made.digest)
    path.unlink()
    assert blobs.store_layer(store, [tree]) == made
    path.chmod(0o644)
    path.write_bytes(b"short")
    assert blobs.store_layer(store, [tree]) == made
    assert blobs.problems(made.digest) == []
    for key in (blobs.root / "index").iterdir():
        key.write_text("not json")
    assert blobs.store_layer(store, [tree]) == made


def test_a_damaged_store_is_not_shipped(home: Home) -> None:
    store, blobs = Store(home), Blobs(home)
    oid = BASE.store(store)
    victim = store.tree("layer", oid) / "etc" / "x"
    victim.chmod(0o644)
    victim.write_bytes(b"y")
    with pytest.raises(PxError) as caught:
        blobs.store_layer(store, [TreeRef("layer", oid)])
    assert caught.value.code == "PX802"
    assert oid in caught.value.what
    assert "px store verify" in str(caught.value)


def test_a_full_disk_while_packing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    store, blobs = Store(home), Blobs(home)
    oid = BASE.store(store)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("px.oci.blobs.compress", full)
        with pytest.raises(PxError) as caught:
            blobs.store_layer(store, [TreeRef("layer", oid)])
    assert caught.value.code == "PX903"
    assert "no space left" in caught.value.what
    assert list(blobs.digests()) == []
    assert blobs.store_layer(store, [TreeRef("layer", oid)]).size > 0


def test_config() -> None:
    spec = ImageSpec(
        Platform("linux", "arm64", "v8"),
        CREATED,
        env={"B": "2", "A": "1"},
        entrypoint=("app",),
        cmd=("--serve",),
        ports=("8000", "53/udp"),
        volumes=("/data",),
        labels={"l": "x"},
        author="me",
    )
    found = config_document(spec, [])
    assert found["config"] == {
        "Env": ["A=1", "B=2"],
        "WorkingDir": "/app",
        "User": "1000:1000",
        "Entrypoint": ["app"],
        "Cmd": ["--serve"],
        "StopSignal": "SIGTERM",
        "ExposedPorts": {"8000/tcp": {}, "53/udp": {}},
        "Volumes": {"/data": {}},
        "Labels": {"l": "x"},
    }
    assert (found["os"], found["architecture"], found["variant"]) == ("linux", "arm64", "v8")
    assert found["created"] == "2023-11-14T22:13:20Z"
    assert found["author"] == "me"


def test_layout_and_archive_hold_the_same(home: Home, tmp_path: Path) -> None:
    blobs, image = make_image(home, BASE, APP)
    what = make_release(blobs, image)
    write_layout(blobs, what, tmp_path / "layout")
    write_archive(blobs, what, tmp_path / "x.tar")
    with tarfile.open(tmp_path / "x.tar") as archive:
        found = {m.name: stream.read() for m in archive if (stream := archive.extractfile(m)) is not None}
    docker = json.loads(found.pop("manifest.json"))
    files = [path for path in (tmp_path / "layout").rglob("*") if path.is_file()]
    assert found == {str(path.relative_to(tmp_path / "layout")): path.read_bytes() for path in files}
    assert docker[0]["RepoTags"] == ["px.local/demo:1.0"]
    assert set(docker[0]["Layers"]) < found.keys()


def test_a_layout_is_replaced_by_a_newer_one(home: Home, tmp_path: Path) -> None:
    blobs, first = make_image(home, BASE, APP)
    _, second = make_image(home, BASE, Files({"main.py": b"other"}))
    write_layout(blobs, make_release(blobs, first), tmp_path / "layout")
    write_layout(blobs, make_release(blobs, second), tmp_path / "layout")
    write_layout(blobs, make_release(blobs, second), tmp_path / "fresh")
    names = [sorted(p.relative_to(f) for p in f.rglob("*")) for f in (tmp_path / "layout", tmp_path / "fresh")]
    assert names[0] == names[1]


def test_other_directories_are_left_alone(home: Home, tmp_path: Path) -> None:
    blobs, image = make_image(home, BASE, APP)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    with pytest.raises(PxError, match="PX903"):
        write_layout(blobs, make_release(blobs, image), tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["file"]


def test_an_archive_is_whole_or_not_there(home: Home, tmp_path: Path) -> None:
    blobs, image = make_image(home, BASE, APP)
    what = make_release(blobs, image)
    (tmp_path / "x.tar").write_bytes(b"the one before")
    blobs.path(image.layers[0].blob.digest).unlink()
    with pytest.raises(PxError, match="PX903"):
        write_archive(blobs, what, tmp_path / "x.tar")
    assert (tmp_path / "x.tar").read_bytes() == b"the one before"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".x.tar")] == []


def test_several_platforms(home: Home, tmp_path: Path) -> None:
    blobs, amd64 = make_image(home, BASE, APP, platform=AMD64)
    _, arm64 = make_image(home, BASE, APP, platform=ARM64)
    what = make_release(blobs, amd64, arm64)
    index = json.loads(blobs.read(what.digest))
    assert [m["platform"] for m in index["manifests"]] == [p.document() for p in (AMD64, ARM64)]
    assert what.blob_digests()[-1] == what.digest
    assert len(set(what.blob_digests())) == len(what.blob_digests()) == 7


def test_docker_format(home: Home) -> None:
    blobs, image = make_image(home, BASE, APP, format=DOCKER)
    manifest = json.loads(blobs.read(image.digest))
    assert manifest["mediaType"] == FORMATS[DOCKER].manifest
    assert "annotations" not in manifest
    with pytest.raises(PxError, match="PX903"):
        make_image(home, BASE, APP, format=DOCKER, compression="zstd")


def test_an_edit_changes_one_layer(home: Home) -> None:
    blobs, first = make_image(home, BASE, APP)
    _, second = make_image(home, BASE, Files({"main.py": b"other"}))
    same = [a.blob == b.blob for a, b in zip(first.layers, second.layers, strict=True)]
    assert same == [True, False]
    assert build_image(blobs, first.spec, first.layers, format=OCI) == first


def test_what_the_user_names_is_written_as_it_is(tmp_path: Path) -> None:
    """A link stays a link, and a pipe is written to: neither is replaced by a file."""
    (tmp_path / "link").symlink_to("behind")
    with open_output(tmp_path / "link") as out:
        out.write(b"bill")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "behind").read_bytes() == b"bill"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with open_output(tmp_path / "pipe") as out:
        out.write(b"bill")
    assert os.read(reader, 10) == b"bill"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
