"""The relock tool: against a signed archive of our own with every kind of damage, and against Debian's."""

from __future__ import annotations

import json
import platform
import subprocess
from typing import TYPE_CHECKING

import pytest

from px.cli import main as cli
from px.debian import lock as locks
from px.debian.locking import relock as relocking
from px.debian.locking.relock import Archive, Seeds, load_capability_seeds, load_seeds
from px.debian.mirror import from_environment, mirrors
from px.errors import PxError
from px.platforms import host_architecture
from tests.support.debian import Mirror, SignedArchive, serving, stanza
from tests.support.needs import lacks, need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from px.debian.lock import BaseLock, Closure

SEEDS = Seeds("debian-12", "bookworm", "py311", 1, ("amd64",), ("base", "tool"), ("gcc",), frozenset({"debconf"}))
PACKAGES = {
    "": [
        stanza("base", Depends="libx | debconf"),
        stanza("tool"),
        stanza("gcc"),
        stanza("libx"),
        stanza("libpq5", Depends="libx"),
    ],
    "-security": [stanza("libx", "1.0-1+deb12u1")],
}


@pytest.fixture
def archive() -> SignedArchive:
    return SignedArchive()


@pytest.fixture
def mirror(archive: SignedArchive) -> Iterator[Mirror]:
    with serving(Mirror()) as found:
        archive.publish(found, PACKAGES)
        yield found


def run(mirror: Mirror, archive: SignedArchive, path: Path, capabilities: dict[str, Closure] | None = None) -> BaseLock:
    (source,) = from_environment({"PX_DEBIAN_MIRROR": mirror.url})
    return relocking.relock(Archive(source, archive.keyring(path / "keys")), SEEDS, "amd64", capabilities or {})


def test_a_lock(mirror: Mirror, archive: SignedArchive, tmp_path: Path) -> None:
    lock = run(mirror, archive, tmp_path, {"postgres": locks.Closure(("libpq5",), ("libpq5",))})
    assert lock.base == ("base", "tool")
    assert lock.compiler == ("gcc",)
    assert "libpq5" in lock.capabilities["postgres"].runtime
    assert lock.packages["libx"].suite == "bookworm-security"


def failure(
    mirror: Mirror, archive: SignedArchive, path: Path, capabilities: dict[str, Closure] | None = None
) -> PxError:
    with pytest.raises(PxError) as caught:
        run(mirror, archive, path, capabilities)
    return caught.value


def test_a_signature_by_somebody_else(mirror: Mirror, tmp_path: Path) -> None:
    error = failure(mirror, SignedArchive(), tmp_path)
    assert error.code == "PX900"
    assert "the index of bookworm cannot be trusted: its signature is not good" in error.what
    assert error.fix


def test_a_release_that_was_changed(mirror: Mirror, archive: SignedArchive, tmp_path: Path) -> None:
    path = "dists/bookworm-security/InRelease"
    mirror.files[path] = mirror.files[path].replace(b"Origin: Debian", b"Origin: Nebian")
    assert "index of bookworm-security cannot be trusted" in failure(mirror, archive, tmp_path).what


def test_the_release_of_another_suite(mirror: Mirror, archive: SignedArchive, tmp_path: Path) -> None:
    mirror.files["dists/bookworm/InRelease"] = mirror.files["dists/bookworm-updates/InRelease"]
    assert "signed release of bookworm-updates, not of bookworm" in failure(mirror, archive, tmp_path).what


def test_an_index_that_was_changed_or_cut_off(mirror: Mirror, archive: SignedArchive, tmp_path: Path) -> None:
    path = next(p for p in mirror.files if p.startswith("dists/bookworm/main"))
    whole = mirror.files[path]
    mirror.files[path] = whole[:-10] + bytes([whole[-10] ^ 1]) + whole[-9:]
    assert "has sha256" in failure(mirror, archive, tmp_path).what
    mirror.files[path] = whole[:-10]
    assert (
        f"has {len(whole) - 10} bytes; the signed release says {len(whole)}" in failure(mirror, archive, tmp_path).what
    )


@pytest.mark.parametrize("status", ["404", "500"])
def test_a_mirror_without_the_index(status: str, mirror: Mirror, archive: SignedArchive, tmp_path: Path) -> None:
    mirror.faults["dists/bookworm/InRelease"] = status
    error = failure(mirror, archive, tmp_path)
    assert status in error.what
    assert mirror.url in "\n".join(error.why)
    assert any("PX_DEBIAN_MIRROR" in line for line in error.fix)


