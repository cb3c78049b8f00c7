"""The few files of the host that a sandbox needs to reach the network, remade for it.

With the network on, names resolve as they do outside: the host's resolver and its table of hosts, plus the sandbox's
own name.  With it off there is nobody to ask, and nothing of the host is shown.
"""

from __future__ import annotations

from px.engines.spec import DataFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.engines.spec import RunSpec

EXTRA_CA = "/run/px-ca.pem"
# OpenSSL and Python; requests; curl; git; pip; node.  Each replaces its whole set, so the file holds both.
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT")
NODE_CA_VARIABLE = "NODE_EXTRA_CA_CERTS"
IMAGE_CA = ("etc/ssl/certs/ca-certificates.crt", "etc/ssl/cert.pem")

_LOCAL_HOSTS = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"


def all_files(spec: RunSpec) -> Iterator[DataFile]:
    yield from network_files(spec)
    yield from trust_files(spec)
    yield from spec.files


def trust_files(spec: RunSpec) -> Iterator[DataFile]:
    if spec.extra_ca is not None:
        yield DataFile(EXTRA_CA, _trusted(spec))


def network_files(spec: RunSpec) -> Iterator[DataFile]:
    own = f"127.0.1.1\t{spec.hostname}\n".encode()
    yield DataFile("/etc/hostname", f"{spec.hostname}\n".encode())
    known = (_read("/etc/hosts") if spec.network else b"") or _LOCAL_HOSTS
    yield DataFile("/etc/hosts", known.rstrip(b"\n") + b"\n" + own)
    if spec.network:
        yield DataFile("/etc/resolv.conf", _read("/etc/resolv.conf"))


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def _trusted(spec: RunSpec) -> bytes:
    """The image's certificates and the extra ones in one file."""
    from pathlib import Path

    extra = Path(spec.extra_ca).read_bytes() if spec.extra_ca is not None else b""
    for layer in map(Path, reversed(spec.layers)):
        for name in IMAGE_CA:
            path = (layer / name).resolve()
            # A link in an image may point out of it, which on this side means to the host's files.
            if path.is_relative_to(layer.resolve()) and path.is_file():
                return path.read_bytes().rstrip() + b"\n" + extra
    return extra


def environment(spec: RunSpec) -> dict[str, str]:
    """The target's variables; those that name certificates only where the caller has not set them."""
    if spec.extra_ca is None:
        return dict(spec.env)
    trust = dict.fromkeys((*CA_VARIABLES, NODE_CA_VARIABLE), EXTRA_CA)
    return {**trust, **spec.env}
