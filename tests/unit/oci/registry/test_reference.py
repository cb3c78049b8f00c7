from __future__ import annotations

import pytest

from px.errors import PxError
from px.oci.registry.reference import Reference, default_reference, parse

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ghcr.io/org/app:1.2", Reference("ghcr.io", "org/app", "1.2")),
        ("localhost:5000/app", Reference("localhost:5000", "app", "latest")),
        ("localhost/app:x", Reference("localhost", "app", "x")),
        ("127.0.0.1:5000/a/b/c:t", Reference("127.0.0.1:5000", "a/b/c", "t")),
        ("[::1]:5000/a:t", Reference("[::1]:5000", "a", "t")),
        (f"example.org/a@{DIGEST}", Reference("example.org", "a", "", DIGEST)),
        (f"example.org/a:t@{DIGEST}", Reference("example.org", "a", "t", DIGEST)),
        ("px.local/my-app:0.1", Reference("px.local", "my-app", "0.1")),
    ],
)
def test_parse(text: str, expected: Reference) -> None:
    assert parse(text) == expected
    assert parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "app", "app:1", "org/app:1", "example.org/", "example.org/App", "example.org/a:", "example.org/a:b c",
        "example.org/a//b", "example.org/../b", "exa mple.org/a", "example.org/a@sha256:12", "-a.org/x",
        "example.org/a@md5:" + "0" * 32, "example.org/a:" + "x" * 129, "https://example.org/a", "example.org/a___b",
        "user:pw@example.org/a",
    ],
)  # fmt: skip
def test_what_is_not_a_name(text: str) -> None:
    with pytest.raises(PxError) as caught:
        parse(text)
    assert caught.value.code == "PX922"
    assert "--tag" in str(caught.value)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True), ("localhost:5000", True), ("127.0.0.1:1", True), ("[::1]:5000", True),
        ("a.localhost:1", True), ("10.0.0.1", False), ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
    ],
)  # fmt: skip
def test_loopback(host: str, *, expected: bool) -> None:
    assert Reference(host, "a").is_loopback is expected


@pytest.mark.parametrize(
    ("project", "version", "revision", "expected"),
    [
        ("My_App.x", "1.2.3", "f" * 40, "px.local/my-app-x:1.2.3"),
        ("app", None, "f" * 40, "px.local/app:" + "f" * 12),
        ("app", "1!2.0+local.1", None, "px.local/app:1-2.0-local.1"),
        ("app", None, None, "px.local/app:latest"),
        ("Ü", "1", None, "px.local/app:1"),
    ],
)
def test_default_names(project: str, version: str | None, revision: str | None, expected: str) -> None:
    found = default_reference(project, version, revision)
    assert str(found) == expected
    assert parse(str(found)) == found
    assert found.is_local
