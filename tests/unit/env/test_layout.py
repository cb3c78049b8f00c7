"""How the files of several packages come together in one env."""

from __future__ import annotations

from pathlib import Path

import pytest

from px.env.layout import Layout, lay_out, script_content
from px.env.packages import Package
from px.env.wheel import WheelOf, unpack_wheel
from px.errors import PxError
from px.store.objects import Draft, Payload, Store
from tests.support.wheels import WheelSpec, sha256

SITE = "lib/python3.11/site-packages"
LINK = 0o120777


def laid_out(store: Store, folder: Path, *specs: WheelSpec) -> Layout:
    found = []
    for spec in specs:
        wheel = spec.write(folder)

        def make(draft: Draft, wheel: Path = wheel, spec: WheelSpec = spec) -> Payload:
            return unpack_wheel(wheel, draft.tree(), WheelOf(spec.name, "1.0", sha256(wheel)))

        found.append(Package(spec.name, "1.0", store.ensure("pkg-build", sha256(wheel), make)))
    return lay_out(store, found, SITE)


@pytest.mark.parametrize("path", ["shared", "a-1.0.data/data/share"])
def test_files_are_not_written_through_another_packages_link(store: Store, tmp_path: Path, path: str) -> None:
    """`up` is a link to a directory of its own package, where `evil` would be placed by the name of that link."""
    there = WheelSpec("a", files={"a/real/x.py": b"", path: b"a"}, modes={path: LINK})
    through = WheelSpec("b", files={path.replace("a-1.0", "b-1.0") + "/evil.py": b""})
    with pytest.raises(PxError) as caught:
        laid_out(store, tmp_path, there, through)
    assert caught.value.code == "PX206"
    assert {caught.value.fields["first"], caught.value.fields["second"]} == {"a", "b"}


def test_a_link_in_the_place_of_site_packages(store: Store, tmp_path: Path) -> None:
    path = f"a-1.0.data/data/{SITE}"
    with pytest.raises(PxError, match="PX206"):
        laid_out(store, tmp_path, WheelSpec("a", files={path: b"x"}, modes={path: LINK}))


def test_lib64_of_a_package_is_lib(store: Store, tmp_path: Path) -> None:
    layout = laid_out(store, tmp_path, WheelSpec("a", files={"a-1.0.data/data/lib64/cmake/a.cmake": b""}))
    assert "lib/cmake/a.cmake" in {f.path for f in layout.files}
    assert not any(d.startswith("lib64") for d in layout.directories)


def test_a_script_whose_first_line_is_not_text() -> None:
    assert script_content(b"#!python -\xff\nx", "/p") == b"#!/p -\xff\nx"
