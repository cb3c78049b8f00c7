"""Credentials for private indexes, found where uv finds them; they are used in requests and nowhere else."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from px import process
from px.project.settings import read_toml
from px.warm.places import program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.project.settings import Settings


_KEYS = ("USERNAME", "PASSWORD")


@dataclass(frozen=True)
class Index:
    """An index as it is configured: a URL, maybe with credentials in it, and maybe a name."""

    url: str
    name: str = ""


class Credentials:
    """Answers which user name and password a URL needs, by the index that it belongs to."""

    def __init__(self, settings: Settings):
        self._settings = settings.tables

    @cached_property
    def _indexes(self) -> tuple[Index, ...]:
        return (*_from_environment(), *(i for settings in self._settings for i in _from_settings(settings)))

    @property
    def insecure_hosts(self) -> frozenset[str]:
        names = os.environ.get("UV_INSECURE_HOST", "").split()
        for settings in self._settings:
            names += settings.get("allow-insecure-host", [])
        return frozenset(name.partition(":")[0] for name in names)

    def authorize(self, url: str) -> str:
        """Return ``url`` with the credentials that it needs, if any are known."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.password is not None:
            return url
        found = self._find(url)
        if found is None:
            return url
        user, password = (quote(part, safe="") for part in found)
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{user}:{password}@{host}").geturl()

    def variables_from_keyring(self) -> dict[str, str]:
        """What a keyring knows about the named indexes, as uv's variables: for where no keyring can be asked."""
        found = {index.name: self._from_keyring(index.url) for index in self._indexes if index.name}
        pairs = ((_variable(name), login) for name, login in found.items() if login)
        return {f"{prefix}_{key}": value for prefix, login in pairs for key, value in zip(_KEYS, login, strict=True)}

    def _find(self, url: str) -> tuple[str, str] | None:
        # One host may serve several indexes, each with a password of its own: the nearest path is asked first.
        near = [index for index in self._indexes if _same_realm(index.url, url)]
        for index in sorted(near, key=lambda index: -_shared_path(index.url, url)):
            found = _from_variables(index.name) or _from_url(index.url) or self._from_keyring(index.url)
            if found is not None:
                return found
        return _from_netrc(urlsplit(url).hostname or "") or _from_login(url)

    def _from_keyring(self, url: str) -> tuple[str, str] | None:
        provider = os.environ.get("UV_KEYRING_PROVIDER") or next(
            (s["keyring-provider"] for s in self._settings if "keyring-provider" in s), "disabled"
        )
        user = urlsplit(url).username
        keyring = program("keyring")
        if provider != "subprocess" or not user or keyring is None:
            return None
        for service in (url, urlsplit(url).hostname or ""):
            done = process.run([keyring, "get", service, user])
            if done.ok and done.stdout.strip():
                return user, done.stdout.strip()
        return None


def _from_environment() -> Iterator[Index]:
    for variable in ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        for item in os.environ.get(variable, "").split():
            name, equals, url = item.partition("=")
            named = bool(equals) and "://" not in name
            yield Index(url, name) if named else Index(item)


def _from_settings(settings: dict[str, Any]) -> Iterator[Index]:
    for item in settings.get("index", ()):
        if isinstance(item, dict) and isinstance(item.get("url"), str):
            yield Index(item["url"], str(item.get("name", "")))
    for url in [settings.get("index-url"), *settings.get("extra-index-url", ())]:
        if isinstance(url, str):
            yield Index(url)


def _variable(name: str) -> str:
    return "UV_INDEX_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def _from_variables(name: str) -> tuple[str, str] | None:
    """``UV_INDEX_<NAME>_USERNAME`` and ``_PASSWORD``."""
    if not name:
        return None
    user, password = (os.environ.get(f"{_variable(name)}_{key}") for key in _KEYS)
    return (user or "", password or "") if user or password else None


def _from_url(url: str) -> tuple[str, str] | None:
    from urllib.parse import unquote

    parts = urlsplit(url)
    return (unquote(parts.username or ""), unquote(parts.password)) if parts.password is not None else None


def _from_netrc(host: str) -> tuple[str, str] | None:
    import netrc

    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    try:
        found = netrc.netrc(path).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return None
    return (found[0], found[2] or "") if found else None


def _from_login(url: str) -> tuple[str, str] | None:
    """What ``uv auth login`` stored for the service that the URL lies under."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    directory = Path(os.environ.get("UV_CREDENTIALS_DIR") or data / "uv" / "credentials")
    stored = read_toml(directory / "credentials.toml")
    fitting = [
        c
        for c in stored.get("credential", ())
        if c.get("scheme") == "basic" and _same_realm(c["service"], url) and _lies_under(url, c["service"])
    ]
    best = max(fitting, key=lambda c: len(c["service"]), default=None)
    return (str(best.get("username") or ""), str(best.get("password") or "")) if best else None


def _lies_under(url: str, service: str) -> bool:
    return f"{urlsplit(url).path}/".startswith(urlsplit(service).path.rstrip("/") + "/")


def _shared_path(one: str, other: str) -> int:
    """How many leading parts of their paths two URLs have in common."""
    parts = zip(urlsplit(one).path.split("/"), urlsplit(other).path.split("/"), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], parts))


def _same_realm(one: str, other: str) -> bool:
    first, second = urlsplit(one), urlsplit(other)
    return (first.scheme, first.hostname, first.port) == (second.scheme, second.hostname, second.port)
