"""What uv's sandbox sees of this machine: how indexes are reached, and the places outside the project that it needs.

Who names a place matters.  Variables, the user's own settings and the command line are the user's: what they name is
shown.  The project's files can be written by whatever ran in its sandbox before, so what they name is shown only if it
looks like what uv takes from a path: a project, an archive, or an index.  Everything is read-only.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from px import online
from px.env.credentials import Credentials
from px.errors import PxError
from px.project.git.shadow import repository_of
from px.project.manifest import FILE, OLD_MANIFESTS, Manifest
from px.warm.spec import Mount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from px.project.context import Context

# The sandbox's own directories: something else there would hide them.
TAKEN = ("/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/dev", "/proc", "/sys", "/run", "/var")
_CONFIG, _DATA, _NETRC = "/run/px/config", "/run/px/data", "/run/px/netrc"
# The rest of uv's variables is passed on.  These would lead uv to another environment, or to places of this machine.
_NOT_PASSED = re.compile(
    r"UV_(CACHE_DIR|CONFIG_FILE|FROZEN|LOCKED|NO_SYNC|OFFLINE|PROJECT.*|PYTHON.*|TOOL_.*|INSTALL.*)"
)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_ARCHIVE = re.compile(r".*\.(whl|zip|tar(\.\w+)?|tgz|tbz|txz)", re.IGNORECASE)
_GIT = re.compile(rb"\bgit\s*=|git\+")


def environment(context: Context) -> dict[str, str]:
    """uv's variables: those of the caller that say how indexes are reached, and where things are in the box."""
    return {
        **Credentials(context.settings).variables_from_keyring(),
        **({} if context.offline else online.patience()),
        **_variables(),
        **{k: v for k, v in os.environ.items() if k.lower() in _PROXIES},
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp/home",  # noqa: S108 - inside the sandbox
        "LANG": "C.UTF-8",
        "NETRC": _NETRC,
        "XDG_CONFIG_HOME": _CONFIG,
        "XDG_DATA_HOME": _DATA,
        "UV_LINK_MODE": "copy",
        "UV_PYTHON_DOWNLOADS": "never",
        **({"UV_CONFIG_FILE": f"{_CONFIG}/uv/uv.toml"} if os.environ.get("UV_CONFIG_FILE") else {}),
    }


def _variables() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k.startswith("UV_") and not _NOT_PASSED.fullmatch(k)}


def credentials() -> Iterator[Mount]:
    """How the user told uv to reach indexes: settings, uv's own store of logins, and netrc."""
    home, told = Path(os.path.expanduser("~")), os.environ.get
    config = Path(told("XDG_CONFIG_HOME") or home / ".config") / "uv" / "uv.toml"
    logins = Path(told("UV_CREDENTIALS_DIR") or Path(told("XDG_DATA_HOME") or home / ".local/share") / "uv/credentials")
    files = {
        f"{_CONFIG}/uv/uv.toml": Path(told("UV_CONFIG_FILE") or config),
        "/etc/uv/uv.toml": Path("/etc/uv/uv.toml"),
        f"{_DATA}/uv/credentials/credentials.toml": logins / "credentials.toml",
        _NETRC: Path(told("NETRC") or home / ".netrc"),
    }
    for target, source in files.items():
        if source.is_file() and os.access(source, os.R_OK):
            yield Mount(source.resolve(), target, read_only=True)


def certificates(context: Context) -> str | None:
    """The certificates that uv is to trust: those of ``SSL_CERT_FILE``, or this machine's if it is told so."""
    named = os.environ.get("SSL_CERT_FILE")
    if named and os.path.isfile(named):
        return named
    asked: list[Any] = [os.environ.get("UV_NATIVE_TLS"), os.environ.get("UV_SYSTEM_CERTS")]
    asked += [table.get(key) for table in context.settings.tables for key in ("native-tls", "system-certs")]
    return next((path for path in _BUNDLES if os.path.isfile(path)), None) if any(asked) else None


def beside(context: Context, args: Sequence[str | Path]) -> list[Mount]:
    """Everything outside the project that locking it may read."""
    named = [path for manifest in context.project.manifests for path in _path_sources(manifest)]
    named += context.project.locked_directories
    shown = [*_shown(named, context, trusted=False), *indexes(context), *_history(context)]
    return [*shown, *_shown((context.directory / path for path in _paths(map(str, args))), context, trusted=True)]


def _history(context: Context) -> list[Mount]:
    """The repository of a project that is only a part of it: build backends ask git for versions."""
    top = repository_of(context.root)
    git = top / ".git" if top else None
    found = git is not None and top != context.root and git.is_dir() and _computes_version(context)
    return [Mount(git, os.fspath(git), read_only=True)] if git is not None and found else []


def _computes_version(context: Context) -> bool:
    return any("version" in m.project.get("dynamic", ()) for m in context.project.manifests)


def indexes(context: Context) -> list[Mount]:
    """The indexes and other places that uv's settings and variables name by a path."""
    own, *users = context.settings.tables
    of_project = (context.settings.directory / path for path in _paths(_texts(own)))
    of_user = _paths([*_texts(users), *" ".join(_variables().values()).split()])
    return [*_shown(of_project, context, trusted=False), *_shown(map(Path, of_user), context, trusted=True)]


def _path_sources(manifest: Manifest, seen: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """The manifest's path dependencies, and theirs."""
    for path in manifest.path_sources:
        yield path
        below = path / FILE
        if below not in seen and below.is_file():
            try:
                yield from _path_sources(Manifest.read(below), seen | {below})
            except PxError:
                continue  # uv says what is wrong with it


def _shown(paths: Iterable[Path], context: Context, *, trusted: bool) -> Iterator[Mount]:
    for path in dict.fromkeys(Path(os.path.realpath(path)) for path in paths):
        inside = path.is_relative_to(context.root)
        if not inside and path.exists() and os.fspath(path) not in TAKEN and (trusted or _looks_right(path)):
            yield Mount(path, os.fspath(path), read_only=True)


def _looks_right(path: Path) -> bool:
    """Whether uv could want this path: keys and mail are neither a project nor an index."""
    if path.is_file():
        return _ARCHIVE.fullmatch(path.name) is not None
    if Path(os.path.expanduser("~")).is_relative_to(path):
        return False
    names = os.listdir(path)
    if any(name in (FILE, *OLD_MANIFESTS, "index.html") or _ARCHIVE.fullmatch(name) for name in names):
        return True
    return any((path / name / "index.html").is_file() for name in names)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _paths(texts: Iterable[str]) -> Iterator[str]:
    """Those of the texts that are paths: ``file:`` addresses, and what has a slash and no scheme."""
    for text in texts:
        found = re.search(r"\bfile:\S+", text)
        parts = urlsplit(found[0] if found else text)
        if parts.scheme == "file":
            yield unquote(parts.path)
        elif "/" in text and not parts.scheme:
            yield text


def ask_for_git(context: Context, args: Sequence[str | Path]) -> bool:
    """Whether uv needs git for this project: bases have none.  Versions that are computed mostly come from git."""
    if _computes_version(context):
        return True
    files = [*(m.path for m in context.project.manifests), context.project.lock]
    texts = [*(path.read_bytes() for path in files if path.is_file()), *(str(a).encode() for a in args)]
    return any(_GIT.search(text) for text in texts)
