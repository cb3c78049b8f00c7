"""Logging in to a registry: credentials from the environment, from docker and podman and their helpers; tokens.

Secrets are kept in fields that ``repr`` leaves out, and in headers, which are never logged.
"""

from __future__ import annotations

import base64
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from px import bounds, console
from px.errors import PxError
from px.http import FetchError, Retry
from px.oci.registry.reference import is_loopback
from px.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from px.http import Http

_CLIENT = "px"
_LONGEST = 4096  # characters of a challenge
# A refresh token is in the body, which urllib3 would send to wherever a redirect leads.
_NO_REDIRECTS = Retry(total=2, redirect=0, raise_on_redirect=False)
# WWW-Authenticate (RFC 9110, section 11.6.1): schemes, each followed by parameters, all separated by commas.
_PARAMETER = re.compile(r'([a-zA-Z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCHEME = re.compile(r"(?:^|,)\s*([a-zA-Z][a-zA-Z0-9-]*)(?=$|\s+[a-zA-Z_]+\s*=)")
# docker login stores the login for Docker Hub under the address of its old API, version 1.
_HUB = "registry-1.docker.io"
_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "docker.io")


@dataclass(frozen=True)
class Credentials:
    """A user and password, or a token.  ``source`` says where they come from and can be shown."""

    source: str
    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    """A refresh token.  ``docker login`` stores one for some registries."""
    bearer: str = field(default="", repr=False)
    """A token that is sent to the registry as it is."""


@dataclass(frozen=True)
class Challenge:
    """The way to log in that a registry names in ``WWW-Authenticate``."""

    scheme: str
    parameters: Mapping[str, str]

    @classmethod
    def parse(cls, header: str) -> Challenge:
        """Read the header.  If it offers several ways, take Bearer."""
        # The text before the first scheme, then schemes and their parameters in turns.
        # Real ones have some hundred characters; the expressions need the square of the length.
        pieces = _SCHEME.split(header[:_LONGEST].strip())
        offered = dict(zip((name.lower() for name in pieces[1::2]), pieces[2::2], strict=True))
        scheme = "bearer" if "bearer" in offered else next(iter(offered), "")
        found = _PARAMETER.findall(offered.get(scheme, ""))
        return cls(scheme, {name.lower(): quoted or bare for name, quoted, bare in found})


def find_credentials(host: str, environ: Mapping[str, str] | None = None, *, path: str = "") -> Credentials | None:
    """The credentials for a registry: from the environment (``PX_REGISTRY_…``), else docker's, else podman's.

    ``path`` is that of the repository: podman can have a login for a part of a registry (``HOST/team``).
    """
    env = os.environ if environ is None else environ
    # The environment overrides the logins of this machine.
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
    # Then podman's files, in the order of containers-auth.json(5).
    files = [docker / "config.json"]
    if env.get("REGISTRY_AUTH_FILE"):
        files.append(Path(env["REGISTRY_AUTH_FILE"]))
    if env.get("XDG_RUNTIME_DIR"):
        files.append(Path(env["XDG_RUNTIME_DIR"]) / "containers" / "auth.json")
    files.append(home / ".config" / "containers" / "auth.json")
    return files


def _from_config(file: Path, host: str, path: str) -> Credentials | None:
    try:
        config: dict[str, Any] = bounds.parse_json(file.read_bytes())
        helpers, auths = dict(config.get("credHelpers") or {}), dict(config.get("auths") or {})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, AttributeError) as e:
        raise PxError(
            "PX903",
            problem=f"px cannot read registry credentials from {file}",
            why=["The file is not readable, or it is not JSON in the format of docker login."],
            fix=[f"Write it again: docker login {host}"],
        ) from e
    # docker's order: a helper for this registry, then the helper for all registries, then the file itself.
    keys = _keys(host)
    for key in keys:
        if key in helpers:
            return _ask_helper(str(helpers[key]), key)
    if config.get("credsStore"):
        for key in keys[:1] if host != _HUB else keys:
            found = _ask_helper(str(config["credsStore"]), key)
            if found is not None:
                return found
    # podman: the login for the longest part of the path wins.
    parts = path.split("/") if path else []
    narrower = [f"{host}/{'/'.join(parts[:n])}" for n in range(len(parts), 0, -1)]
    return _from_auths(auths, [*narrower, *keys], file)


def _keys(host: str) -> list[str]:
    return [*_HUB_KEYS, host] if host == _HUB else [host]


def _from_auths(auths: Mapping[str, Any], keys: list[str], path: Path) -> Credentials | None:
    # Exact keys win over keys that only have the same host.
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
    """The host in a key of ``auths``.

    Old configs have ``https://host/v1/`` where new ones have ``host``.  podman's ``host/team`` stays as it is: it is a
    login for a part of the host only.
    """
    try:
        return urlsplit(name).netloc if "://" in name else re.sub(r"/(v[12]/?)?$", "", name)
    except ValueError:
        return name  # no address, so it is nobody's host


