"""Real wheels, small and made on the spot: well-formed ones, and ones that are hostile in one way each."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class WheelSpec:
    """What goes into a wheel; RECORD is computed unless a test wants it wrong."""

    name: str
    version: str = "1.0"
    files: dict[str, bytes] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    entry_points: str = ""
    tag: str = "py3-none-any"
    modes: dict[str, int] = field(default_factory=dict)
    unrecorded: tuple[str, ...] = ()
    wrong_hash: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    more_record: str = ""

    @property
    def stem(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}"

    @property
    def filename(self) -> str:
        return f"{self.stem}-{self.tag}.whl"

    def content(self) -> dict[str, bytes]:
        info = f"{self.stem}.dist-info"
        module = self.name.replace("-", "_")
        metadata = [f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}"]
        metadata += [f"Requires-Dist: {r}" for r in self.requires]
        files = {f"{module}/__init__.py": f"VERSION = {self.version!r}\n".encode(), **self.files}
        files[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
        files[f"{info}/WHEEL"] = (
            f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {self.tag}\n".encode()
        )
        if self.entry_points:
            files[f"{info}/entry_points.txt"] = self.entry_points.encode()
        return files

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / self.filename
        files = self.content()
        record = "".join(self._row(name, content) for name, content in files.items() if name not in self.unrecorded)
        record_path = f"{self.stem}.dist-info/RECORD"
        files[record_path] = (record + self.more_record + f"{record_path},,\n").encode()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                for _ in range(2 if name in self.twice else 1):
                    member = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
                    member.compress_type = zipfile.ZIP_DEFLATED  # a ZipInfo does not take it from the archive
                    member.filename = name  # as given: ZipInfo would tidy it
                    member.external_attr = self.modes.get(name, 0o100644) << 16
                    archive.writestr(member, content)
        return path

    def _row(self, name: str, content: bytes) -> str:
        digest = hashlib.sha256(b"something else" if name in self.wrong_hash else content).digest()
        return f"{name},sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()},{len(content)}\n"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
