"""The pinned builds of CPython for sandboxes whose base lacks the version that a project wants.

``data/pythons.toml`` pins one build of python-build-standalone for every minor version, so that which patch
release a sandbox gets follows from the version of px and not from the day or from the uv of a machine.
Maintainers renew the file with ``python -m px.sandbox.pythonpins > src/px/data/pythons.toml``: uv knows the
builds and their hashes, and tells a hash to whoever gives it another archive than the one it expects.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent.parent / "data" / "pythons.toml"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
OLDEST = (3, 10)
_EXPECTED = re.compile(r"Expected:\s+([0-9a-f]{64})")
_HEAD = """\
# The builds of CPython that px adds to a base as a layer, one for each minor version: the release of
# python-build-standalone that has it, and the sha256 of its archive for each architecture.
# Made by `python -m px.sandbox.pythonpins`; do not edit.
"""


@dataclass(frozen=True)
class Pin:
    """One pinned build."""

    version: str
    build: str
    """The day of the release that it is part of, such as 20250317."""
    sha256: dict[str, str]
    """By architecture, in Debian's word for it."""

    def archive(self, architecture: str) -> str:
        """The file name of its archive, as it is written in addresses."""
        machine = MACHINES[architecture]
        return f"cpython-{self.version}%2B{self.build}-{machine}-unknown-linux-gnu-install_only_stripped.tar.gz"


@cache
def pins() -> dict[str, Pin]:
    """Version -> pin."""
    raw = tomllib.loads(DATA.read_text(encoding="utf-8"))
    rows = [Pin(row["version"], row["build"], {a: row[a] for a in MACHINES if a in row}) for row in raw.values()]
    return {pin.version: pin for pin in rows}


def renew() -> str:
    """The newest stable build of every minor version that the installed uv knows, as the file's new text."""
    from px.sandbox.pythons import builtin_offers

    newest: dict[tuple[int, int], str] = {}
    for version in builtin_offers("amd64"):
        major, minor, patch = (int(part) for part in version.split("."))
        known = newest.get((major, minor))
        if (major, minor) >= OLDEST and (known is None or patch > int(known.split(".")[2])):
            newest[major, minor] = version
    blocks = [_block(f"{major}.{minor}", version) for (major, minor), version in sorted(newest.items())]
    return "\n".join([_HEAD, *blocks])


def _block(minor: str, version: str) -> str:
    from px.sandbox.pythons import builtin_offers

    offers = {architecture: builtin_offers(architecture)[version] for architecture in MACHINES}
    build = offers["amd64"].url.split("/")[-2]
    lines = [f'["{minor}"]', f'version = "{version}"', f'build = "{build}"']
    for architecture, offer in offers.items():
        if offer.url.split("/")[-1] != Pin(version, build, {}).archive(architecture):
            raise ValueError(f"{offer.url} is not named as px expects")
        lines.append(f'{architecture} = "{expected_hash(offer.key, offer.url)}"')
    return "\n".join(lines) + "\n"


def expected_hash(key: str, url: str) -> str:
    """The sha256 that uv demands of an archive, learnt by offering it an empty one from a local mirror."""
    import gzip
    import tempfile

    from px import process
    from px.project import uv

    build, name = url.split("/")[-2:]
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / build
        place.mkdir()
        for spelling in (name, name.replace("%2B", "+")):
            (place / spelling).write_bytes(gzip.compress(bytes(1024)))
        environment = uv.environment() | {"UV_PYTHON_INSTALL_MIRROR": f"file://{scratch}"}
        command = [uv.find_uv(), "--no-config", "python", "install", "--no-bin", "--install-dir", f"{scratch}/in", key]
        said = process.run(command, env=environment).stderr
    found = _EXPECTED.search(said)
    if found is None:
        raise ValueError(f"uv does not say which hash it expects of {key}: {said}")
    return found[1]


if __name__ == "__main__":
    import sys

    sys.stdout.write(renew())
