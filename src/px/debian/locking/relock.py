"""Makes a base lock from signed indexes: choose every package that a base and its capabilities need, and pin it."""

from __future__ import annotations

import lzma
import tomllib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from px import DATA, console
from px.debian.lock import BaseLock, Closure, PinnedPackage
from px.debian.locking import release as releases
from px.debian.locking.index import Candidate, Index
from px.debian.locking.release import Release, UntrustedError
from px.debian.locking.solver import UnsolvableError, solve
from px.debian.mirror import keyring
from px.errors import PxError
from px.http import FetchError, Http

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from px.debian.mirror import Mirror

SEEDS = Path(DATA, "base-packages.toml")
ALPINE_SEEDS = Path(DATA, "alpine-packages.toml")
CAPABILITIES = Path(DATA, "capabilities.toml")
P = TypeVar("P")  # a package of an index: Debian's Candidate, or Alpine's Package
# A release and what was added to it later.  The newest version of a package may be in any of the three.
POCKETS = ("", "-updates", "-security")


@dataclass(frozen=True)
class Seeds:
    """The packages that a base starts from: one table of base-packages.toml."""

    name: str
    codename: str
    variant: str
    px_base_version: int
    architectures: tuple[str, ...]
    base: tuple[str, ...]
    compiler: tuple[str, ...]
    drop: frozenset[str]


def load_seeds(path: Path = SEEDS) -> dict[str, Seeds]:
    with path.open("rb") as f:
        raw = tomllib.load(f)
    return {
        name: Seeds(
            name,
            row["codename"],
            row["variant"],
            row["px_base_version"],
            tuple(row["architectures"]),
            (*row["python"], *row["utilities"]),
            tuple(row["compiler"]),
            frozenset(row["drop"]),
        )
        for name, row in raw.items()
    }


def load_capability_seeds(base: str, path: Path = CAPABILITIES) -> dict[str, Closure]:
    """The packages of each capability on this base, without their dependencies: the solver adds those."""
    with path.open("rb") as f:
        raw: dict[str, dict[str, Any]] = tomllib.load(f)
    return {
        name: Closure(tuple(row[base].get("runtime", ())), tuple(row[base].get("build", ())))
        for name, row in sorted(raw.items())
        if base in row
    }


@dataclass(frozen=True)
class Archive:
    """Where to read indexes and packages, which keys to trust, and which time it is."""

    mirror: Mirror
    keys: Path = field(default_factory=keyring)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    http: Http = field(default_factory=Http)


def relock(archive: Archive, seeds: Seeds, architecture: str, capabilities: Mapping[str, Closure]) -> BaseLock:
    """Read the archive's current indexes and pin everything that ``seeds`` and ``capabilities`` need."""
    return relock_with_index(archive, seeds, architecture, capabilities)[0]


def relock_with_index(
    archive: Archive, seeds: Seeds, architecture: str, capabilities: Mapping[str, Closure]
) -> tuple[BaseLock, Index]:
    """The lock, and the index that it was made from."""
    suites = [seeds.codename + pocket for pocket in POCKETS]
    found = [_suite(archive, suite, architecture, seeds.name) for suite in suites]
    index = Index([(suite, text) for suite, (_, text) in zip(suites, found, strict=True)])
    console.detail(f"{seeds.name} {architecture}: {len(index)} packages in {', '.join(suites)}")
    # The newest of the dates: the snapshot must have the packages of all three suites.
    return _pin_all(index, seeds, architecture, capabilities, max(r.date for r, _ in found)), index


def _suite(archive: Archive, suite: str, architecture: str, base: str) -> tuple[Release, str]:
    """The verified release of a suite and the text of its package index."""
    http, mirror = archive.http, archive.mirror
    root = f"{mirror.archive(suite)}/dists/{suite}"
    try:
        # Each step trusts only what the one before has checked: signature, suite and date, hash of the index.
        release = releases.parse(releases.verify(http.get(f"{root}/InRelease"), archive.keys))
        release.check_is(suite, now=archive.now)
        # By its hash: while a mirror is updated, the file at the plain path may already be a newer one.
        path = f"main/binary-{architecture}/Packages.xz"
        by_hash = f"main/binary-{architecture}/by-hash/SHA256/{release.entry(path)[1]}"
        packed = release.check(path, http.get(f"{root}/{by_hash}"))
        return release, lzma.decompress(packed).decode("utf-8")
    except FetchError as e:
        raise PxError(
            "PX900",
            base=base,
            problem=f"the index of {suite} cannot be fetched: {e.reason}",
            why=[f"The archive is {console.redact(mirror.archive(suite))}, from {mirror.origin}."],
            fix=["Check the network, or choose a mirror that has this release: export PX_DEBIAN_MIRROR=URL"],
            whole_fix=e.unreachable,
        ) from e
    except (UntrustedError, lzma.LZMAError) as e:
        raise PxError(
            "PX900",
            base=base,
            problem=f"the index of {suite} cannot be trusted: {e}",
            why=[f"It came from {console.redact(mirror.archive(suite))} ({mirror.origin}); px used none of it."],
            fix=["Try again later (the mirror may be updating), or use another one: export PX_DEBIAN_MIRROR=URL"],
        ) from e


