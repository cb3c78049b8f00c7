"""What a sandbox weighs: files belong to packages, whatever the layers say."""

from __future__ import annotations

import pytest

from px.sandbox.report.contents import OTHER, PYTHON, SYSTEM, Tree, contents, describes

STATUS = "var/lib/dpkg/status.d"
SITE = "opt/px/env/lib/python3.11/site-packages"
BASE = Tree(
    "base",
    {"usr/lib/libpq.so.5": 300, "usr/lib/a/x.py": 10, "usr/lib/a/__pycache__/x.cpython-311.pyc": 7, "etc/x": 5},
    {
        f"{STATUS}/libpq5": "Package: libpq5\nVersion: 15.1-1\n",
        f"{STATUS}/libpq5.md5sums": f"{'0' * 32}  lib/libpq.so.5\n",
        f"{STATUS}/stdlib": "Package: stdlib\nVersion: 3\n",
        f"{STATUS}/stdlib.md5sums": f"{'0' * 32}  usr/lib/a/x.py\n",
        "usr/share/doc/libpq5/copyright": "Format: x\n\nLicense: PostgreSQL\n",
    },
)
ENV = Tree(
    "env",
    {f"{SITE}/shop/a.py": 40, f"{SITE}/shop/__pycache__/a.cpython-311.pyc": 60, "opt/px/env/bin/shop": 9},
    {
        f"{SITE}/Shop_Front-1.2.dist-info/METADATA": "Metadata-Version: 2.4\nLicense-Expression: MIT\n\n",
        f"{SITE}/Shop_Front-1.2.dist-info/RECORD": "shop/a.py,,\n../../../bin/shop,,\n",
    },
)


def test_every_byte_is_counted_once_and_belongs_to_somebody() -> None:
    found = contents([BASE, ENV])
    assert found.size == sum(BASE.sizes.values()) + sum(ENV.sizes.values())
    assert found.layers() == {"base": 322, "env": 109}
    weights = {(w.layer, w.kind, w.name): w.size for w in found.weights}
    assert weights == {
        ("base", SYSTEM, "libpq5"): 300,  # though dpkg has its path from before /usr was merged
        ("base", SYSTEM, "stdlib"): 17,  # with its compiled module
        ("base", OTHER, "links, caches and settings of the base"): 5,
        ("env", PYTHON, "shop-front"): 109,  # with a script outside of site-packages
    }


def test_packages_have_versions_and_licences() -> None:
    rows = {(p.kind, p.name): (p.version, p.size, p.licences) for p in contents([BASE, ENV]).packages}
    assert rows[SYSTEM, "libpq5"] == ("15.1-1", 300, ("PostgreSQL",))
    assert rows[PYTHON, "shop-front"] == ("1.2", 109, ("MIT",))


def test_alpines_database_is_read_too() -> None:
    text = "P:musl\nV:1.2\nL:MIT\nF:lib\nR:ld-musl.so\n\nP:zlib\nV:1.3\n\n"
    found = contents([Tree("base", {"lib/ld-musl.so": 4}, {"lib/apk/db/installed": text})])
    assert [(p.name, p.version, p.size, p.licences) for p in found.packages] == [
        ("musl", "1.2", 4, ("MIT",)),
        ("zlib", "1.3", 0, ()),
    ]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{STATUS}/x", " continues nothing"),
        (f"{STATUS}/x.md5sums", "short\n\n\x00"),
        (f"{SITE}/x-1.dist-info/RECORD", '"never closed\n\x00,'),
        (f"{SITE}/x-1.dist-info/RECORD", "../" * 3000 + "etc/passwd,,\n"),
        (f"{SITE}/x-1.dist-info/METADATA", "\x00\ufffd: ::"),
        ("lib/apk/db/installed", "R:x\nF\n:::\n"),
        ("usr/share/doc/x/copyright", "Format:\nLicense:" + " " * 100_000),
    ],
)
def test_nothing_that_a_package_writes_about_itself_stops_the_report(path: str, text: str) -> None:
    assert describes(path)
    found = contents([BASE, Tree("env", {"a": 1}, {path: text})])
    assert found.size == 323


def test_only_small_descriptions_are_read() -> None:
    assert not describes(f"{SITE}/numpy/core.py")
    assert not describes("usr/share/doc/x/changelog.gz")
