"""Which CPython a sandbox gets when its base has none that fits, and its archive, fetched by uv.

uv says what it can download and from where, and downloads it: mirrors, proxies, certificates and caches are
those that the user has set up for uv.  Which patch release it shall be is px's to say, unless
the user has given uv a list of downloads of their own: then that list decides.

``data/pythons.toml`` pins one build of python-build-standalone for every minor version, so that the patch release of a
sandbox follows from the version of px, and not from the day or from the uv of a machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from px import DATA, console, process
from px.platforms import ARCHITECTURES, machine_of
from px.project import uv

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from px.project.context import Context

_LIST = ("python", "list", "--only-downloads", "--all-versions", "--all-platforms", "--all-arches")
_STABLE = re.compile(r"\d+\.\d+\.\d+")
_STANDALONE = re.compile(r"(?P<mirror>.*/)(?P<build>\d{8})/cpython-[\d.]+%2B(?P=build)-[^/]+\.tar\.gz")
# Settings that choose another list or mirror than px has just resolved.
_SOURCES = ("UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_DOWNLOADS_JSON_URL")
# With settings against downloads uv would list none.  Listing fetches nothing; what is fetched heeds them.
_NO_PREFERENCE = {"UV_PYTHON_DOWNLOADS": "manual", "UV_PYTHON_PREFERENCE": "managed"}
_PREFERENCES = ("UV_MANAGED_PYTHON", "UV_NO_MANAGED_PYTHON")


class UnavailableError(Exception):
    """There is no such Python to be had here; the text says why."""


@dataclass(frozen=True)
class Pin:
    """One pinned build."""

    version: str
    build: str
    """The day of the release that it is part of, such as 20250317."""
    sha256: dict[str, str]
    """By architecture, in Debian's word for it."""

    def archive(self, architecture: str) -> str:
        """The file name of its archive, as it is written in addresses."""
        machine = machine_of(architecture)
        return f"cpython-{self.version}%2B{self.build}-{machine}-unknown-linux-gnu-install_only_stripped.tar.gz"


@cache
def pins() -> dict[str, Pin]:
    """Version -> pin."""
    raw = tomllib.loads(Path(DATA, "pythons.toml").read_text(encoding="utf-8"))
    rows = [Pin(row["version"], row["build"], {a: row[a] for a in ARCHITECTURES if a in row}) for row in raw.values()]
    return {pin.version: pin for pin in rows}


@dataclass(frozen=True)
class Offer:
    """A build that uv can download."""

    version: str
    key: str
    """uv's name for it, such as cpython-3.12.9-linux-x86_64-gnu."""
    url: str


@dataclass(frozen=True)
class Choice:
    """One build of CPython for one architecture."""

    version: str
    architecture: str
    pin: Pin | None
    """Px's pin, if this is the build that it names."""
    url: str
    """Where uv finds it; empty where uv offers nothing."""

    @property
    def key(self) -> str:
        return f"cpython-{self.version}-linux-{machine_of(self.architecture)}-gnu"

    @property
    def sha256(self) -> str | None:
        return self.pin.sha256[self.architecture] if self.pin else None

    @property
    def identity(self) -> list[str]:
        """What names the archive before it is there."""
        return [self.sha256] if self.sha256 else [self.key, self.url]


def builtin_offers(architecture: str) -> dict[str, Offer]:
    """Version -> what the installed uv offers of its own accord, whatever its settings are."""
    return _offers(_listed(["--no-config"], None, _without(_SOURCES)), architecture)


def offers(context: Context, architecture: str) -> dict[str, Offer]:
    """Version -> what uv offers with the project's settings."""
    return _offers(_listed([], context.root, uv.environment()), architecture)


def _without(names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in uv.environment().items() if name not in names}


def _listed(flags: list[str], directory: Path | None, environment: dict[str, str]) -> list[dict[str, Any]]:
    environment = {k: v for k, v in environment.items() if k not in _PREFERENCES} | _NO_PREFERENCE
    done = process.run([uv.find_uv(), *flags, *_LIST, "--output-format", "json"], cwd=directory, env=environment)
    if not done.ok:
        raise UnavailableError(reason(done.stderr))
    listed: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return listed


def _offers(listed: list[dict[str, Any]], architecture: str) -> dict[str, Offer]:
    wanted = ("cpython", "linux", machine_of(architecture), "gnu", "default")
    found = {}
    for row in listed:
        is_wanted = tuple(row[k] for k in ("implementation", "os", "arch", "libc", "variant")) == wanted
        if is_wanted and row["url"] and _STABLE.fullmatch(row["version"]):
            found[row["version"]] = Offer(row["version"], row["key"], row["url"])
    return found


