"""A release by one command: ``make release VERSION=0.2.0``.  ``make dist`` builds what is published.

The command writes the version and the date into the changelog, makes the generated files again, commits, tags and
builds.  It publishes nothing: pushing the tag starts .github/workflows/release.yml, which builds the same bytes and
publishes them under the identity of the workflow, without any password.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from packaging.version import InvalidVersion, Version

REPO = Path(__file__).resolve().parent.parent
VERSION_FILE = Path("src/px/__init__.py")
_VERSION = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
_UNRELEASED = re.compile(r"^## (\S+) \(unreleased\)$", re.MULTILINE)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="?", help="the version to release; without it, only build what is committed")
    args = parser.parse_args(argv)
    if args.version:
        release(REPO, args.version)
    for path in build(REPO, REPO / "dist"):
        say(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(REPO)}")
    if args.version:
        say(f"To publish it: git push origin HEAD v{args.version}")
    return 0


def release(root: Path, version: str) -> None:
    """Write the version down, commit and tag; nothing happens where something is not as it must be."""
    check(root, version)
    changelog = root / "CHANGELOG.md"
    written = dated(changelog.read_text(), version, _today())
    changelog.write_text(written)
    path = root / VERSION_FILE
    path.write_text(_VERSION.sub(f'__version__ = "{version}"', path.read_text()))
    subprocess.run([sys.executable, "-m", "docs.generate"], cwd=root, check=True)
    _git(root, "add", "--all")
    _git(root, "commit", "--quiet", "--message", f"Release {version}")
    _git(root, "tag", "--annotate", f"v{version}", "--message", notes(written, version))


def check(root: Path, version: str) -> None:
    found = _VERSION.search((root / VERSION_FILE).read_text())
    try:
        wanted, current = Version(version), Version(found[1] if found else "0")
    except InvalidVersion as e:
        raise SystemExit(f"{e}") from None
    if str(wanted) != version:
        raise SystemExit(f"write it as {wanted}")
    if wanted < current:
        raise SystemExit(f"{version} is older than {current}, which the source has")
    if _git(root, "tag", "--list", f"v{version}"):
        raise SystemExit(f"there is a tag v{version} already")
    if _git(root, "status", "--porcelain"):
        raise SystemExit("commit or put away what is changed: a release is made from a clean tree")
    if not _UNRELEASED.search((root / "CHANGELOG.md").read_text()):
        raise SystemExit("CHANGELOG.md has no section `## VERSION (unreleased)`: nothing to release")


def dated(changelog: str, version: str, today: str) -> str:
    """The changelog with its first unreleased section released."""
    return _UNRELEASED.sub(f"## {version} ({today})", changelog, count=1)


def notes(changelog: str, version: str) -> str:
    """What the changelog says of a version."""
    section = changelog.partition(f"## {version} (")[2].partition("\n## ")[0]
    return f"px {version}\n\n{section.partition(chr(10))[2].strip()}\n"


def build(root: Path, out: Path) -> list[Path]:
    """The sdist and the wheel of what is committed, from an export of it: what lies around does not count."""
    shutil.rmtree(out, ignore_errors=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=root, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as temporary, tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(temporary)  # noqa: S202 - our own repository's files
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "uv"
        constraints = Path(temporary, "tools", "build-constraints.txt")
        command = [uv, "build", "--quiet", "--native-tls", "--build-constraint", str(constraints)]
        subprocess.run([*command, "--out-dir", str(out), temporary], check=True)
    return sorted(path for path in out.iterdir() if path.suffix in {".whl", ".gz"})


def _today() -> str:
    return dt.datetime.now(dt.UTC).date().isoformat()


def _git(root: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
