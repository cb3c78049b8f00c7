"""The only HTTP client in px.  It pools connections, retries, and takes proxies and certificates from the environment.

Credentials never reach a log or an error text: URLs pass through :func:`px.console.redact`, and headers are never
printed.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import ssl
import threading
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from px import __version__, bounds, console, online

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from urllib3.response import BaseHTTPResponse

# A clock that is wrong is said with the certificate that it makes invalid, and not for every connection.
urllib3.disable_warnings(urllib3.exceptions.SystemTimeWarning)
CHUNK = 1 << 18
CONNECT = 15.0
_READ = 60.0
# How much of an answer is read at a time.  Compressed, it may become a thousand times as much.
_PIECE = 1 << 16
_LONGEST_WAIT = 60  # seconds that a server may ask for


class Retry(urllib3.Retry):
    """urllib3's rules for further tries, but a server cannot make px wait for a day."""

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        found = super().get_retry_after(response)
        return None if found is None else min(found, _LONGEST_WAIT)


# These answers often go away by themselves.  After the last try urllib3 returns the answer instead of raising
# (raise_on_status), so that the caller can show its status.
# A server that cannot be reached at all is tried less often: mostly the network is off, and the user waits.
_RETRIES = Retry(
    total=4,
    connect=2,
    backoff_factor=0.4,
    backoff_jitter=0.3,
    status_forcelist=(429, 500, 502, 503, 504),
    raise_on_status=False,
)
# Where Debian, Fedora and Alpine keep their certificates.  A Python that was built for another distribution
# (python-build-standalone, for example) may look for them in a place that does not exist here.
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


class FetchError(Exception):
    """A request or download failed.  ``reason`` has no secrets and can be shown to the user."""

    def __init__(
        self,
        reason: str,
        *,
        status: int | None = None,
        actual_sha256: str | None = None,
        retry_after: float | None = None,
        began: bool = False,
        unreachable: bool = False,
    ):
        super().__init__(reason)
        self.began = began
        """Whether the answer had begun: urllib3 has not tried again then."""
        self.reason = reason
        self.status = status
        self.actual_sha256 = actual_sha256
        self.retry_after = retry_after
        """How many seconds the server asks to wait, if it does."""
        self.unreachable = unreachable
        """No connection was made, after all tries."""


@dataclass(frozen=True)
class Download:
    """A pinned file: its address, and the hash and size that it must have."""

    url: str
    sha256: str
    size: int | None = None
    on_bytes: Callable[[int], None] = lambda _: None


