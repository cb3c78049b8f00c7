from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from px.errors import PxError
from px.oci.image import compare, read_images
from px.oci.layout import write_layout
from px.oci.packed import find, forget, packed, referenced, remember
from px.oci.reference import parse
from px.oci.sources import source_of
from tests.unit.oci.images import Files, make_image, make_release, noise

if TYPE_CHECKING:
    from pathlib import Path

    from px.home import Home

BASE = Files({"bin/big": noise(100_000)})


def test_names_keep_their_blobs(home: Home, tmp_path: Path) -> None:
    blobs, first = make_image(home, BASE, Files({"a": b"1"}))
    _, second = make_image(home, BASE, Files({"a": b"2"}))
    names = ("px.local/demo:1", "a.org/demo:1")
    remember(blobs, make_release(blobs, first, names=names), {"sbx_id": "x"})
    assert {image.name for image in packed(home)} == set(names)
    found = find(home, parse("px.local/demo:1"))
    assert found is not None
    assert (found.top.digest, found.details) == (first.digest, {"sbx_id": "x"})
    remember(blobs, make_release(blobs, second, names=names[:1]), {})
    blobs.prune(referenced(home), unused_for=0)
    (again,) = read_images(source_of("a.org/demo:1", blobs=blobs))
    write_layout(blobs, make_release(blobs, first), tmp_path / "layout")
    assert compare(again, read_images(source_of(str(tmp_path / "layout")))[0]) == []
    forget(home, "a.org/demo:1")
    assert blobs.prune(referenced(home), unused_for=0) > 0
    assert set(blobs.digests()) == set(second.blob_digests())


def test_a_damaged_record_is_no_record(home: Home) -> None:
    blobs, image = make_image(home, BASE, Files({"a": b"1"}))
    remember(blobs, make_release(blobs, image), {})
    for path in (home.sandbox / "packed").iterdir():
        path.write_text("{}")
    assert list(packed(home)) == []
    with pytest.raises(PxError, match="PX923"):
        source_of("px.local/demo:1.0", blobs=blobs)