def _pin_all(
    index: Index, seeds: Seeds, architecture: str, capabilities: Mapping[str, Closure], date: datetime
) -> BaseLock:
    chosen = choose(partial(solve, index), seeds, capabilities)
    pins = {name: _pin(candidate) for name, candidate in sorted(chosen.packages.items())}
    return chosen.lock(seeds, architecture, snapshot_date(date), pins)


@dataclass(frozen=True)
class Chosen(Generic[P]):
    """The packages of a base, of its compiler set and of its capabilities, by name."""

    base: Mapping[str, P]
    compiler: Mapping[str, P]
    closures: Mapping[str, Closure]
    packages: Mapping[str, P]
    """All packages of the three together."""

    def lock(self, seeds: Seeds, architecture: str, date: str, pins: dict[str, PinnedPackage]) -> BaseLock:
        return BaseLock(
            seeds.name,
            architecture,
            seeds.variant,
            seeds.px_base_version,
            seeds.codename,
            date,
            pins,
            tuple(self.base),
            tuple(self.compiler),
            dict(self.closures),
        )


def choose(
    solve: Callable[..., dict[str, P]],
    seeds: Seeds,
    capabilities: Mapping[str, Closure],
    absent: Callable[[PxError], None] | None = None,
) -> Chosen[P]:
    """Choose packages with ``solve``, Debian's or Alpine's.  What cannot be satisfied is PX900 or PX901.

    With ``absent``, a capability that cannot be satisfied is left out, and its error goes there.
    """
    try:
        base = solve(seeds.base, drop=seeds.drop)
        compiler = solve(seeds.compiler, drop=seeds.drop, installed=base)
    except UnsolvableError as e:
        raise PxError("PX900", base=seeds.name, problem=_said(e)) from e
    closures: dict[str, Closure] = {}
    packages = {**base, **compiler}
    for name, wanted in capabilities.items():
        # Each capability is solved by itself on top of the base, so that any set of them can be combined.
        try:
            runtime = solve(wanted.runtime, drop=seeds.drop, installed=base)
            # A builder has the base, the capability's runtime packages and the compiler: only the rest is listed.
            build = solve(wanted.build, drop=seeds.drop, installed={**base, **runtime, **compiler})
        except UnsolvableError as e:
            error = PxError("PX901", capability=name, base=seeds.name, problem=_said(e))
            if absent is None:
                raise error from e
            absent(error)
            continue
        closures[name] = Closure(tuple(runtime), tuple(build))
        packages |= runtime | build
    return Chosen(base, compiler, closures, packages)


def _said(error: UnsolvableError) -> str:
    asked = f" (needed by {' ← '.join(error.chain)})" if len(error.chain) > 1 else ""
    return error.problem + asked


def _pin(candidate: Candidate) -> PinnedPackage:
    row = candidate.fields
    return PinnedPackage(
        candidate.name,
        candidate.version,
        row["Architecture"],
        row["Filename"],
        int(row["Size"]),
        row["SHA256"],
        candidate.suite,
    )


def snapshot_date(newest: datetime) -> str:
    """A time at which the snapshot archive certainly has the packages of an index with the date ``newest``.

    The snapshot archive copies Debian's archive every few hours, and for a given time it serves the last copy before
    it.  So the time must be some hours after ``newest``.  The midnight after the next is late enough, and the archive
    keeps files that were superseded for longer than that.
    """
    midnight = newest.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=2)
    return f"{midnight:%Y%m%dT%H%M%SZ}"


def differences(old: BaseLock | None, new: BaseLock) -> list[str]:
    """What a new lock changes, one line each: packages (+ added, - removed, ~ other version), then sets."""
    before: Mapping[str, PinnedPackage] = old.packages if old is not None else {}
    lines = []
    for name in sorted({*before, *new.packages}):
        was, now = before.get(name), new.packages.get(name)
        if was is None and now is not None:
            lines.append(f"+ {now.label} ({now.suite})")
        elif now is None and was is not None:
            lines.append(f"- {was.label}")
        elif was is not None and now is not None and was != now:
            lines.append(f"~ {name} {was.version} -> {now.version} ({now.suite})")
    if old is not None:
        lines += _set_changes("base", old.base, new.base) + _set_changes("compiler", old.compiler, new.compiler)
        for name in sorted({*old.capabilities, *new.capabilities}):
            a, b = old.capabilities.get(name, Closure()), new.capabilities.get(name, Closure())
            lines += _set_changes(f"{name} runtime", a.runtime, b.runtime)
            lines += _set_changes(f"{name} build", a.build, b.build)
    return lines


def _set_changes(label: str, before: Collection[str], after: Collection[str]) -> list[str]:
    changes = _signed("+", set(after) - set(before)) + _signed("-", set(before) - set(after))
    return [f"  {label}: {' '.join(changes)}"] if changes else []


def _signed(sign: str, names: Iterable[str]) -> list[str]:
    return [sign + name for name in sorted(names)]
