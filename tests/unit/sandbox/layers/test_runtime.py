"""Which Python a sandbox gets, and how an archive of one becomes a tree."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from px.errors import PxError
from px.home import Home
from px.platforms import ARCHITECTURES
from px.project.context import Context
from px.project.selection import Selection
from px.sandbox.layers import pythonpins, pythons
from px.sandbox.layers.base import Base
from px.sandbox.layers.python import choose_python
from px.sandbox.layers.pythons import Offer, Pin, UnavailableError, pins
from px.sandbox.layers.runtime import PREFIX, ensure_python
from px.sandbox.layers.sysconfigdata import BuildPrefix
from px.store.objects import Store


class FakeBase:
    """As much of a base as the choice of a Python looks at; nothing is unpacked in unit tests."""

    name, architecture, is_alpine = "debian-12", "amd64", False

    class python:  # noqa: N801
        major, minor, full = 3, 11, "3.11.2"

    class libc:  # noqa: N801
        name, version = "libc6", "2.36-9"

    packages = (libc,)


BASE = cast("Base", FakeBase())


def project(tmp_path: Path, requires: str, pin: str | None = None) -> Path:
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname="a"\nversion="1"\nrequires-python="{requires}"\n')
    if pin is not None:
        (tmp_path / ".python-version").write_text(pin + "\n")
    return tmp_path


def python_of(store: Store, root: Path, python: str | None = None) -> str:
    return choose_python(Context(store, root), Selection(python=python), BASE).python.runtime.version


# --- the base's own -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requires", "pin"),
    [
        (">=3.11", None),
        (">=3.9", "3.11"),
        (">=3.9", "3.11.9"),
        (">=3.9", "cpython@3.11"),
        (">=3.9", "cpython-3.11.4-linux-x86_64-gnu"),
        (">=3.9", "3"),
        (">=3.9", "/opt/some/python"),
        (">=3.9", ">=3.10"),
        (">=3.9", "# only a comment"),
    ],
)
def test_the_base_serves_whoever_accepts_it(store: Store, tmp_path: Path, requires: str, pin: str | None) -> None:
    assert python_of(store, project(tmp_path, requires, pin)) == "3.11.2"


def test_a_minor_version_without_a_pin_can_be_named_in_full(store: Store, tmp_path: Path) -> None:
    with pytest.raises(PxError) as caught:
        python_of(store, project(tmp_path, ">=3.9"), "3.9")
    (fix,) = caught.value.fix
    assert fix.startswith("Name a full version")


def test_the_profile_of_the_bases_own_python_has_nothing_more_to_say(store: Store, tmp_path: Path) -> None:
    found = choose_python(Context(store, project(tmp_path, ">=3.11")), Selection(), BASE).python
    assert found.payload is None
    assert found.identity == found.runtime.payload()
    assert found.program == "/usr/bin/python3.11"


@pytest.mark.parametrize("pin", ["pypy@3.10", "3.13t", "3.13+freethreaded", "graalpy", "3.14.0a1"])
def test_what_is_no_stable_cpython_is_refused(store: Store, tmp_path: Path, pin: str) -> None:
    with pytest.raises(PxError, match="PX900") as e:
        python_of(store, project(tmp_path, ">=3.9", pin))
    assert pin in e.value.why[0]


def test_a_wrong_requires_python_is_the_manifests_error(store: Store, tmp_path: Path) -> None:
    with pytest.raises(PxError, match="PX003"):
        python_of(store, project(tmp_path, "three"))


# --- the choice ---------------------------------------------------------------------------------------------------

SHA = {"amd64": "a" * 64, "arm64": "b" * 64}
PINNED = {v: Pin(v, "20250101", SHA) for v in ("3.10.9", "3.12.10", "3.13.2")}


def offer(version: str, build: str = "20250101", host: str = "https://mirror.example/x/") -> Offer:
    name = Pin(version, build, SHA).archive("amd64")
    return Offer(version, f"cpython-{version}-linux-x86_64-gnu", f"{host}{build}/{name}")


OFFERED = {o.version: o for o in (offer("3.12.9"), offer("3.12.10"), offer("3.12.11"), offer("3.14.1"))}


def starts(prefix: str) -> Callable[[str], bool]:
    return lambda version: version.startswith(prefix)


def test_the_newest_pinned_version_wins_whatever_else_is_offered() -> None:
    found = pythons.select(OFFERED, "amd64", starts("3."), None, PINNED)
    assert found.version == "3.13.2"
    assert found.sha256 == "a" * 64
    assert found.identity == ["a" * 64]


def test_a_full_version_is_taken_at_its_word() -> None:
    found = pythons.select(OFFERED, "amd64", starts("3.12"), "3.12.9", PINNED)
    assert (found.version, found.pin, found.url) == ("3.12.9", None, OFFERED["3.12.9"].url)
    assert found.identity == [found.key, found.url]


def test_without_pins_the_list_decides_and_numbers_are_compared_as_numbers() -> None:
    assert pythons.select(OFFERED, "amd64", starts("3.12"), None, {}).version == "3.12.11"


def test_nothing_that_fits_is_said() -> None:
    with pytest.raises(UnavailableError, match=r"3\.10\.9, 3\.12\.10, 3\.13\.2"):
        pythons.select(OFFERED, "amd64", starts("2."), None, PINNED)


def test_a_pinned_build_is_sought_where_uv_has_its_other_builds() -> None:
    newer = {"3.14.9": offer("3.14.9", "20990101", "file:///mirror/")}
    found = pythons.address(PINNED["3.12.10"], "arm64", newer)
    assert found == f"file:///mirror/20250101/{PINNED['3.12.10'].archive('arm64')}"
    assert pythons.address(PINNED["3.12.10"], "arm64", {}) == ""


def test_the_reason_is_the_cause_at_the_bottom() -> None:
    said = "error: Failed to install x\n  cause: Request failed\n  cause: Name or service not known\n"
    assert pythons.reason(said) == "Failed to install x: Name or service not known"
    assert pythons.reason("error: No download found") == "No download found"


def test_the_shipped_pins_are_whole() -> None:
    assert {"3.12", "3.13"} <= {v.rpartition(".")[0] for v in pins()}
    for version, pin in pins().items():
        assert re.fullmatch(r"3\.\d+\.\d+", version)
        assert re.fullmatch(r"\d{8}", pin.build)
        assert set(pin.sha256) == set(ARCHITECTURES)
        assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in pin.sha256.values())


def test_uv_tells_the_hash_that_it_expects() -> None:
    """What renewing the pins stands on."""
    offer = next(iter(pythons.builtin_offers("amd64").values()))
    found = pythonpins.expected_hash(offer.key, offer.url)
    assert re.fullmatch(r"[0-9a-f]{64}", found)


@pytest.mark.parametrize(
    "setting", ["UV_PYTHON_DOWNLOADS=never", "UV_PYTHON_PREFERENCE=only-system", "UV_NO_MANAGED_PYTHON=1"]
)
def test_settings_against_downloads_hide_nothing_from_the_list(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list says where a pinned build lies; whether it may be fetched is asked later."""
    name, _, value = setting.partition("=")
    monkeypatch.setenv(name, value)
    assert pythons.builtin_offers("amd64")


