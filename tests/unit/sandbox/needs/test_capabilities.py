"""The capability table: its schema, its names, and what an unknown name says."""

from __future__ import annotations

import tomllib

import pytest
from packaging.utils import canonicalize_name

from px import DATA
from px.env import complaints
from px.errors import PxError
from px.sandbox.needs import sonames
from px.sandbox.needs.capabilities import find, nearest, packages, table
from px.sandbox.needs.inference import distributions

PROMISED = (
    "postgres mysql odbc imagecodecs xml xmlsec ldap kerberos ffi curl openssl ssh magic fonts pango opengl audio video"
    " blas hdf5 geo graphviz barcode ocr git compression xkb less http-tools sql-tools gettext java gtk"
)


def test_every_promised_capability_is_there_on_both_bases() -> None:
    for name in PROMISED.split():
        assert set(table()[name].packages) >= {"debian-12", "debian-13"}, name


@pytest.mark.parametrize("name", sorted(table()))
def test_rows_are_complete_and_sorted(name: str) -> None:
    with open(f"{DATA}/capabilities.toml", "rb") as f:
        row = tomllib.load(f)[name]
    assert canonicalize_name(name) == name
    assert row.pop("summary").strip()
    aliases = row.pop("aliases", [])
    assert aliases == sorted(aliases)
    for lists in row.values():
        assert set(lists) == {"runtime", "build"}
        assert lists["runtime"], "a capability that brings nothing to an image is none"
        for kind in ("runtime", "build"):
            assert lists[kind] == sorted(set(lists[kind]))


def test_images_get_no_headers_and_no_compilers() -> None:
    for capability in table().values():
        for lists in capability.packages.values():
            assert not [p for p in lists.runtime if p.endswith("-dev") or p.startswith(("gcc", "g++", "pkg"))]


def test_the_other_tables_name_only_capabilities_that_exist() -> None:
    known = set(table())
    aliases = [alias for row in table().values() for alias in row.aliases]
    assert len(aliases) == len(set(aliases))
    assert not set(aliases) & known
    for base, found in sonames.tables().items():
        owners = {c for row in found.owners.values() for c in row}
        assert owners <= known
        assert all(base in table()[c].packages for c in owners)
    for rows in distributions().values():
        for row in rows:
            assert set(row.capabilities) <= known
            assert row.capabilities == tuple(sorted(row.capabilities))
    raw = complaints.table()
    mappings = [rows for name, rows in raw.items() if isinstance(rows, dict) and name != "requirements"]
    assert len(mappings) == 6
    assert {c for mapping in mappings for c in mapping.values()} <= known
    assert {row["capability"] for row in raw["pattern"] if "capability" in row} <= known


def test_distribution_names_are_normalised_and_sorted() -> None:
    with open(f"{DATA}/distributions.toml", "rb") as f:
        raw = tomllib.load(f)
    for rows in raw.values():
        assert [canonicalize_name(name) for name in rows] == list(rows)
        assert list(rows) == sorted(rows)


def test_an_opened_library_is_one_that_its_capabilities_bring() -> None:
    for rows in distributions().values():
        for row in rows:
            if row.library and ".so" in row.library:
                for base in ("debian-12", "debian-13"):
                    owners = sonames.owners(row.library, base)
                    assert set(row.capabilities) & set(owners), (row, base)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("postgers", "postgres"), ("postgresql", "postgres"), ("libxml2", "xml"), ("Image_Codec", "imagecodecs")],
)
def test_an_unknown_name_suggests_the_nearest(wrong: str, right: str) -> None:
    assert nearest(wrong) == right
    with pytest.raises(PxError) as caught:
        find(wrong, "debian-12")
    assert caught.value.code == "PX901"
    assert repr(right) in caught.value.fix[0]
    assert not [line for line in caught.value.fix if "base" in line], "no base has a name that does not exist"


def test_a_base_without_the_capability_is_px901() -> None:
    with pytest.raises(PxError) as caught:
        find("odbc", "alpine-3.20")
    assert caught.value.code == "PX901"
    assert "debian-12, debian-13" in caught.value.why[0]


def test_packages_of_a_set() -> None:
    assert packages(["postgres"], "debian-12") == ("libpq5",)
    assert packages(["Postgres", "curl"], "debian-13", build=True) == (
        "libcurl4-openssl-dev", "libcurl4t64", "libpq-dev", "libpq5", "libssl-dev", "perl-base",
    )  # fmt: skip
