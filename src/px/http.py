"""The one HTTP client: pooled connections, proxies and certificates as the environment says, retries.

Credentials never reach a log or an error text: URLs pass through :func:`px.console.redact`, and headers
are never printed.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import threading
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from px import __version__, console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from urllib3.response import BaseHTTPResponse

CHUNK = 1 << 18
_RETRIES = urllib3.Retry(
    total=4, backoff_factor=0.4, backoff_jitter=0.3, status_forcelist=(429, 500, 502, 503, 504), raise_on_status=False
)
# Where distributions keep their certificates, for interpreters that were built for another one.
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


class FetchError(Exception):
    """A transfer that did not succeed; ``reason`` is fit to be shown."""

    def __init__(self, reason: str, *, status: int | None = None, actual_sha256: str | None = None):
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.actual_sha256 = actual_sha256


class Http:
    """Connections for one px process; safe to use from many threads."""

    def __init__(
        self, *, insecure_hosts: frozenset[str] = frozenset(), connections: int = 8, extra_ca: Path | None = None
    ):
        self._insecure = insecure_hosts
        self._extra_ca = extra_ca
        self._connections = connections
        self._pools: dict[tuple[str | None, bool], urllib3.PoolManager] = {}
        self._lock = threading.Lock()

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] | None = None,
        retries: urllib3.Retry | bool = _RETRIES,
        stream: bool = False,
    ) -> BaseHTTPResponse:
        """Send one request; what cannot be reached is a :class:`FetchError`, any status is an answer."""
        plain, found = split_credentials(url)
        sent = {"User-Agent": f"px/{__version__}", **found, **(headers or {})}
        try:
            return self._pool(plain).request(
                method, plain, headers=sent, body=body, retries=retries, preload_content=not stream
            )
        except (HTTPError, OSError, ValueError) as e:
            raise FetchError(console.redact(_reason(e))) from e

    def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> bytes:
        answer = self.request("GET", url, headers=headers)
        if answer.status != 200:
            raise FetchError(
                f"the server answered {answer.status} {answer.reason or ''}".rstrip(), status=answer.status
            )
        return answer.data

    def fetch(
        self,
        url: str,
        destination: Path,
        *,
        sha256: str,
        size: int | None = None,
        headers: Mapping[str, str] | None = None,
        on_bytes: Callable[[int], None] | None = None,
    ) -> int:
        """Download into ``destination`` (which is new) and return the size; a wrong hash is an error.

        A connection that breaks in the middle is tried again; a file that arrives whole but wrong is not.
        """
        for attempt in range(3):
            try:
                return self._fetch(url, destination, sha256, size, headers, on_bytes)
            except FetchError as e:
                destination.unlink(missing_ok=True)
                if e.actual_sha256 is not None or e.status is not None or attempt == 2:
                    raise
                console.debug(f"trying again after: {e.reason}")
        raise AssertionError  # the loop returns or raises

    def _fetch(
        self,
        url: str,
        destination: Path,
        sha256: str,
        size: int | None,
        headers: Mapping[str, str] | None,
        on_bytes: Callable[[int], None] | None,
    ) -> int:
        # The bytes on the wire are what the lock hashes: no transparent decompression.
        answer = self.request("GET", url, headers={**(headers or {}), "Accept-Encoding": "identity"}, stream=True)
        digest, received = hashlib.sha256(), 0
        try:
            if answer.status != 200:
                raise FetchError(_answered(answer), status=answer.status)
            with destination.open("xb") as f:
                for chunk in answer.stream(CHUNK, decode_content=False):
                    f.write(chunk)
                    digest.update(chunk)
                    received += len(chunk)
                    if size is not None and received > size:
                        raise FetchError(f"more than the {size} bytes that the lock says", actual_sha256="(too long)")
                    if on_bytes is not None:
                        on_bytes(len(chunk))
        except HTTPError as e:
            raise FetchError(f"the connection broke after {received} bytes: {_reason(e)}") from e
        finally:
            answer.release_conn()
        if size is not None and received < size:
            raise FetchError(f"only {received} of {size} bytes arrived")
        if digest.hexdigest() != sha256:
            raise FetchError("the hash differs", actual_sha256=digest.hexdigest())
        return received

    def _pool(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        proxy = proxy_for(parts.scheme, parts.hostname or "")
        insecure = (parts.hostname or "") in self._insecure
        with self._lock:
            if (proxy, insecure) not in self._pools:
                self._pools[proxy, insecure] = self._make_pool(proxy, insecure=insecure)
            return self._pools[proxy, insecure]

    def _make_pool(self, proxy: str | None, *, insecure: bool) -> urllib3.PoolManager:
        context = tls_context(self._extra_ca)
        if insecure:
            # The user named this host as one not to be checked; a warning per request tells nothing new.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        timeout = urllib3.Timeout(connect=15, read=float(os.environ.get("PX_HTTP_TIMEOUT", "60")))
        size = self._connections
        if proxy is None:
            return urllib3.PoolManager(maxsize=size, block=False, ssl_context=context, timeout=timeout)
        plain, found = split_credentials(proxy)
        auth = {"proxy-authorization": found["Authorization"]} if found else None
        return urllib3.ProxyManager(plain, maxsize=size, ssl_context=context, timeout=timeout, proxy_headers=auth)


def tls_context(extra_ca: Path | None = None) -> ssl.SSLContext:
    """Certificates: ``SSL_CERT_FILE``/``SSL_CERT_DIR``, else OpenSSL's default, else the distribution's bundle.

    ``PX_EXTRA_CA_CERTS`` and ``extra_ca`` name files with more of them, for private registries and for
    networks that look into TLS.
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
    """The proxy that the environment names for this host, in the way that curl and uv read it."""
    from urllib.request import getproxies_environment, proxy_bypass

    proxies = getproxies_environment()
    if proxy_bypass(host):
        return None
    return proxies.get(scheme) or proxies.get("all")


def split_credentials(url: str) -> tuple[str, dict[str, str]]:
    """Take ``user:password@`` out of a URL and return it as a header instead."""
    parts = urlsplit(url)
    if parts.username is None and parts.password is None:
        return url, {}
    host = parts.netloc.rpartition("@")[2]
    basic = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return parts._replace(netloc=host).geturl(), urllib3.make_headers(basic_auth=basic) | {}


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", None)
    return str(cause if isinstance(cause, Exception) else error) or type(error).__name__


def _answered(answer: BaseHTTPResponse) -> str:
    return f"the server answered {answer.status} {answer.reason or ''}".rstrip()