# --- the tree -----------------------------------------------------------------------------------------------------

DATA = b"""# generated
build_time_vars = {'CC': 'clang -pthread', 'CXX': '/usr/bin/aarch64-linux-gnu-g++ -pthread', 'AR': 'llvm-ar',
 'prefix': '/install', 'INSTALL': '/usr/bin/install -c', 'LIBDIR': '/install/lib', 'N': 1,
 'LDFLAGS': '-L/install/lib -fuse-ld=lld -lm', 'OTHER': '/installed /x/install'}
"""


def test_build_variables_are_those_of_the_sandbox() -> None:
    name = "lib/python3.12/_sysconfigdata__linux_x86_64-linux-gnu.py"
    prefix = BuildPrefix.of({name: DATA})
    assert prefix.path == "/install"
    namespace: dict[str, dict[str, object]] = {}
    exec(prefix.moved(name, DATA, "/opt/px/python"), namespace)
    assert namespace["build_time_vars"] == {
        "CC": "cc -pthread",
        "CXX": "c++ -pthread",
        "AR": "ar",
        "prefix": "/opt/px/python",
        "INSTALL": "/usr/bin/install -c",
        "LIBDIR": "/opt/px/python/lib",
        "N": 1,
        "LDFLAGS": "-L/opt/px/python/lib -lm",
        "OTHER": "/installed /x/install",
    }
    assert prefix.moved("lib/pkgconfig/python3.pc", b"prefix=/install\n", "/new") == b"prefix=/new\n"
    assert prefix.moved("lib/python3.12/install.py", b"/install\n", "/new") == b"/install\n"