def _decode(auth: str, path: Path, key: str) -> tuple[str, str]:
    try:
        user, _, password = base64.b64decode(auth, validate=True).decode().partition(":")
    except ValueError as e:  # neither base64 nor text
        raise PxError(
            "PX903",
            problem=f"the credentials for {key} in {path} are damaged",
            fix=[f"Log in again: docker login {key}"],
        ) from e
    return user, password.rstrip("\0")  # as docker does


def _ask_helper(name: str, key: str) -> Credentials | None:
    program = f"docker-credential-{name}"
    try:
        answer = run([program, "get"], stdin=key.encode())
    except (FileNotFoundError, PermissionError):  # the latter if this user may not search a directory of PATH
        raise PxError(
            "PX903",
            problem=f"docker's config asks for the credential helper {program}, which is not installed",
            fix=[f"Install {program}, or remove it from docker's config.json."],
        ) from None
    if not answer.ok:
        console.debug(f"{program} has nothing for {key}")
        return None
    try:
        found = bounds.parse_json(answer.stdout)
        user, secret = str(found["Username"]), str(found["Secret"])
    except (ValueError, KeyError, TypeError):
        # Its output may contain a secret, so the error does not show it.
        raise PxError("PX903", problem=f"{program} gave an answer that px does not understand") from None
    if user == "<token>":  # docker's sign that the secret is a refresh token
        return Credentials(program, identity_token=secret)
    return Credentials(program, user, secret)


class Authenticator:
    """Makes the ``Authorization`` header for one registry, and a new one if the registry refuses it."""

    def __init__(self, http: Http, host: str, credentials: Credentials | None, *, plain_allowed: bool):
        self._http, self._host = http, host
        self.credentials = credentials
        self._plain_allowed = plain_allowed
        self._challenge: Challenge | None = None
        self._tokens: dict[str, str] = {}
        self._lock = threading.Lock()

    def header(self, scope: str) -> dict[str, str]:
        """The header for ``scope``.  It is empty until the registry has asked for a login.

        A scope is ``repository:PATH:pull,push``, or several of these with spaces between them.
        """
        if self.credentials is not None and self.credentials.bearer:
            return {"Authorization": f"Bearer {self.credentials.bearer}"}
        if self._challenge is None:
            return {}
        if self._challenge.scheme == "basic":
            return self._basic()
        # Locked during the request too: many uploads start at once, and one token is enough for all of them.
        with self._lock:
            if scope not in self._tokens:
                self._tokens[scope] = self._fetch_token(scope)
            return {"Authorization": f"Bearer {self._tokens[scope]}"}

    def challenged(self, header: str, scope: str, sent: Mapping[str, str]) -> bool:
        """Handle an answer 401 to what was ``sent``.  Returns whether a second try may succeed."""
        if self.credentials is not None and self.credentials.bearer:
            return False
        challenge = Challenge.parse(header)
        if challenge.scheme not in ("basic", "bearer"):
            # The answer does not say how to log in.  What an earlier answer said stays valid, also for other threads.
            return False
        with self._lock:
            self._challenge = challenge
            # Forget only the token that was refused: another thread may already have fetched a newer one.
            if sent.get("Authorization") == f"Bearer {self._tokens.get(scope)}":
                del self._tokens[scope]
        # Basic has no tokens to renew: if the password was sent and refused, sending it again is useless.
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
        # https://distribution.github.io/distribution/spec/auth/token/
        answer = self._ask(realm, {"service": service} if service else {}, scope)
        try:
            found = bounds.parse_json(answer)
            # The specification of tokens allows both names.
            token = found.get("token") or found["access_token"]
        except (ValueError, KeyError, AttributeError):
            token = None
        if not isinstance(token, str):
            raise FetchError(f"the token service of {self._host} did not send a token")
        return token

    def _check_realm(self, realm: str) -> None:
        # The registry chooses this address, and px sends the password there.
        try:
            scheme, host = urlsplit(realm).scheme, urlsplit(realm).hostname
        except ValueError:
            scheme, host = "", None
        if scheme == "https" and host:
            return
        asked = f"{self._host} wants the password sent to {realm[:200]!r}"
        if scheme != "http" or not self._plain_allowed:
            raise FetchError(f"{asked}, which is not an https address")
        # Who allows plain http does so for the registry: others have not been asked.  (This machine is one host.)
        own = urlsplit(f"//{self._host}").hostname or ""
        if host != own and not (is_loopback(host or "") and is_loopback(own)):
            raise FetchError(f"{asked}, which is not an https address, and another host")

    def _ask(self, realm: str, query: dict[str, str], scope: str) -> bytes:
        found = self.credentials
        # A refresh token needs OAuth2's POST.  A password, or no login at all, goes with a GET.
        if found is not None and found.identity_token:
            form = {"grant_type": "refresh_token", "refresh_token": found.identity_token, "client_id": _CLIENT, **query}
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            body = urlencode(form | ({"scope": scope} if scope else {})).encode()
            answer = self._http.request("POST", realm, headers=headers, body=body, retries=_NO_REDIRECTS)
        else:
            asked = urlencode([*query.items(), *(("scope", one) for one in scope.split())])
            answer = self._http.request("GET", realm + ("&" if "?" in realm else "?") + asked, headers=self._basic())
        if answer.status != 200:
            raise FetchError(f"the token service answered {answer.status}", status=answer.status)
        return answer.data
