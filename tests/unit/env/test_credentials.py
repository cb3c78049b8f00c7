"""Which password a URL gets: by the index that it belongs to, as uv finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from px.env.credentials import Credentials
from px.project.settings import Settings

MANIFEST = """
[project]
name = "app"
[[tool.uv.index]]
name = "one"
url = "https://host.example/one/simple"
[[tool.uv.index]]
name = "two"
url = "https://host.example/two/simple"
[[tool.uv.index]]
url = "https://in:url@other.example/simple"
"""


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Credentials:
    (tmp_path / "pyproject.toml").write_text(MANIFEST)
    monkeypatch.setenv("NETRC", "/dev/null")
    monkeypatch.setenv("UV_CREDENTIALS_DIR", str(tmp_path))
    return Credentials(Settings(tmp_path))


def test_two_indexes_of_one_host_have_their_own(credentials: Credentials, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ONE", "TWO"):
        monkeypatch.setenv(f"UV_INDEX_{name}_USERNAME", name.lower())
        monkeypatch.setenv(f"UV_INDEX_{name}_PASSWORD", "p@ss")
    for name in ("one", "two"):
        url = f"https://host.example/{name}/files/a-1.0.whl"
        assert credentials.authorize(url) == url.replace("//", f"//{name}:p%40ss@")
    assert credentials.authorize("https://other.example/f") == "https://in:url@other.example/f"
    assert credentials.authorize("https://third.example/f") == "https://third.example/f"


def test_what_uv_auth_login_stored(credentials: Credentials, tmp_path: Path) -> None:
    rows = [("https://host.example/", "all"), ("https://host.example/two", "two")]
    (tmp_path / "credentials.toml").write_text(
        "".join(
            f'[[credential]]\nservice = "{service}"\nusername = "{user}"\nscheme = "basic"\npassword = "x"\n'
            for service, user in rows
        )
    )
    assert credentials.authorize("https://host.example/two/f") == "https://two:x@host.example/two/f"
    assert credentials.authorize("https://host.example/twofold/f") == "https://all:x@host.example/twofold/f"
    assert credentials.authorize("https://host.example/one/f") == "https://all:x@host.example/one/f"
    assert credentials.authorize("http://host.example/one/f") == "http://host.example/one/f"