def archive(tmp_path: Path, *members: tarfile.TarInfo, content: bytes = b"x") -> Path:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.mode = kind, link, mode
    return found


PROGRAM = member("python/bin/python3.12", mode=0o775)
CHOICE = pythons.Choice("3.12.9", "amd64", None, "file:///a.tar.gz")


def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *members: tarfile.TarInfo) -> list[list[str | int]]:
    found = archive(tmp_path, PROGRAM, *members)
    monkeypatch.setattr(pythons, "fetch", lambda *args, **more: found)
    store = Store(Home(tmp_path / "home"), offline=True)
    layer = ensure_python(Context(store, project(tmp_path, ">=3.11")), CHOICE, "glibc-2.36").layer
    assert layer is not None
    return [e for e in layer.entries(store) if e[0] != "d"]


def test_an_archive_becomes_a_tree_of_what_programs_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = unpacked(
        tmp_path,
        monkeypatch,
        member("python/bin/python3", tarfile.SYMTYPE, "python3.12"),
        member("python/bin/twin", tarfile.LNKTYPE, "python/bin/python3.12"),
        member("python/bin/pip3", mode=0o755),
        member("python/lib/python3.12/os.py", mode=0o600),
        member("python/lib/python3.12/__pycache__/os.cpython-312.pyc"),
        member("python/lib/python3.12/test/a.py"),
        member("python/lib/python3.12/site-packages/pip/a.py"),
        member("python/lib/libpython3.12.a"),
    )
    assert [(e[0], e[1], e[2]) for e in tree] == [
        ("l", f"{PREFIX}/bin/python3", "python3.12"),
        ("f", f"{PREFIX}/bin/python3.12", 0o755),
        ("h", f"{PREFIX}/bin/twin", f"{PREFIX}/bin/python3.12"),
        ("f", f"{PREFIX}/lib/python3.12/os.py", 0o644),
    ]


@pytest.mark.parametrize(
    "bad",
    [
        member("python/lib/out", tarfile.SYMTYPE, "../../../etc/passwd"),
        member("python/lib/abs", tarfile.SYMTYPE, "/etc/passwd"),
        member("python/dev", tarfile.CHRTYPE),
        member("python/twin", tarfile.LNKTYPE, "python/nowhere"),
        member("python/bin/python3.12/below"),
        member("python/bin/python3", tarfile.SYMTYPE, "\udcff"),
        member("python/lib/\udcff"),
    ],
)
def test_an_archive_that_reaches_out_or_has_names_that_are_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: tarfile.TarInfo
) -> None:
    with pytest.raises(PxError, match="PX903"):
        unpacked(tmp_path, monkeypatch, bad)
    assert not list(Store(Home(tmp_path / "home")).objects())


def test_an_archive_without_the_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pythons, "fetch", lambda *a, **k: archive(tmp_path, member("python/README")))
    with pytest.raises(PxError, match=r"has no python3\.12"):
        ensure_python(Context(Store(Home(tmp_path / "home"), offline=True), tmp_path), CHOICE, "glibc-2.36")
