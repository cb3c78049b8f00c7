"""apt and dpkg find every package of an image, whether a project asks for the capability or only its image has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from px.debian.locking.index import Candidate, meets
from px.debian.locking.relock import Archive, load_capability_seeds, load_seeds, relock_with_index
from px.debian.mirror import mirrors
from px.debian.unpack import DROPPED
from px.sandbox.layers.apt import ensure_apt_layers, ensure_database_layer
from px.sandbox.layers.system import ensure_system_layer
from tests.support.rootfs import run_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from px.sandbox.layers.base import Base
    from px.sandbox.layers.layer import Layer
    from px.store.objects import Store

CLEAN = "dpkg --audit; apt-get check; apt-get --simulate dist-upgrade | tail -n 1"
LIST = "dpkg-query --show --showformat '${Package} ${Version} ${Status}\\n'"
PAM = """
cp -r /etc/pam.d /var/lib/pam /tmp
rm /etc/pam.d/common-* /var/lib/pam/*
DEBIAN_FRONTEND=noninteractive pam-auth-update --package --force
diff -r /tmp/pam.d /etc/pam.d
diff -r /tmp/pam /var/lib/pam
"""


def shell(layers: list[Path], script: str) -> str:
    done = run_in(layers, ["sh", "-ec", script], root=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr, "dpkg and apt warn of nothing"
    return done.stdout


@pytest.fixture(scope="session")
def system(base: Base, warm_store: Store) -> Layer:
    """The packages of some capability, which a project has."""
    layer = ensure_system_layer(warm_store, base, ["postgres"])
    assert layer is not None
    return layer


@pytest.fixture(scope="session")
def image(base: Base, system: Layer, warm_store: Store) -> list[Layer]:
    """That project's image with apt beside it, as E2B gets it."""
    return [base, system, *ensure_apt_layers(warm_store, base, [base, system])]


def test_apt_finds_a_coherent_system(base: Base, image: list[Layer]) -> None:
    trees = [layer.tree for layer in image]
    assert shell(trees, CLEAN).splitlines()[-1].startswith("0 upgraded, 0 newly installed, 0 to remove")
    pins = [p for layer in image for p in layer.packages]
    assert shell(trees, LIST).splitlines() == sorted(f"{p.name} {p.version} install ok installed" for p in pins)
    assert shell(trees, "dpkg --search /usr/bin/python3") == "python3-minimal: /usr/bin/python3\n"
    assert base.lock.codename in (image[-1].tree / "etc/apt/sources.list.d/debian.sources").read_text()


def test_dpkg_misses_only_what_px_leaves_out(image: list[Layer]) -> None:
    found = run_in([layer.tree for layer in image], ["dpkg", "--verify"], root=True).stdout.splitlines()
    assert found
    assert [line for line in found if not DROPPED.match(line.split()[-1].lstrip("/"))] == []


def test_the_files_of_pam_are_those_of_its_tool(image: list[Layer]) -> None:
    assert shell([layer.tree for layer in image], PAM) == ""


def test_a_project_that_has_the_capability_gets_the_same(base: Base, image: list[Layer], warm_store: Store) -> None:
    own = ensure_system_layer(warm_store, base, ["postgres", "apt"])
    assert own is not None
    assert {p.name for p in own.packages} == {p.name for layer in image[1:] for p in layer.packages}
    database = ensure_database_layer(warm_store, base, [own])
    assert database.oid == image[-1].oid
    assert ensure_apt_layers(warm_store, base, [base, own, database]) == ()


@pytest.mark.network
@pytest.mark.parametrize("name", ["debian-12", "debian-13"])
def test_with_apt_no_dependency_of_any_capability_is_open(name: str) -> None:
    """px leaves out packages that others depend on.  apt would refuse to work, so the capability brings them all."""
    lock, index = relock_with_index(Archive(mirrors("")[0]), load_seeds()[name], "amd64", load_capability_seeds(name))
    own = {*lock.base, *lock.capabilities["apt"].runtime}
    for capability, closure in lock.capabilities.items():
        found = [c for n in {*own, *closure.runtime} if (c := index.get(n))]
        assert list(_open(found)) == [], capability


def _open(packages: list[Candidate]) -> Iterator[str]:
    for package in packages:
        for group in package.depends:
            if not any(meets(other, relation) for relation in group for other in packages):
                yield f"{package.name} needs {' | '.join(map(str, group))}"
        for relation in package.conflicts:
            if any(other.name != package.name and meets(other, relation) for other in packages):
                yield f"{package.name} conflicts with {relation}"
