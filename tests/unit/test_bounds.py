"""Documents of any depth and size: parsed, or a ValueError."""

from __future__ import annotations

import pytest

from px import bounds
from px.http import FetchError
from tests.conftest import REPO


@pytest.mark.parametrize("depth", [bounds.LEVELS + 1, 5_000, 100_000])
def test_documents_that_are_too_deep(depth: int) -> None:
    for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        with pytest.raises(ValueError, match="nested too deeply"):
            bounds.parse_json(text)
    with pytest.raises(ValueError, match="nested too deeply"):
        bounds.parse_toml("a = " + "[" * depth + "]" * depth)
    if depth < 100_000:  # tomllib needs the square of it
        with pytest.raises(ValueError, match="nested too deeply"):
            bounds.parse_toml(".".join("a" * depth) + " = 1")


def test_documents_that_are_deep_enough() -> None:
    depth = bounds.LEVELS - 1
    assert bounds.parse_json("[" * depth + "]" * depth)
    assert bounds.parse_toml("a = " + "[" * depth + "]" * depth)


def test_documents_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "DOCUMENT", 10)
    monkeypatch.setattr(bounds, "LOCK", 10)
    for parse in (bounds.parse_json, bounds.parse_toml):
        with pytest.raises(ValueError, match="larger than"):
            parse(b"#" * 11)


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, b"\xff", "a = 1\na = 2", "\0"])
def test_other_bad_documents(text: bytes | str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - what the parser says
        bounds.parse_toml(text)
    with pytest.raises(ValueError):  # noqa: PT011
        bounds.parse_json(text)


def test_what_an_archive_may_become() -> None:
    assert bounds.unpacked(10) == bounds.FREE
    assert bounds.unpacked(2 * bounds.GIB) == bounds.UNPACKED
    # Real ones: a wheel of PyTorch with CUDA, and one of its cuDNN.
    assert bounds.unpacked(2_500_000_000) > 4_500_000_000
    assert bounds.unpacked(700_000_000) > 1_100_000_000


def test_the_page_has_every_limit() -> None:
    page = (REPO / "docs" / "reference" / "limits.md").read_text()
    for name in (n for n in vars(bounds) if n.isupper() and n not in ("KIB", "MIB", "GIB", "TYPE_CHECKING")):
        value = getattr(bounds, name)
        shown = [
            f"{value // unit} {word}" for unit, word in ((bounds.GIB, "GiB"), (bounds.MIB, "MiB")) if value >= unit
        ]
        (row,) = (line for line in page.splitlines() if line.startswith("|") and f"`{name}`" in line)
        assert any(text in row for text in (*shown, f"{value}", f"{value:,}")), name


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file or directory", "x"), "No such file or directory"),
        (ValueError("Expecting value: line 1 column 1"), "its format is another: Expecting value: line 1 column 1"),
        (KeyError("locks"), "its format is another"),
        (FetchError("the server answered 503"), "the server answered 503"),
    ],
)
def test_why_a_document_cannot_be_used(error: Exception, said: str) -> None:
    assert bounds.unread(error) == said
