"""Fix-ups against the programs whose work they do: the base's own tools, run on the base."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from px.sandbox.layers.base import Base
from px.sandbox.layers.system import ensure_builder_layers, ensure_system_layer
from px.store.tree import remove_tree
from tests.support.needs import need
from tests.support.rootfs import run_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from px.store.objects import Store

LIBRARIES = ["postgres", "graphviz", "pango", "odbc", "blas"]


@pytest.fixture
def copy(base: Base, tmp_path: Path) -> Iterator[Path]:
    """A copy of the base that a tool may write to, as root and without a namespace: never let it near the store."""
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", "--reflink=auto", str(base.tree), str(root)], check=True)
    for directory, _, _ in os.walk(root):
        os.chmod(directory, 0o755)
    yield root
    remove_tree(root)


def shell(layers: list[Path], script: str, *, root: bool = False) -> str:
    done = run_in(layers, ["sh", "-ec", script], root=root)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ld_so_cache_of_a_base(base: Base) -> None:
    shell([base.tree], "ldconfig -C /tmp/cache && cmp /tmp/cache /etc/ld.so.cache")


def test_ld_so_cache_of_a_layer(base: Base, warm_store: Store) -> None:
    layer = ensure_system_layer(warm_store, base, LIBRARIES)
    assert layer is not None
    shell([base.tree, layer.tree], "ldconfig -C /tmp/cache && cmp /tmp/cache /etc/ld.so.cache")
    # ldconfig makes the links that packages leave to it; ours must all be there already.
    assert "(changed)" not in shell([base.tree, layer.tree], "ldconfig -v 2>/dev/null", root=True)


def test_ca_certificates(base: Base) -> None:
    need("openssl")
    before = _certificates(base.tree)
    assert len(before) > 250
    openssl = shutil.which("openssl")
    assert openssl is not None
    for pem, links in _by_target(before).items():
        if pem.endswith(".pem"):
            said = subprocess.run(
                [openssl, "x509", "-noout", "-subject_hash", "-in", str(base.tree / _shared(base.tree, pem))],
                capture_output=True,
                text=True,
                check=True,
            )
            assert [link.partition(".")[0] for link in links] == [said.stdout.strip()], pem


def _certificates(tree: Path) -> dict[str, str]:
    directory = tree / "etc/ssl/certs"
    return {path.name: os.readlink(path) for path in directory.iterdir() if path.is_symlink()}


def _by_target(links: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, target in sorted(links.items()):
        found.setdefault(target, []).append(name)
    return {target: names for target, names in found.items() if not target.startswith("/")}


def _shared(tree: Path, pem: str) -> str:
    return os.readlink(tree / "etc/ssl/certs" / pem).lstrip("/")


UPDATE_CA = """
mkdir /tmp/certs /tmp/bin
printf '#!/bin/sh\\n' >/tmp/bin/openssl  # links by hash have a test of their own
chmod +x /tmp/bin/openssl
export PATH=/tmp/bin:$PATH
update-ca-certificates --fresh --etccertsdir /tmp/certs --hooksdir '' >/dev/null
cmp /tmp/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
ls /tmp/certs | grep -c pem$
"""


def test_the_bundle_is_what_update_ca_certificates_makes(base: Base) -> None:
    made = shell([base.tree], UPDATE_CA)
    assert int(made) == len([name for name in _certificates(base.tree) if name.endswith(".pem")])


def test_accounts(base: Base) -> None:
    """base-passwd's own program finds nothing to change in the system accounts."""
    shell([base.tree], "update-passwd --dry-run", root=True)
    out = shell([base.tree], "getent passwd 1000; getent group 1000; getent shadow root; whoami")
    assert out.splitlines() == ["px:x:1000:1000::/home/px:/bin/bash", "px:x:1000:", "root:*::0:99999:7:::", "px"]


UPDATE_SHELLS = """
cp /etc/shells /tmp/ours
cp /var/lib/shells.state /tmp/state
rm /etc/shells /var/lib/shells.state
printf '#!/bin/sh\\nshift 2; exec realpath "$@"\\n' >/usr/local/bin/dpkg-realpath  # dpkg's own is not in a base
chmod +x /usr/local/bin/dpkg-realpath
update-shells
cmp /tmp/ours /etc/shells
cmp /tmp/state /var/lib/shells.state
"""


