"""An Alpine base from a repository that the tests build and sign themselves, out of real musl programs.

Alpine's own archive is not used: the packages have its format and a few of its names, not its content.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from px.alpine.apk import streams
from px.cli import main as cli
from px.errors import PxError
from px.home import Home
from px.sandbox.layers.base import ensure_base, known_bases, load_base_lock
from px.sandbox.layers.system import closure, ensure_system_layer
from px.store.objects import Store
from px.store.sources import find_source
from tests.support.alpine import KEY, Repository
from tests.support.debian import Mirror, serving, tar_member
from tests.support.needs import need, only_for
from tests.support.rootfs import run_in

if TYPE_CHECKING:
    from collections.abc import Iterator

HELLO = '#include <stdio.h>\nint greet(void);\nint main(void) { printf("%d\\n", greet()); return 0; }\n'
GREET = "int greet(void) { return 42; }\n"
# Prints the name that it was called by, as a multi-call program would look at it.
BUSYBOX = '#include <stdio.h>\nint main(int n, char **v) { puts(n ? v[0] : ""); return 0; }\n'
LOADER = "lib/ld-musl-x86_64.so.1"
SEEDS = """
["alpine-3.20"]
codename = "v3.20"
variant = "py312"
px_base_version = 1
architectures = ["amd64"]
python = ["python3", "hello"]
utilities = ["alpine-baselayout-data", "busybox", "musl"]
compiler = []
drop = []
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    only_for("x86-64", "the test's packages are for that machine")
    need("musl", "openssl")
    work = tmp_path_factory.mktemp("musl")
    for name, source in (("hello", HELLO), ("greet", GREET), ("busybox", BUSYBOX)):
        (work / f"{name}.c").write_text(source)
    _compile(work, "-shared", "-fPIC", "-Wl,-soname,libgreet.so.1", "-o", "libgreet.so.1", "greet.c")
    _compile(work, "-o", "hello", "hello.c", "libgreet.so.1")
    _compile(work, "-o", "busybox", "busybox.c")
    found = Repository(work / "repository")
    found.add("musl", [_file(LOADER, Path("/lib/x86_64-linux-musl/libc.so"))], provides="so:libc.musl-x86_64.so.1=1")
    found.add("libgreet", [_file("usr/lib/libgreet.so.1", work / "libgreet.so.1")], provides="so:libgreet.so.1=1.0")
    libc = "so:libc.musl-x86_64.so.1"
    found.add("hello", [_file("usr/bin/hello", work / "hello")], depends=f"{libc} so:libgreet.so.1")
    found.add(
        "busybox",
        [_file("bin/busybox", work / "busybox"), tar_member("etc/busybox-paths.d/busybox", b"/bin/ls\n/usr/bin/env\n")],
        depends=libc,
    )
    found.add("alpine-baselayout-data", _base_layout())
    found.add("python3", [tar_member("usr/bin/python3", kind=tarfile.SYMTYPE, to="python3.12")], version="3.12.3-r1")
    found.add("libextra", [tar_member("usr/lib/libextra.so.1", b"not a library")], depends=libc)
    return found


def _compile(work: Path, *arguments: str) -> None:
    subprocess.run(["musl-gcc", *arguments], cwd=work, check=True, capture_output=True)


def _file(path: str, source: Path) -> tuple[tarfile.TarInfo, bytes]:
    return tar_member(path, source.read_bytes(), mode=0o755)


