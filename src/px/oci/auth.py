"""Who we are to a registry: credentials from the environment, docker's config and its helpers; tokens.

Secrets stay in objects that do not print them, and in headers, which are never logged.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from px import console
from px.errors import PxError
from px.http import FetchError
from px.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from px.http import Http

_CLIENT = "px"
_PARAMETER = re.compile(r'([a-zA-Z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCHEME = re.compile(r"(?:^|,)\s*([a-zA-Z][a-zA-Z0-9-]*)(?=$|\s+[a-zA-Z_]+\s*=)")
# Docker's config knows its own hub by the address of an API that is long gone.
_HUB = "registry-1.docker.io"
_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "docker.io")


@dataclass(frozen=True)
class Credentials:
    """A user and password, or a token; ``source`` says where they were found, without showing them."""

    source: str
    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    """A refresh token, as ``docker login`` keeps for some registries."""
    bearer: str = field(default="", repr=False)
    """A token to be sent as it is."""


@dataclass(frozen=True)
class Challenge:
    """What a registry asks for in ``WWW-Authenticate``."""

    scheme: str
    parameters: Mapping[str, str]

    @classmethod
    def parse(cls, header: str) -> Challenge:
        """Read the header; where it offers several ways, the one with tokens."""
        pieces = _SCHEME.split(header.strip())  # what is before the first, then schemes and their parameters in turn
        offered = dict(zip((name.lower() for name in pieces[1::2]), pieces[2::2], strict=True))
        scheme = "bearer" if "bearer" in offered else next(iter(offered), "")
        found = _PARAMETER.findall(offered.get(scheme, ""))
        return cls(scheme, {name.lower(): quoted or bare for name, quoted, bare in found})


def find_credentials(host: str, environ: Mapping[str, str] | None = None, *, path: str = "") -> Credentials | None:
    """The environment's (``PX_REGISTRY_…``), else docker's, else podman's credentials for a registry.

    ``path`` is the repository's: podman may have a login for a part of a registry (``HOST/team``).
    """
    env = os.environ if environ is None else environ
    if env.get("PX_REGISTRY_TOKEN"):
        return Credentials("PX_REGISTRY_TOKEN", bearer=env["PX_REGISTRY_TOKEN"])
    if env.get("PX_REGISTRY_USERNAME") and env.get("PX_REGISTRY_PASSWORD"):
        return Credentials("PX_REGISTRY_USERNAME", env["PX_REGISTRY_USERNAME"], env["PX_REGISTRY_PASSWORD"])
    for file in _config_files(env):
        found = _from_config(file, host, path)
        if found is not None:
            return found
    return None


def _config_files(env: Mapping[str, str]) -> list[Path]:
    home = Path(env.get("HOME") or Path.home())
    docker = Path(env["DOCKER_CONFIG"]) if env.get("DOCKER_CONFIG") else home / ".docker"
    files = [docker / "config.json"]
    if env.get("REGISTRY_AUTH_FILE"):
        files.append(Path(env["REGISTRY_AUTH_FILE"]))
    if env.get("XDG_RUNTIME_DIR"):
        files.append(Path(env["XDG_RUNTIME_DIR"]) / "containers" / "auth.json")
    files.append(home / ".config" / "containers" / "auth.json")
    return files


def _from_config(file: Path, host: str, path: str) -> Credentials | None:
    try:
        config: dict[str, Any] = json.loads(file.read_bytes())
        helpers, auths = dict(config.get("credHelpers") or {}), dict(config.get("auths") or {})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, AttributeError) as e:
        raise PxError(
            "PX903",
            problem=f"{file} cannot be read for registry credentials",
            why=["It is not readable, or not JSON as docker login writes it."],
            fix=[f"Make it again: docker login {host}"],
        ) from e
    keys = _keys(host)
    for key in keys:
        if key in helpers:
            return _ask_helper(str(helpers[key]), key)
    if config.get("credsStore"):
        for key in keys[:1] if host != _HUB else keys:
            found = _ask_helper(str(config["credsStore"]), key)
            if found is not None:
                return found
    parts = path.split("/") if path else []
    narrower = [f"{host}/{'/'.join(parts[:n])}" for n in range(len(parts), 0, -1)]
    return _from_auths(auths, [*narrower, *keys], file)


def _keys(host: str) -> list[str]:
    return [*_HUB_KEYS, host] if host == _HUB else [host]


def _from_auths(auths: Mapping[str, Any], keys: list[str], path: Path) -> Credentials | None:
    by_host = {_host_of(name): entry for name, entry in auths.items()} | dict(auths)
    for key in keys:
        entry = by_host.get(key)
        if not isinstance(entry, dict):
            continue
        if entry.get("identitytoken"):
            return Credentials(str(path), identity_token=str(entry["identitytoken"]))
        if entry.get("auth"):
            user, password = _decode(str(entry["auth"]), path, key)
            return Credentials(str(path), user, password)
        if entry.get("username"):
            return Credentials(str(path), str(entry["username"]), str(entry.get("password", "")))
    return None


def _host_of(name: str) -> str:
    """Old configs write ``https://host/v1/`` where new ones write ``host``; podman's ``host/team`` is less than it."""
    return urlsplit(name).netloc if "://" in name else re.sub(r"/(v[12]/?)?$", "", name)


