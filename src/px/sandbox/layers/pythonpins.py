"""For px's maintainers: pin the builds of CPython anew.

``python -m px.sandbox.layers.pythonpins > src/px/data/pythons.toml``: uv knows the builds and their hashes, and tells
a hash to whoever gives it another archive than the one it expects.
"""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
from pathlib import Path

from px import process
from px.platforms import ARCHITECTURES
from px.project import uv
from px.sandbox.layers.pythons import Pin, builtin_offers

OLDEST = (3, 10)
_EXPECTED = re.compile(r"Expected:\s+([0-9a-f]{64})")
_HEAD = """\
# The builds of CPython that px adds to a base as a layer, one for each minor version: the release of
# python-build-standalone that has it, and the sha256 of its archive for each architecture.
# Made by `python -m px.sandbox.layers.pythonpins`; do not edit.
"""


def renew() -> str:
    """The newest stable build of every minor version that the installed uv knows, as the file's new text."""
    newest: dict[tuple[int, int], str] = {}
    for version in builtin_offers("amd64"):
        major, minor, patch = (int(part) for part in version.split("."))
        known = newest.get((major, minor))
        if (major, minor) >= OLDEST and (known is None or patch > int(known.split(".")[2])):
            newest[major, minor] = version
    blocks = [_block(f"{major}.{minor}", version) for (major, minor), version in sorted(newest.items())]
    return "\n".join([_HEAD, *blocks])


def _block(minor: str, version: str) -> str:
    offers = {architecture: builtin_offers(architecture)[version] for architecture in ARCHITECTURES}
    build = offers["amd64"].url.split("/")[-2]
    lines = [f'["{minor}"]', f'version = "{version}"', f'build = "{build}"']
    for architecture, offer in offers.items():
        if offer.url.split("/")[-1] != Pin(version, build, {}).archive(architecture):
            raise ValueError(f"{offer.url} is not named as px expects")
        lines.append(f'{architecture} = "{expected_hash(offer.key, offer.url)}"')
    return "\n".join(lines) + "\n"


def expected_hash(key: str, url: str) -> str:
    """The sha256 that uv demands of an archive, learnt by offering it an empty one from a local mirror."""
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
    sys.stdout.write(renew())
