"""A small Alpine repository, made and signed by the tests: .apk files, an index, keys.

It stands in for Alpine's own archive; the programs in it are real ones, linked to a real musl.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import subprocess
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.debian import TarMember, make_tar, tar_member

if TYPE_CHECKING:
    from pathlib import Path

KEY = "tests-0123.rsa.pub"


def pack(members: list[TarMember], *, last: bool = True) -> bytes:
    """A gzip stream of a tar archive; only the last of a file's archives has an end mark."""
    tar = make_tar(members, fmt=tarfile.PAX_FORMAT)
    end = len(tar) if last else len(tar.rstrip(b"\0")) + -len(tar.rstrip(b"\0")) % 512
    return gzip.compress(tar[:end], mtime=0)


@dataclass
class Repository:
    """Packages by name, and the key that signs the index."""

    directory: Path
    architecture: str = "x86_64"
    packages: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    """File name -> content, stanza of the index."""

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.private = self.directory / "private.pem"
        (self.directory / "keys").mkdir()
        run = ["openssl", "genrsa", "-out", str(self.private), "2048"]
        subprocess.run(run, check=True, capture_output=True)
        public = ["openssl", "rsa", "-in", str(self.private), "-pubout", "-out", str(self.directory / "keys" / KEY)]
        subprocess.run(public, check=True, capture_output=True)

    def add(
        self, name: str, members: list[TarMember], *, version: str = "1.0-r0", depends: str = "", provides: str = ""
    ) -> bytes:
        for header, file in members:
            # abuild writes such a header for every file.
            header.pax_headers = {"APK-TOOLS.checksum.SHA1": hashlib.sha1(file).hexdigest()} if header.isreg() else {}
        data = pack(members)
        info = f"pkgname = {name}\npkgver = {version}\narch = {self.architecture}\n"
        info += f"origin = {name}\nlicense = MIT\n"
        info += f"datahash = {hashlib.sha256(data).hexdigest()}\n"
        control = pack([tar_member(".PKGINFO", info.encode())], last=False)
        content = self.signature(control) + control + data
        checksum = base64.b64encode(hashlib.sha1(control).digest()).decode()
        rows = [f"C:Q1{checksum}", f"P:{name}", f"V:{version}", f"A:{self.architecture}", f"S:{len(content)}", "I:1"]
        rows += [f"D:{depends}"] if depends else []
        rows += [f"p:{provides}"] if provides else []
        self.packages[f"{name}-{version}.apk"] = content, "\n".join(rows) + "\n"
        return content

    def signature(self, packed: bytes) -> bytes:
        sign = ["openssl", "dgst", "-sha1", "-sign", str(self.private)]
        signed = subprocess.run(sign, input=packed, check=True, capture_output=True).stdout
        return pack([tar_member(f".SIGN.RSA.{KEY}", signed)], last=False)

    def index(self) -> bytes:
        text = "\n".join(stanza for _, stanza in self.packages.values()) + "\n"
        packed = pack([tar_member("DESCRIPTION", b"test"), tar_member("APKINDEX", text.encode())])
        return self.signature(packed) + packed

    def publish(self, files: dict[str, bytes]) -> None:
        """Into what a loopback mirror serves; the second repository is empty."""
        place = f"v3.20/main/{self.architecture}"
        files |= {f"{place}/{name}": content for name, (content, _) in self.packages.items()}
        files[f"{place}/APKINDEX.tar.gz"] = self.index()
        empty = pack([tar_member("APKINDEX", b"")])
        files[f"v3.20/community/{self.architecture}/APKINDEX.tar.gz"] = self.signature(empty) + empty