def _decode(auth: str, path: Path, key: str) -> tuple[str, str]:
    try:
        user, _, password = base64.b64decode(auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as e:
        raise PxError(
            "PX903",
            problem=f"the credentials for {key} in {path} are damaged",
            fix=[f"Log in again: docker login {key}"],
        ) from e
    return user, password.rstrip("\0")


def _ask_helper(name: str, key: str) -> Credentials | None:
    program = f"docker-credential-{name}"
    try:
        answer = run([program, "get"], stdin=key.encode())
    except (FileNotFoundError, PermissionError):  # the latter if a directory of PATH may not be searched
        raise PxError(
            "PX903",
            problem=f"docker's config names the credential helper {program}, which is not installed",
            fix=[f"Install {program}, or remove it from docker's config.json."],
        ) from None
    if not answer.ok:
        console.debug(f"{program} has nothing for {key}")
        return None
    try:
        found = json.loads(answer.stdout)
        user, secret = str(found["Username"]), str(found["Secret"])
    except (ValueError, KeyError, TypeError):
        # Whatever it printed may hold a secret: it is not repeated.
        raise PxError("PX903", problem=f"{program} gave an answer that is not credentials") from None
    if user == "<token>":
        return Credentials(program, identity_token=secret)
    return Credentials(program, user, secret)


class Authenticator:
    """Makes the ``Authorization`` header for one registry, and a new one when the registry refuses it."""

    def __init__(self, http: Http, host: str, credentials: Credentials | None, *, plain_allowed: bool):
        self._http, self._host = http, host
        self.credentials = credentials
        self._plain_allowed = plain_allowed
        self._challenge: Challenge | None = None
        self._tokens: dict[str, str] = {}
        self._lock = threading.Lock()

    def header(self, scope: str) -> dict[str, str]:
        """What to send for ``scope``; nothing until the registry has asked.

        A scope is ``repository:PATH:pull,push``, or several of them with spaces between.
        """
        if self.credentials is not None and self.credentials.bearer:
            return {"Authorization": f"Bearer {self.credentials.bearer}"}
        if self._challenge is None:
            return {}
        if self._challenge.scheme == "basic":
            return self._basic()
        with self._lock:
            if scope not in self._tokens:
                self._tokens[scope] = self._fetch_token(scope)
            return {"Authorization": f"Bearer {self._tokens[scope]}"}

    def challenged(self, header: str, scope: str, sent: Mapping[str, str]) -> bool:
        """Take note of a refusal of what was ``sent``; whether asking again may help."""
        if self.credentials is not None and self.credentials.bearer:
            return False
        challenge = Challenge.parse(header)
        if challenge.scheme not in ("basic", "bearer"):
            return False  # it says no and does not say how: what it asked for before still holds, for other threads too
        with self._lock:
            self._challenge = challenge
            # Only the token that was refused: another thread may have a newer one by now.
            if sent.get("Authorization") == f"Bearer {self._tokens.get(scope)}":
                del self._tokens[scope]
        if challenge.scheme == "basic":
            return self.credentials is not None and "Authorization" not in sent
        return True

    def _basic(self) -> dict[str, str]:
        found = self.credentials
        if found is None or not found.username:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(f"{found.username}:{found.password}".encode()).decode()}

    def _fetch_token(self, scope: str) -> str:
        assert self._challenge is not None  # noqa: S101 - header() asks only after a challenge
        realm = self._challenge.parameters.get("realm", "")
        self._check_realm(realm)
        service = self._challenge.parameters.get("service", "")
        answer = self._ask(realm, {"service": service} if service else {}, scope)
        try:
            found = json.loads(answer)
            return str(found.get("token") or found["access_token"])
        except (ValueError, KeyError, AttributeError):
            raise FetchError(f"the token service of {self._host} gave an answer without a token") from None

    def _check_realm(self, realm: str) -> None:
        parts = urlsplit(realm)
        if parts.scheme == "https" and parts.netloc:
            return
        if parts.scheme == "http" and self._plain_allowed:
            return
        raise FetchError(f"{self._host} wants the password sent to {realm!r}, which is not an https address")

    def _ask(self, realm: str, query: dict[str, str], scope: str) -> bytes:
        found = self.credentials
        if found is not None and found.identity_token:
            form = {"grant_type": "refresh_token", "refresh_token": found.identity_token, "client_id": _CLIENT, **query}
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            body = urlencode(form | ({"scope": scope} if scope else {})).encode()
            answer = self._http.request("POST", realm, headers=headers, body=body)
        else:
            asked = urlencode([*query.items(), *(("scope", one) for one in scope.split())])
            answer = self._http.request("GET", realm + ("&" if "?" in realm else "?") + asked, headers=self._basic())
        if answer.status != 200:
            raise FetchError(f"the token service answered {answer.status}", status=answer.status)
        return answer.data