def _base_layout() -> list[tuple[tarfile.TarInfo, bytes]]:
    return [
        tar_member("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
        tar_member("etc/group", b"root:x:0:\n"),
        tar_member("etc/shadow", b"root:*::0:::::\n", mode=0o640),
        tar_member("usr/lib/os-release", b'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.20.0\n'),
        tar_member("tmp", kind=tarfile.DIRTYPE, mode=0o1777),
    ]


@pytest.fixture
def mirror(repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Mirror]:
    seeds, capabilities = tmp_path / "seeds.toml", tmp_path / "capabilities.toml"
    seeds.write_text(SEEDS)
    capabilities.write_text('[extra]\nsummary = "x"\n[extra."alpine-3.20"]\nruntime = ["libextra"]\nbuild = []\n')
    monkeypatch.setattr("px.workflow.bases.ALPINE_SEEDS", seeds)
    monkeypatch.setattr("px.debian.locking.relock.load_capability_seeds.__defaults__", (capabilities,))
    monkeypatch.setenv("PX_ALPINE_KEYS", str(repository.directory / "keys"))
    with serving(Mirror()) as found:
        repository.publish(found.files)
        monkeypatch.setenv("PX_ALPINE_MIRROR", found.url)
        yield found


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PX_BASES", str(tmp_path / "locks"))
    return tmp_path / "locks"


def lock(locks: Path) -> int:
    return cli.run(["base", "lock", "alpine-3.20", "--out", str(locks), "--json"])


def test_locked_built_and_run(mirror: Mirror, locks: Path, store: Store, repository: Repository) -> None:
    assert lock(locks) == 0
    found = load_base_lock("alpine-3.20", "amd64")
    assert found.base == ("alpine-baselayout-data", "busybox", "hello", "libgreet", "musl", "python3")
    assert found.capabilities["extra"].runtime == ("libextra",)
    hello = repository.packages["hello-1.0-r0.apk"][0]
    assert found.packages["hello"].sha256 == hashlib.sha256(hello).hexdigest()
    base = ensure_base(store, found)
    assert base.python.full == "3.12.3"
    assert store.problems("sandbox-base", base.oid) == []
    assert run_in([base.tree], ["/usr/bin/hello"]).stdout == "42\n"
    assert run_in([base.tree], ["/bin/ls"]).stdout == "/bin/ls\n"
    assert (base.tree / "etc/passwd").read_text().splitlines()[-1] == "px:x:1000:1000::/home/px:/bin/sh"
    layer = ensure_system_layer(store, base, ["extra"])
    assert layer is not None
    assert (layer.tree / "usr/lib/libextra.so.1").is_file()
    database = (layer.tree / "lib/apk/db/installed").read_text()
    assert "P:hello\nV:1.0-r0\nA:x86_64\nL:MIT\no:hello\nF:usr/bin\nR:hello\n\n" in database
    assert database.endswith("F:usr/lib\nR:libextra.so.1\n\n")


def test_offline_it_is_built_from_the_store(
    mirror: Mirror, locks: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lock(locks) == 0
    found = load_base_lock("alpine-3.20", "amd64")
    first = ensure_base(store, found)
    store.discard("sandbox-base", first.oid)
    monkeypatch.delenv("PX_ALPINE_MIRROR")
    assert ensure_base(Store(store.home, offline=True), found).oid == first.oid


def failure(locks: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert lock(locks) == 125
    answer = json.loads(capsys.readouterr().out)
    assert answer["details"]["code"] == "PX900"
    return str(answer["message"])


def test_an_index_that_somebody_else_signed(
    mirror: Mirror, locks: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = Repository(tmp_path / "other")
    monkeypatch.setenv("PX_ALPINE_KEYS", str(other.directory / "keys"))
    assert f"its signature by {KEY} is not good" in failure(locks, capsys)
    (other.directory / "keys" / KEY).unlink()
    assert f"none of the keys in {other.directory / 'keys'} signed it" in failure(locks, capsys)


def test_an_index_that_was_changed(mirror: Mirror, locks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = "v3.20/main/x86_64/APKINDEX.tar.gz"
    whole = mirror.files[path]
    mirror.files[path] = whole[:-30] + bytes([whole[-30] ^ 1]) + whole[-29:]
    assert "cannot be trusted" in failure(locks, capsys)
    mirror.files[path] = whole[:-30]
    assert "ends too early" in failure(locks, capsys)


def test_a_package_that_the_index_does_not_name(
    mirror: Mirror, locks: Path, capsys: pytest.CaptureFixture[str], repository: Repository
) -> None:
    path = "v3.20/main/x86_64/hello-1.0-r0.apk"
    mirror.files[path] = repository.packages["busybox-1.0-r0.apk"][0]
    assert "hello-1.0-r0.apk is not the package that the signed index names" in failure(locks, capsys)
    mirror.faults[path] = "404"
    assert "hello-1.0-r0.apk cannot be fetched: the server answered 404" in failure(locks, capsys)


def test_without_a_mirror_or_keys(
    locks: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PX_ALPINE_MIRROR", raising=False)
    assert "does not know where Alpine's packages are" in failure(locks, capsys)
    monkeypatch.setenv("PX_ALPINE_MIRROR", "http://127.0.0.1:9/alpine")
    monkeypatch.setenv("PX_ALPINE_KEYS", "/nowhere")
    assert "PX_ALPINE_KEYS does not name a directory" in failure(locks, capsys)


def test_a_package_that_is_damaged_in_the_store(mirror: Mirror, locks: Path, store: Store) -> None:
    assert lock(locks) == 0
    found = load_base_lock("alpine-3.20", "amd64")
    base = ensure_base(store, found)
    store.discard("sandbox-base", base.oid)
    path = find_source(store, found.packages["musl"].sha256)
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(PxError) as caught:
        ensure_base(store, found)
    assert caught.value.code == "PX903"
    assert "musl 1.0-r0" in caught.value.what
    assert ensure_base(store, found).oid == base.oid


def test_a_list_of_mirrors(mirror: Mirror, locks: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is not there, one has an index that was changed and half of the packages, and the last one is whole."""
    index, hello = "v3.20/main/x86_64/APKINDEX.tar.gz", "v3.20/main/x86_64/hello-1.0-r0.apk"
    bad = Mirror({**mirror.files, index: mirror.files[index][:-8] + bytes(8), hello: b"no"})
    with serving(bad):
        monkeypatch.setenv("PX_ALPINE_MIRROR", f"http://127.0.0.1:9/alpine, {bad.url} {mirror.url}")
        assert lock(locks) == 0
        found = load_base_lock("alpine-3.20", "amd64")
        base = ensure_base(store, found)
    assert run_in([base.tree], ["/usr/bin/hello"]).stdout == "42\n"
    assert hello in bad.asked


def test_pins_in_pxs_home(mirror: Mirror, capsys: pytest.CaptureFixture[str], home: Home) -> None:
    assert cli.run(["base", "lock", "alpine-3.20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["details"]["directory"] == str(home.bases)
    assert load_base_lock("alpine-3.20", "amd64").packages["musl"].architecture == "x86_64"
    assert "alpine-3.20" in known_bases()
    with pytest.raises(PxError, match="no lock of it for arm64"):
        load_base_lock("alpine-3.20", "arm64")


def test_an_index_without_a_signature(mirror: Mirror, locks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = "v3.20/main/x86_64/APKINDEX.tar.gz"
    mirror.files[path] = streams(mirror.files[path])[1].packed
    assert "it is not signed" in failure(locks, capsys)


def test_a_version_that_has_left_the_mirror(mirror: Mirror, locks: Path, store: Store) -> None:
    assert lock(locks) == 0
    del mirror.files["v3.20/main/x86_64/hello-1.0-r0.apk"]
    with pytest.raises(PxError) as caught:
        ensure_base(store, load_base_lock("alpine-3.20", "amd64"))
    assert caught.value.code == "PX900"
    assert any("px base lock alpine-3.20" in line for line in caught.value.fix)
    assert not [line for line in caught.value.fix if "DEBIAN" in line or "snapshot" in line]


def test_a_capability_that_the_archive_lacks_is_left_out(
    mirror: Mirror, locks: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with (tmp_path / "capabilities.toml").open("a") as f:
        f.write('[gone]\nsummary = "x"\n[gone."alpine-3.20"]\nruntime = ["nowhere"]\nbuild = []\n')
    assert lock(locks) == 0
    assert "there is no package nowhere" in capsys.readouterr().err
    found = load_base_lock("alpine-3.20", "amd64")
    assert list(found.capabilities) == ["extra"]
    with pytest.raises(PxError, match="the base's lock has no packages for it"):
        closure(found, "gone")
