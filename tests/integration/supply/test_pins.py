"""Pins that belong to a project, with Debian's real packages and a mirror that publishes a newer one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from px.debian.lock import encode, file_name
from px.debian.locking.pins import read_pins, restricted
from px.home import Home
from px.platforms import host_architecture
from px.sandbox.layers.base import load_base_lock
from px.store.objects import Store
from tests.support.debian import newer_deb, pin, tar_member
from tests.support.px import run_px
from tests.support.resigned import Resigned, resigned

pytestmark = pytest.mark.network
MORE = tar_member("./usr/share/netbase-newer", b"yes\n")


@pytest.fixture
def mirror(kept: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Resigned]:
    lock = restricted(load_base_lock("debian-12", host_architecture()), ["postgres", "xml"])
    with resigned(lock, Store(kept), tmp_path / "keys") as found:
        monkeypatch.setenv("PX_DEBIAN_MIRROR", found.mirror.url)
        monkeypatch.setenv("PX_DEBIAN_KEYRING", str(tmp_path / "keys"))
        yield found


def answer(project: Path, *args: str, code: int = 0) -> dict[str, Any]:
    done = run_px(*args, "--json", cwd=project, check=False)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    details: dict[str, Any] = json.loads(done.stdout)["details"]
    return details


def explained(project: Path) -> tuple[str, str]:
    details = answer(project, "sandbox", "explain")
    return details["base_os_oid"], details["sbx_id"]


def netbase(store: Store, version: str) -> bytes:
    from px.store.sources import find_source

    found = find_source(store, load_base_lock("debian-12", host_architecture()).packages["netbase"].sha256)
    assert found is not None
    return newer_deb(found.read_bytes(), version, MORE)


def test_a_new_px_changes_nothing_for_a_project_with_pins(
    project: Path, kept: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirror: Resigned
) -> None:
    run_px("sync", "--sandbox", cwd=project)
    before = explained(project)
    said = answer(project, "sandbox", "pin")
    assert said["capabilities"] == ["postgres"]
    assert set(said["packages"]) == {"amd64", "arm64"}
    assert tomllib.loads((project / "pyproject.toml").read_text())["tool"]["px"]["sandbox"]["pins"] == "px-pins.json"
    pins = (project / "px-pins.json").read_bytes()
    run_px("sync", "--sandbox", cwd=project)
    assert explained(project) == before
    packed = answer(project, "pack", "image", "--allow-dirty")["digest"]

    # A newer px: its locks have a newer package.
    content = netbase(Store(kept), "99")
    lock = load_base_lock("debian-12", host_architecture())
    changed = replace(pin("netbase", content, version="99"), path="pool/main/netbase_99_all.deb")
    mirror.mirror.files[changed.path] = content
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / file_name("debian-12", lock.architecture)).write_bytes(
        encode(replace(lock, packages={**lock.packages, "netbase": changed}))
    )
    monkeypatch.setenv("PX_BASES", str(newer))
    run_px("run", "--frozen", "--sandbox", "true", cwd=project)  # the record still holds
    run_px("sync", "--sandbox", "--force", cwd=project)
    assert explained(project) == before
    assert answer(project, "pack", "image", "--allow-dirty")["digest"] == packed
    answer(project, "sandbox", "pin")
    assert (project / "px-pins.json").read_bytes() == pins
    manifest = project / "pyproject.toml"
    manifest.write_text(manifest.read_text().replace('pins = "px-pins.json"\n', ""))
    run_px("sync", "--sandbox", cwd=project)
    assert explained(project)[0] != before[0]


def test_update_takes_exactly_what_is_newer_and_shows_it(project: Path, kept: Home, mirror: Resigned) -> None:
    architecture = host_architecture()
    answer(project, "sandbox", "pin", "--architecture", architecture)
    answer(project, "sandbox", "update")  # whatever the real archive has since
    assert answer(project, "sandbox", "outdated")["changes"] == {architecture: []}
    before = read_pins(project / "px-pins.json")[architecture]
    run_px("sync", "--sandbox", cwd=project)
    old = explained(project)

    mirror.add("netbase", "99", netbase(Store(kept), "99"))
    wanted = {"name": "netbase", "old": before.packages["netbase"].version, "new": "99", "security": True}
    for flags in ((), ("--security",)):
        assert answer(project, "sandbox", "outdated", *flags, code=1)["changes"] == {architecture: [wanted]}
    assert read_pins(project / "px-pins.json")[architecture] == before
    assert run_px("sandbox", "update", "--frozen", cwd=project, check=False).returncode == 121
    assert "PX950" in run_px("sandbox", "update", "no-such", cwd=project, check=False).stderr
    assert answer(project, "sandbox", "update", "bash")["changes"] == {architecture: []}
    shown = run_px("sandbox", "update", cwd=project).stdout
    assert shown == f"{architecture}: 1 newer\n  security  netbase {wanted['old']} -> 99\n"
    after = read_pins(project / "px-pins.json")[architecture]
    assert {n for n in after.packages if after.packages[n] != before.packages[n]} == {"netbase"}
    assert answer(project, "sandbox", "outdated")["changes"] == {architecture: []}

    assert "px sync --sandbox" in run_px("run", "--frozen", "--sandbox", "true", cwd=project, check=False).stderr
    done = run_px("run", "--sandbox", "cat", "/usr/share/netbase-newer", cwd=project)
    assert done.stdout == "yes\n"
    assert explained(project)[0] != old[0]


def test_a_capability_that_is_not_pinned_yet(project: Path, mirror: Resigned) -> None:
    architecture = host_architecture()
    answer(project, "sandbox", "pin", "--architecture", architecture)
    run_px("sandbox", "add", "xml", cwd=project)
    refused = run_px("sync", "--sandbox", cwd=project, check=False)
    assert refused.stderr.startswith("PX901")
    assert "px sandbox pin" in refused.stderr
    assert answer(project, "sandbox", "pin")["capabilities"] == ["postgres", "xml"]
    run_px("sync", "--sandbox", cwd=project)
    assert not [path for path in mirror.mirror.asked if path.startswith("dists/")]


def test_a_capability_is_added_to_pins_that_px_has_left_behind(project: Path, kept: Home, mirror: Resigned) -> None:
    architecture = host_architecture()
    answer(project, "sandbox", "pin", "--architecture", architecture)
    mirror.add("netbase", "99", netbase(Store(kept), "99"))
    answer(project, "sandbox", "update", "netbase")
    before = read_pins(project / "px-pins.json")[architecture]
    assert before.packages["netbase"].version == "99"
    run_px("sandbox", "add", "xml", cwd=project)
    assert answer(project, "sandbox", "pin")["capabilities"] == ["postgres", "xml"]
    after = read_pins(project / "px-pins.json")[architecture]
    assert after.packages["netbase"].version == "99"
    assert "libxslt1.1" in after.packages
    run_px("sync", "--sandbox", cwd=project)