def test_shells(base: Base) -> None:
    shell([base.tree], UPDATE_SHELLS, root=True)


def test_alternatives(base: Base, copy: Path, tmp_path: Path) -> None:
    """Every record of ours is one that update-alternatives accepts, and would not change."""
    need("root", "update-alternatives")  # root, for its --root
    tool = shutil.which("update-alternatives")
    assert tool is not None
    records = sorted(path.name for path in (copy / "var/lib/dpkg/alternatives").iterdir())
    assert {"awk", "pager", "rmt", "which"} <= set(records)
    before = {name: (copy / "var/lib/dpkg/alternatives" / name).read_bytes() for name in records}
    for name in records:
        subprocess.run(
            [tool, "--root", str(copy), "--log", str(tmp_path / "log"), "--auto", name], check=True, capture_output=True
        )
    for name in records:
        after = (copy / "var/lib/dpkg/alternatives" / name).read_bytes()
        assert after == before[name], name
        assert os.readlink(copy / "etc/alternatives" / name) == os.readlink(base.tree / "etc/alternatives" / name)


BUILD = """
for t in cc c++ cpp make ld pkg-config pg_config python3-config; do command -v $t >/dev/null || echo no $t; done
echo 'int main(void){return 0;}' >/tmp/x.c
cc -o /tmp/x /tmp/x.c -lpq
/tmp/x
pg_config --libs >/dev/null
echo '#include <Python.h>' | cc -E $(python3-config --includes) - >/dev/null
echo built
"""


@pytest.mark.slow
def test_the_builder_builds(bookworm: Base, warm_store: Store) -> None:
    layers = [bookworm.tree, *(layer.tree for layer in ensure_builder_layers(warm_store, bookworm, ["postgres"]))]
    assert shell(layers, BUILD) == "built\n"


GRAPHVIZ = """
d=$(dirname /usr/lib/*/graphviz/config6a)
cp $d/config6a /tmp/ours
echo 'digraph { a -> b }' | dot -Tsvg | grep -c '<svg'
echo 'digraph { a }' | dot -Tpng | head -c 4 | tail -c 3
rm $d/config6a
dot -c
cmp /tmp/ours $d/config6a
"""


def test_graphviz_plugins(base: Base, warm_store: Store) -> None:
    layer = ensure_system_layer(warm_store, base, LIBRARIES)
    assert layer is not None
    assert shell([base.tree, layer.tree], GRAPHVIZ, root=True) == "1\nPNG"


PIXBUF = """
cd /usr/lib/*/gdk-pixbuf-2.0
./gdk-pixbuf-query-loaders $(find $PWD/2.10.0/loaders -name '*.so' | LC_ALL=C sort) >/tmp/cache
cmp /tmp/cache 2.10.0/loaders.cache
"""


def test_pixbuf_loaders(base: Base, warm_store: Store) -> None:
    layer = ensure_system_layer(warm_store, base, LIBRARIES)
    assert layer is not None
    shell([base.tree, layer.tree], PIXBUF)


def test_fonts_and_odbc(base: Base, warm_store: Store) -> None:
    layer = ensure_system_layer(warm_store, base, [*LIBRARIES])
    assert layer is not None
    out = shell([base.tree, layer.tree], "cat /etc/odbcinst.ini; ls /etc/fonts/conf.d; fc-list | grep -c ttf || true")
    assert "[FreeTDS]\nDescription=TDS driver (Sybase/MS SQL)\nDriver=libtdsodbc.so" in out
    assert "10-hinting-slight.conf" in out
    assert "70-no-bitmaps" in out


def test_scanners_see_every_package(base: Base) -> None:
    names = {path.name for path in (base.tree / "var/lib/dpkg/status.d").iterdir() if path.suffix != ".md5sums"}
    assert {p.name for p in base.packages} <= names
    md5 = shell([base.tree], "cd / && cat /var/lib/dpkg/status.d/*.md5sums | md5sum -c --quiet && echo good")
    assert md5 == "good\n"