def test_a_package_that_is_missing(mirror: Mirror, archive: SignedArchive, tmp_path: Path) -> None:
    archive.publish(mirror, {"": [p for p in PACKAGES[""] if "Package: tool" not in p]})
    assert failure(mirror, archive, tmp_path).what.endswith("there is no package tool")
    error = failure(mirror, archive, tmp_path / "..", None)
    assert error.code == "PX900"


@pytest.mark.slow
def test_a_capability_whose_dependency_cannot_be_met(mirror: Mirror, archive: SignedArchive, tmp_path: Path) -> None:
    broken = [*PACKAGES[""], stanza("libbad", Depends="libworse"), stanza("libworse", Depends="libx (>= 9)")]
    archive.publish(mirror, {"": broken})
    error = failure(mirror, archive, tmp_path, {"bad": locks.Closure(("libbad",), ())})
    assert error.code == "PX901"
    assert "'bad' on base 'debian-12'" in error.what
    assert "libworse 1.0-1 depends on libx (>= 9) (needed by libworse ← libbad)" in error.what


@pytest.fixture(scope="module")
def debian() -> dict[str, BaseLock]:
    """Both bases locked from the real archive, as it is now."""
    archive = Archive(mirrors("")[0])
    return {
        name: relocking.relock(archive, seeds, host_architecture(), load_capability_seeds(name))
        for name, seeds in load_seeds().items()
    }


@pytest.mark.network
def test_debians_own_archive(debian: dict[str, BaseLock]) -> None:
    for name, lock in debian.items():
        assert lock.name == name
        assert len(lock.packages) > 500
        assert {p.suite.removeprefix(lock.codename) for p in lock.packages.values()} >= {"", "-security"}
        assert locks.decode(locks.encode(lock)) == lock


@pytest.mark.network
@pytest.mark.slow
def test_the_solver_agrees_with_apt(debian: dict[str, BaseLock], tmp_path: Path) -> None:
    """apt, on this host if it is the same Debian, chooses the same packages in the same versions."""
    release = platform.freedesktop_os_release()
    name = f"{release.get('ID')}-{release.get('VERSION_ID')}"
    need("apt of Debian 12 or 13")
    if name not in debian:
        lacks("apt of Debian 12 or 13", f"this is {name}")
    lock, seeds = debian[name], load_seeds()[name]
    wanted = {c: load_capability_seeds(name)[c].runtime for c in ("postgres", "pango", "imagecodecs")}
    for capability, packages in wanted.items():
        chosen = _apt({*seeds.base, *packages}, tmp_path)
        ours = {n: lock.packages[n].version for n in (*lock.base, *lock.capabilities[capability].runtime)}
        different = {n: (v, chosen.get(n)) for n, v in ours.items() if chosen.get(n) != v}
        assert not different, capability


def _apt(names: set[str], scratch: Path) -> dict[str, str]:
    """What apt would install on an empty machine, by lists of its own as fresh as ours: the archive moves every day."""
    options = [f"Dir::State::Lists={scratch}/lists", f"Dir::Cache={scratch}/cache", "APT::Sandbox::User=root"]
    options += ["Dir::State::status=/dev/null", "Debug::NoLocking=true"]
    apt = ["apt-get", *(word for option in options for word in ("-o", option))]
    if not (scratch / "lists").exists():
        for directory in ("lists/partial", "cache/archives/partial"):
            (scratch / directory).mkdir(parents=True)
        subprocess.run([*apt, "update"], capture_output=True, check=False)
    command = [*apt, "-s", "--no-install-recommends", "install", *sorted(names)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = (line.split() for line in done.stdout.splitlines() if line.startswith("Inst "))
    return {row[1]: row[2].lstrip("(") for row in rows}


@pytest.mark.network
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["base", "lock", "debian-12", "--architecture", host_architecture(), "--out", str(tmp_path)]
    assert cli.run([*arguments, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "ok"
    lock = locks.read(tmp_path, "debian-12", host_architecture())
    assert lock.base
    assert cli.run([*arguments, "--dry-run"]) == 0
    assert "0 changes" in capsys.readouterr().out
    assert cli.run(["base", "lock", "debian-99", "--json"]) == 125
    assert json.loads(capsys.readouterr().out)["details"]["code"] == "PX900"
    assert cli.run(["base", "lock", "debian-12", "--offline", "--out", str(tmp_path)]) == 125
    assert "offline" in capsys.readouterr().err
    assert cli.run([*arguments, "--architecture", "riscv64"]) == 125