class Http:
    """The connections of one px process.  Many threads may use it at once."""

    def __init__(
        self,
        *,
        insecure_hosts: frozenset[str] = frozenset(),
        connections: int = 8,
        extra_ca: Path | None = None,
        retries: urllib3.Retry = _RETRIES,
        connect: float = CONNECT,
        read: float | None = None,
    ):
        """``connect`` and ``read`` are how many seconds a server has to accept a connection, and to send more."""
        self._retries = retries
        self._connect = connect
        self._read = _timeout(os.environ.get("PX_HTTP_TIMEOUT", "")) if read is None else read
        self._insecure = insecure_hosts
        self._extra_ca = extra_ca
        self._connections = connections
        self._pools: dict[tuple[str | None, bool, int], urllib3.PoolManager] = {}
        """A copy of this process has connections of its own."""
        self._lock = threading.Lock()

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] | None = None,
        retries: urllib3.Retry | bool | None = None,
        stream: bool = False,
        connect: float | None = None,
        limit: int | None = None,
    ) -> BaseHTTPResponse:
        """Send one request and return the answer, whatever its status.

        A server that cannot be reached is a :class:`FetchError`, and so is an answer of more than ``limit`` bytes
        (:data:`px.bounds.DOCUMENT`).  With ``stream`` the caller reads the answer, and bounds it.
        """
        plain, found = split_credentials(url)
        _refuse_lost(plain)
        retries = self._retries if retries is None else retries
        timeout = urllib3.Timeout(connect=connect or self._connect, read=self._read)
        sent = {"User-Agent": f"px/{__version__}", **found, **(headers or {})}
        try:
            with console.waiting(f"Waiting for {urlsplit(plain).hostname}"):
                answer = self._pool(plain).request(
                    method,
                    plain,
                    headers=sent,
                    body=body,
                    retries=retries,
                    preload_content=False,
                    timeout=timeout,
                )
            return answer if stream else _whole(answer, bounds.DOCUMENT if limit is None else limit)
        except (HTTPError, OSError, ValueError) as e:
            raise FetchError(console.printable(console.redact(_reason(e))), unreachable=_is_unreachable(e)) from e

    def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> bytes:
        """The content of an index or package.  If the connection breaks in the middle of it, it is fetched again."""
        for left in (2, 1, 0):
            try:
                answer = self.request("GET", url, headers=headers, limit=bounds.INDEX)
                break
            except FetchError as e:
                if not left or e.status is not None or not e.began:
                    raise
        if answer.status != 200:
            raise FetchError(
                f"the server answered {answer.status} {answer.reason or ''}".rstrip(), status=answer.status
            )
        return answer.data

    def fetch(self, what: Download, destination: Path) -> int:
        """Download into ``destination``, a new file, and return its size.  A wrong hash is an error.

        If the connection breaks, the download starts again.  A whole file with a wrong hash is not fetched again.
        """
        for attempt in range(3):
            try:
                return self._fetch(what, destination)
            except FetchError as e:
                destination.unlink(missing_ok=True)
                # An answer with a status, and a server that is not there, was already repeated by _RETRIES.
                final = e.actual_sha256 is not None or e.status is not None or e.unreachable
                if final or attempt == 2:
                    raise
                console.debug(f"trying again after: {e.reason}")
        raise AssertionError  # the loop returns or raises

    def _fetch(self, what: Download, destination: Path) -> int:
        # The lock has the hash of the file as it is stored.  A server may compress it for the transfer, and the
        # hash of that would differ.
        answer = self.request("GET", what.url, headers={"Accept-Encoding": "identity"}, stream=True)
        digest, received = hashlib.sha256(), 0
        try:
            if answer.status != 200:
                # A connection with an unread answer cannot be used again.
                if len(answer.read(CHUNK, decode_content=False)) == CHUNK:
                    answer.close()
                raise FetchError(_answered(answer), status=answer.status, retry_after=_retry_after(answer))
            with destination.open("xb") as f:
                for chunk in answer.stream(CHUNK, decode_content=False):
                    f.write(chunk)
                    digest.update(chunk)
                    received += len(chunk)
                    # Stop here: a hostile server could otherwise fill the disk.
                    if what.size is not None and received > what.size:
                        problem = f"more than the {what.size} bytes that the lock says"
                        raise FetchError(problem, actual_sha256="(too long)")
                    what.on_bytes(len(chunk))
        except HTTPError as e:
            raise FetchError(f"the connection broke after {received} bytes: {_reason(e)}") from e
        finally:
            answer.release_conn()
        if what.size is not None and received < what.size:
            raise FetchError(f"only {received} of {what.size} bytes arrived")
        if digest.hexdigest() != what.sha256:
            raise FetchError("the hash differs", actual_sha256=digest.hexdigest())
        return received

    def _pool(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        # A proxy and the choice not to check certificates are properties of a pool, so each pair has its own.
        proxy = proxy_for(parts.scheme, parts.hostname or "")
        insecure = (parts.hostname or "") in self._insecure
        key = (proxy, insecure, os.getpid())
        with self._lock:
            if key not in self._pools:
                self._pools[key] = self._make_pool(proxy, insecure=insecure)
            return self._pools[key]

    def _make_pool(self, proxy: str | None, *, insecure: bool) -> urllib3.PoolManager:
        context = tls_context(self._extra_ca)
        if insecure:
            # The user asked for this host not to be checked.  A warning for every request would say nothing new.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        size = self._connections
        if proxy is None:
            # block=False: threads never wait for a connection; those beyond maxsize are closed after use.
            return urllib3.PoolManager(maxsize=size, block=False, ssl_context=context)
        plain, found = split_credentials(proxy)
        auth = {"proxy-authorization": found["Authorization"]} if found else None
        return urllib3.ProxyManager(plain, maxsize=size, ssl_context=context, proxy_headers=auth)


@cache  # so that it warns once
def _timeout(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) and float(text):
        return float(text)
    if text:
        console.warn(f"PX_HTTP_TIMEOUT={text[:20]} is not a number of seconds, so px takes {_READ:.0f}")
    return _READ


def _refuse_lost(url: str) -> None:
    """A host whose name nobody would answer for is not waited for; it may be the proxy's."""
    parts = urlsplit(url)
    proxy = proxy_for(parts.scheme, parts.hostname or "")
    host = parts.hostname if proxy is None else urlsplit(proxy).hostname
    if host and online.is_lost(host):
        raise FetchError(f"no name server answers, so {host} cannot be found", unreachable=True)


def _whole(answer: BaseHTTPResponse, limit: int) -> BaseHTTPResponse:
    """The same answer with all of its content, which may not have more than ``limit`` bytes."""
    content = bytearray()
    try:
        for piece in answer.stream(_PIECE, decode_content=True):
            content += piece
            if len(content) > limit:
                answer.close()
                raise FetchError("the answer is too large", status=answer.status)
    except HTTPError as e:
        raise FetchError(f"the connection broke: {_reason(e)}", began=True) from e
    finally:
        answer.release_conn()
    # As urllib3 would have made it.  The content is decoded, so its length need not be what the headers say.
    return urllib3.HTTPResponse(
        io.BytesIO(content),
        answer.headers,
        answer.status,
        reason=answer.reason,
        preload_content=False,
        decode_content=False,
        enforce_content_length=False,
    )


def tls_context(extra_ca: Path | None = None) -> ssl.SSLContext:
    """A context with the certificates of ``SSL_CERT_FILE``/``SSL_CERT_DIR``, OpenSSL's default or the distribution.

    ``PX_EXTRA_CA_CERTS`` and ``extra_ca`` name files with further certificates, for private registries and for
    networks that intercept TLS.
    """
    context = ssl.create_default_context()
    if not os.environ.get("SSL_CERT_FILE") and not context.cert_store_stats()["x509_ca"]:
        for bundle in _BUNDLES:
            if os.path.exists(bundle):
                context.load_verify_locations(bundle)
                break
    for more in (os.environ.get("PX_EXTRA_CA_CERTS"), extra_ca):
        if more:
            context.load_verify_locations(more)
    return context


def proxy_for(scheme: str, host: str) -> str | None:
    """The proxy for this host, from the variables that curl and uv read (HTTPS_PROXY, ALL_PROXY, NO_PROXY)."""
    from urllib.request import getproxies_environment, proxy_bypass

    proxies = getproxies_environment()
    if proxy_bypass(host):
        return None
    return proxies.get(scheme) or proxies.get("all")


def split_credentials(url: str) -> tuple[str, dict[str, str]]:
    """Remove ``user:password@`` from a URL; return the URL and the credentials as a header."""
    parts = urlsplit(url)
    if parts.username is None and parts.password is None:
        return url, {}
    host = parts.netloc.rpartition("@")[2]
    basic = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return parts._replace(netloc=host).geturl(), urllib3.make_headers(basic_auth=basic) | {}


def _reason(error: Exception) -> str:
    # urllib3's MaxRetryError wraps the error that says what happened.
    cause = getattr(error, "reason", None)
    said = str(cause if isinstance(cause, Exception) else error) or type(error).__name__
    # Not in the words of Python: HTTPSConnection(host='a.example', port=443): … [Errno 111] Connection refused
    said = re.sub(r"^\w+\(host='([^']*)', port=(\d+)\)(?=: )", r"\1:\2", re.sub(r"\[Errno -?\d+\] ", "", said))
    if "certificate has expired" in said or "certificate is not yet valid" in said:
        said += f"; the clock of this machine says {time.strftime('%Y-%m-%d')}"
    return said


def _is_unreachable(error: Exception) -> bool:
    return isinstance(getattr(error, "reason", error), NewConnectionError | ConnectTimeoutError)


def _answered(answer: BaseHTTPResponse) -> str:
    return f"the server answered {answer.status} {answer.reason or ''}".rstrip()


def _retry_after(answer: BaseHTTPResponse) -> float | None:
    # Servers may also send a date here; then it is as if they had sent nothing.
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else None