def choose(context: Context, architecture: str, accepts: Callable[[str], bool], exact: str | None) -> Choice:
    """The build for a project: the exact version it names, else the newest that it accepts of those pinned."""
    offered = offers(context, architecture)
    own_list = bool(offered) and offered.keys() != builtin_offers(architecture).keys()
    return select(offered, architecture, accepts, exact, {} if own_list else pins())


def select(
    offered: Mapping[str, Offer],
    architecture: str,
    accepts: Callable[[str], bool],
    exact: str | None,
    pinned: Mapping[str, Pin],
) -> Choice:
    """The rule behind :func:`choose`; without pins the offers themselves are what is chosen from."""
    candidates = [exact] if exact else list(pinned or offered)
    accepted = sorted(filter(accepts, candidates), key=_numbers)
    if not accepted:
        raise UnavailableError(f"none of {', '.join(sorted(candidates, key=_numbers)) or 'no versions'} fits")
    version = accepted[-1]
    pin = pinned.get(version)
    url = address(pin, architecture, offered) if pin else ""
    offer = offered.get(version)
    return Choice(version, architecture, pin, url or (offer.url if offer else ""))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def address(pin: Pin, architecture: str, offered: Mapping[str, Offer]) -> str:
    """Where a pinned build lies: beside the builds that uv offers, which may be older or newer ones."""
    name = pin.archive(architecture)
    for offer in offered.values():
        found = _STANDALONE.fullmatch(offer.url)
        if found:
            return f"{found['mirror']}{pin.build}/{name}"
    return ""


def fetch(context: Context, choice: Choice, scratch: Path) -> Path:
    """The archive of a build, downloaded and verified by uv, and by px where the build is pinned."""
    kept = os.environ.get("UV_PYTHON_CACHE_DIR") or os.fspath(scratch / "archives")
    flags = ["--no-bin", "--install-dir", os.fspath(scratch / "installed")]
    environment = uv.environment() | {"UV_PYTHON_CACHE_DIR": kept}
    if choice.pin and _url_of(context, choice) != choice.url:
        listing = scratch / "downloads.json"
        listing.write_text(json.dumps(_listing(choice)), encoding="utf-8")
        flags += ["--no-config", "--python-downloads-json-url", listing.as_uri()]
        environment = {k: v for k, v in environment.items() if k not in _SOURCES}
    doing = f"Fetching CPython {choice.version} for {choice.architecture}"
    console.info(f"{doing} …")
    asked = [uv.find_uv(), "--color", "never", "--no-progress", *(["--offline"] if context.offline else [])]
    command = [*asked, "python", "install", *flags, choice.key]
    done = process.run(command, cwd=context.root, env=environment, doing=doing)
    # uv keeps an archive before it has looked at its hash: only what it could install is verified.
    archive = _kept(Path(kept), choice) if done.ok else None
    if archive is None:
        console.detail(uv.explain(done.stderr))
        absent = "px is offline, and the archive is not in UV_PYTHON_CACHE_DIR"
        raise UnavailableError(absent if context.offline else reason(done.stderr))
    return archive


def _url_of(context: Context, choice: Choice) -> str:
    offer = offers(context, choice.architecture).get(choice.version)
    return offer.url if offer else ""


def _listing(choice: Choice) -> dict[str, object]:
    major, minor, patch = _numbers(choice.version)
    return {
        choice.key: {
            "name": "cpython",
            "arch": {"family": machine_of(choice.architecture), "variant": None},
            "os": "linux",
            "libc": "gnu",
            "major": major,
            "minor": minor,
            "patch": patch,
            "prerelease": "",
            "url": choice.url,
            "sha256": choice.sha256,
            "variant": None,
            "build": choice.pin.build if choice.pin else "",
        }
    }


def _kept(directory: Path, choice: Choice) -> Path | None:
    """The archive in uv's cache, whose names start with nine digits of the hash and spell ``+`` as ``-``."""
    name = choice.url.rpartition("/")[2].replace("%2B", "-").replace("+", "-")
    found = [p for p in directory.glob("*") if name and p.name.endswith(f"-{name}")]
    if choice.sha256:
        found = [p for p in found if _digest(p) == choice.sha256]
    return max(found, key=lambda p: p.stat().st_mtime_ns, default=None)


def _digest(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def reason(stderr: str) -> str:
    """uv's reason in one line: what failed, and the cause at the bottom of its list of causes."""
    lines = [line.strip().removeprefix("error: ") for line in uv.explain(stderr).splitlines()]
    causes = [line.removeprefix("cause: ") for line in lines[1:] if line.startswith("cause: ")]
    return f"{lines[0]}: {causes[-1]}" if causes else " ".join(lines)
