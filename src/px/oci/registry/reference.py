"""Names of images: ``HOST[:PORT]/PATH[:TAG][@DIGEST]``, and the default name of an image."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from px.errors import PxError

LOCAL_HOST = "px.local"
"""The host in default names.  No such machine exists: to be pushed, an image needs another name."""

_HOST = re.compile(
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*"
    r"|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
)
# The grammar of paths and tags is that of the distribution specification.
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# The host in an image's name, and the host that serves its API.
_ENDPOINTS = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}


@dataclass(frozen=True)
class Reference:
    """A parsed image name."""

    host: str
    """Empty for a name such as ``app:1``, which only this machine knows the image by."""
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def repository(self) -> str:
        return f"{self.host}/{self.path}" if self.host else self.path

    @property
    def for_containerd(self) -> str:
        """The whole name, as docker gives it to containerd, where ``app:1`` has a host too."""
        if self.host:
            return str(self)
        return f"docker.io/{'' if '/' in self.path else 'library/'}{self}"

    @property
    def endpoint(self) -> str:
        """The host (and port) to connect to."""
        return _ENDPOINTS.get(self.host, self.host)

    @property
    def is_local(self) -> bool:
        return self.host in ("", LOCAL_HOST)

    @property
    def is_loopback(self) -> bool:
        """Whether the registry is on this machine.  Then http is allowed, as docker does for localhost."""
        # An IPv6 address in brackets has colons of its own; only digits at the end are a port.
        name = self.host.rpartition(":")[0] if re.search(r":[0-9]+$", self.host) else self.host
        return is_loopback(name.strip("[]"))

    def __str__(self) -> str:
        return self.repository + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def is_loopback(name: str) -> bool:
    """Whether the name of a host is always this machine's."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def parse(text: str, *, default_tag: str = "latest", bare: bool = False) -> Reference:
    """Parse the name of an image.

    A name without a host is an error, because px does not assume Docker Hub, unless it stays on this machine
    (``bare``).
    """
    rest, _, digest = text.partition("@")
    if digest and _DIGEST.fullmatch(digest) is None:
        raise _bad(text, f"{digest!r} is not a sha256 digest")
    # A colon after the last slash starts the tag; one before it starts the port.
    slash = rest.rfind("/")
    colon = rest.find(":", slash + 1)
    name, tag = (rest[:colon], rest[colon + 1 :]) if colon >= 0 else (rest, "")
    if colon >= 0 and _TAG.fullmatch(tag) is None:
        raise _bad(text, f"{tag!r} is not a tag (at most 128 letters, digits, . _ and -)")
    host, slash_found, path = name.partition("/")
    if not slash_found or not _is_host(host):
        if not bare:
            raise _bad(text, "it does not start with the host of a registry")
        host, path = "", name
    elif _HOST.fullmatch(host) is None:
        raise _bad(text, f"{host!r} is not a host name")
    _check_path(text, path)
    return Reference(host, path, tag or ("" if digest else default_tag), digest)


def default_reference(project: str, version: str | None, revision: str | None) -> Reference:
    """``px.local/<project>:<version or git sha>``.  Characters that are not allowed there become ``-``."""
    # A version such as 1.0+local is not a valid tag, and a tag must not start with a dot or hyphen.
    path = re.sub(r"[^a-z0-9]+", "-", project.lower()).strip("-") or "app"
    tag = re.sub(r"[^A-Za-z0-9._-]+", "-", version or (revision or "")[:12]).lstrip(".-")[:128] or "latest"
    return Reference(LOCAL_HOST, path, tag)


def _is_host(text: str) -> bool:
    # The rule of docker and podman: the first part is a host if it has a dot or a port, or is "localhost".
    return "." in text or ":" in text or text == "localhost"


def _check_path(text: str, path: str) -> None:
    if len(path) > 255 or not path or any(_PART.fullmatch(part) is None for part in path.split("/")):
        raise _bad(text, f"{path!r} is not a repository path (lower-case letters, digits, single . _ - and /)")


def _bad(text: str, problem: str) -> PxError:
    return PxError("PX922", reference=text, problem=problem)
