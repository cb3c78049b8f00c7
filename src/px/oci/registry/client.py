"""The client for one OCI registry: requests with login and retries, and errors that say what to check."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urljoin, urlsplit

import urllib3

from px import bounds, console
from px.errors import PxError
from px.http import FetchError, Http, Retry
from px.oci.documents import INDEX_TYPES, MANIFEST_TYPES, check_digest, digest_of
from px.oci.registry.auth import Authenticator, Credentials, find_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from urllib3.response import BaseHTTPResponse

    from px.oci.registry.reference import Reference

T = TypeVar("T")

ATTEMPTS = 5
# Answers after which the same request may succeed a moment later.
_PASSING = (408, 429, 500, 502, 503, 504)
_LONGEST_WAIT = 20.0
_HOPS = 5
_PORTS = {"http": 80, "https": 443}
# Only redirects are left to urllib3: `attempt` does all other retries.
_REDIRECTS = Retry(total=None, connect=0, read=0, redirect=5, status=0, other=0)
# CA certificates for single registries: docker's directory, and that of podman and skopeo.
_CERTIFICATES = ("/etc/docker/certs.d", "/etc/containers/certs.d")


class RegistryError(Exception):
    """The registry gave an unexpected answer.  ``reason`` can be shown to the user."""

    def __init__(self, reason: str, status: int, *, retry_after: float = 0.0):
        super().__init__(reason)
        self.reason, self.status, self.retry_after = reason, status, retry_after


@dataclass(frozen=True)
class Body:
    """The body and headers of a request.  The content is a function if it may have to be sent twice."""

    content: bytes | Callable[[], Iterable[bytes]] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Registry:
    """One repository in one registry."""

    def __init__(
        self,
        reference: Reference,
        *,
        insecure: bool = False,
        http: Http | None = None,
        credentials: Credentials | None = None,
        patience: float = 1.0,
    ):
        host = reference.endpoint
        self.reference = reference
        self.host, self.path = host, reference.path
        self._plain = insecure or reference.is_loopback
        # Http knows hosts without their port.
        name = urlsplit(f"//{host}").hostname or host
        self._http = http or Http(
            insecure_hosts=frozenset({name} if insecure else ()), extra_ca=_certificate(host), connections=8
        )
        found = credentials or find_credentials(host, path=self.path)
        self._auth = Authenticator(self._http, host, found, plain_allowed=self._plain)
        self._base = f"https://{host}"
        self._patience = patience
        self._connected = False

    @property
    def scope(self) -> str:
        return f"repository:{self.path}:pull,push"

    def connect(self) -> None:
        """Find out whether the registry speaks https or http, and whether it can be reached."""
        if not self._connected:
            self.attempt(self._find_scheme, attempts=3)
            self._connected = True

    def _find_scheme(self) -> None:
        try:
            self._ping()
        except FetchError as e:
            # http only for a registry on this machine, or if the user asked for it.  If that fails too, the user sees
            # the error of https.
            if not self._plain or e.status is not None:
                raise
            self._base = f"http://{self.host}"
            try:
                self._ping()
            except (FetchError, RegistryError):
                self._base = f"https://{self.host}"
                raise e from None

    def _ping(self) -> None:
        answer = self.request("GET", f"{self._base}/v2/", scope="")
        # A registry that refuses /v2/ itself, or does not have it, may still serve the repository.
        if answer.status not in (200, 401, 403, 404):
            raise self.refusal(answer)

    def url(self, rest: str) -> str:
        return f"{self._base}/v2/{self.path}/{rest}"

    def request(
        self, method: str, url: str, body: Body | None = None, *, scope: str | None = None, stream: bool = False
    ) -> BaseHTTPResponse:
        """Send one request.  Logs in if the registry asks for it, and follows redirects."""
        try:
            return self._request(method, url, body, self.scope if scope is None else scope, stream=stream)
        except ValueError as e:  # of urllib.parse
            raise FetchError(f"{self.host} sent an address that is none: {e}") from e

    def _request(self, method: str, url: str, body: Body | None, scope: str, *, stream: bool) -> BaseHTTPResponse:
        url = self._safe(urljoin(self._base, url))
        for _ in range(_HOPS):
            answer = self._authorised(method, url, body or Body(), scope, stream=stream)
            where = answer.headers.get("Location")
            if where:  # RFC 9110: it may be relative to the address that was asked
                where = answer.headers["Location"] = urljoin(url, where)
            # urllib3 follows redirects of GET and HEAD; these two also come for POST, PATCH and PUT.
            if answer.status not in (307, 308) or not where:
                break
            answer.drain_conn()
            url = self._safe(where)
        return answer

    def _authorised(self, method: str, url: str, body: Body, scope: str, *, stream: bool) -> BaseHTTPResponse:
        # Blobs are often on another host (a CDN, S3): it must not get the registry's password.
        ours = self.is_ours(url)
        for first in (True, False):
            sent = {**body.headers, **(self._auth.header(scope) if ours else {})}
            answer = self._http.request(
                method,
                url,
                headers=sent,
                # The second turn needs a new stream: the first has used it up.
                body=body.content() if callable(body.content) else body.content,
                retries=_REDIRECTS if method in ("GET", "HEAD") else False,
                stream=stream,
            )
            asked = answer.headers.get("WWW-Authenticate", "")
            if answer.status != 401 or not ours or not first or not self._auth.challenged(asked, scope, sent):
                return answer
            answer.drain_conn()
        raise AssertionError  # the second turn returns

    def is_ours(self, url: str) -> bool:
        """Whether an address belongs to the registry, so that it may get the password.

        Some registries name the port even if it is the usual one (``https://HOST:443/``).
        """
        return _place(url) == _place(self._base)

    def _safe(self, url: str) -> str:
        """The address that the registry sent, but never http if the registry itself uses https."""
        parts = urlsplit(url)
        if parts.scheme == "http" and self._base.startswith("https:"):
            if parts.netloc.split(":")[0] != self.host.split(":")[0]:
                raise FetchError(f"{self.host} redirects px to an unencrypted address at {parts.netloc}")
            # A registry behind a TLS proxy often does not know it, and gives http addresses for itself.
            return parts._replace(scheme="https", netloc=self.host).geturl()
        return url

    def attempt(self, action: Callable[[], T], *, attempts: int = ATTEMPTS) -> T:
        """Call ``action`` until it succeeds, with growing pauses, or until a further try is useless."""
        for n in range(attempts):
            try:
                return action()
            except (FetchError, RegistryError) as e:
                if n + 1 == attempts or not passing(e):
                    raise
                self.pause(n, e)
        raise AssertionError  # the loop returns or raises

    def pause(self, n: int, error: FetchError | RegistryError) -> None:
        # Random, so that the uploads that failed together do not all come back at the same moment.
        asked = error.retry_after if isinstance(error, RegistryError) else 0.0
        seconds = min(_LONGEST_WAIT, max(asked, 0.4 * 2**n * (1 + random.random() / 2))) * self._patience  # noqa: S311
        console.debug(f"{self.host}: {error.reason}; trying again in {seconds:.1f} s")
        with console.waiting(f"Trying again soon, because {self.host} says: {error.reason}"):
            time.sleep(seconds)

    def has_blob(self, digest: str) -> bool:
        def head() -> bool:
            answer = self.request("HEAD", self.url(f"blobs/{check_digest(digest)}"))
            if answer.status in (200, 404):
                return answer.status == 200
            raise self.refusal(answer)

        try:
            return self.attempt(head, attempts=3)
        except RegistryError as e:
            # A registry whose disk was full may have written half of its record of a blob, which it cannot read now.
            # Sending the blob again repairs that.  If something else is wrong, the upload fails and says so.
            if e.status < 500:
                raise
            console.debug(f"{self.host}: cannot say whether it has {digest[7:19]}: {e.reason}")
            return False

    def blob(self, digest: str) -> Iterator[bytes]:
        """The bytes of a blob.  The caller must check the digest."""
        answer = self.request("GET", self.url(f"blobs/{check_digest(digest)}"), stream=True)
        if answer.status != 200:
            raise self.refusal(answer)
        try:
            yield from answer.stream(1 << 18, decode_content=False)
        except urllib3.exceptions.HTTPError as e:
            raise FetchError(f"the connection broke: {e}") from e
        finally:
            answer.release_conn()

    def manifest(self, name: str) -> tuple[bytes, str] | None:
        """(content, media type) of the manifest with a tag or digest; None if the registry has none."""

        def get() -> tuple[bytes, str] | None:
            # Without Accept some registries convert a manifest to Docker's oldest format, with another digest.
            accept = ", ".join((*MANIFEST_TYPES, *INDEX_TYPES))
            answer = self.request("GET", self.url(f"manifests/{name}"), Body(headers={"Accept": accept}))
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise self.refusal(answer)
            return answer.data, answer.headers.get("Content-Type", "").partition(";")[0].strip()

        found = self.attempt(get)
        if found is not None and name.startswith("sha256:") and digest_of(found[0]) != name:
            raise FetchError(f"{self.host} sent a document that is not {name}")
        return found

    def put_manifest(self, name: str, content: bytes, media_type: str) -> Mapping[str, str]:
        def put() -> Mapping[str, str]:
            answer = self.request("PUT", self.url(f"manifests/{name}"), Body(content, {"Content-Type": media_type}))
            if answer.status not in (200, 201, 202):
                raise self.refusal(answer)
            return answer.headers

        return self.attempt(put)

    def refusal(self, answer: BaseHTTPResponse) -> RegistryError:
        said = _said(answer)
        reason = f"the registry answered {answer.status} {answer.reason or ''}".rstrip() + (
            f" ({said})" if said else ""
        )
        return RegistryError(console.printable(reason), answer.status, retry_after=_retry_after(answer))

    def failure(self, doing: str, error: FetchError | RegistryError, *, packed: bool = True) -> PxError:
        """The error for the user: what failed, and what to check in this case."""
        return PxError(
            "PX903",
            problem=f"{doing} failed: {console.redact(error.reason)}",
            why=self._why(error, packed=packed),
            fix=self._fixes(error),
            whole_fix=True,
        )

    def unreadable(self, error: FetchError | RegistryError) -> PxError:
        """The error for the user if an image cannot be read from this registry."""
        why = self._why(error) if error.status in (401, 403) else []
        problem = console.redact(error.reason)
        return PxError("PX923", source=str(self.reference), problem=problem, why=why, fix=self._fixes(error))

    def _why(self, error: FetchError | RegistryError, *, packed: bool = True) -> list[str]:
        found = self._auth.credentials
        if error.status in (401, 403):
            who = f"the credentials from {found.source}" if found else "no credentials (none were found)"
            return [f"px asked {self.host} with {who}."]
        kept = "The image is complete on this machine; the next push sends only what the registry lacks."
        return [kept] if packed else []

    def _fixes(self, error: FetchError | RegistryError) -> list[str]:
        if error.status == 401:
            return [
                f"Log in: docker login {self.reference.host}",
                "Or set PX_REGISTRY_USERNAME and PX_REGISTRY_PASSWORD.",
            ]
        if error.status == 403:
            return [f"Ask the owner of {self.path} for the right to push, or log in as a user who has it."]
        if error.status == 404:
            return [f"Check the name {self.path!r}. In some registries a repository must be created before a push."]
        if error.status is not None:
            return [f"Check the logs and the disk of the registry {self.host}, then run the command again."]
        if "certificate" in error.reason.lower():
            return ["Tell px the CA that signed the registry's certificate: export PX_EXTRA_CA_CERTS=FILE"]
        return [f"Check that the registry is up and reachable from here: curl -i {self._base}/v2/"]


def passing(error: FetchError | RegistryError) -> bool:
    """Whether the same request may succeed a moment later."""
    # Without a status the connection failed.  That may pass, but a wrong certificate will not.
    if error.status is not None:
        return error.status in _PASSING
    return "certificate" not in error.reason.lower() and "not an https address" not in error.reason


def _said(answer: BaseHTTPResponse) -> str:
    """The first error in the registry's answer, shortened."""
    try:
        error = bounds.parse_json(answer.data)["errors"][0]
        detail = error.get("detail")
        # {"errors": [{"code": ..., "message": ..., "detail": ...}]}: the distribution specification's format.
        parts = [error.get("code"), error.get("message"), json.dumps(detail, sort_keys=True) if detail else None]
        return console.redact(": ".join(str(part) for part in parts if part))[:300]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, urllib3.exceptions.HTTPError):
        return ""


def _retry_after(answer: BaseHTTPResponse) -> float:
    """The seconds to wait.  RFC 9110: the header has a number of seconds, or a date."""
    asked = answer.headers.get("Retry-After", "0")
    try:
        return float(asked) if asked.isdecimal() else parsedate_to_datetime(asked).timestamp() - time.time()
    except (ValueError, OverflowError, LookupError, TypeError):
        return 0.0


def _place(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _certificate(host: str) -> Path | None:
    """The CA certificate for this registry in docker's or podman's configuration (``certs.d/HOST/ca.crt``)."""
    for folder in _CERTIFICATES:
        path = Path(folder) / host / "ca.crt"
        if path.is_file():
            return path
    return None
