"""The catalogue of errors: complete, fillable, documented, and used."""

from __future__ import annotations

import re
import string
from typing import Any

import pytest

from px.errors import EXIT_BY_FAMILY, PxError, catalogue
from tests.conftest import REPO

SOURCES = [p for folder in ("src", "tests") for p in (REPO / folder).rglob("*.py")]


def fields(code: str) -> dict[str, Any]:
    row = catalogue()[code]
    names = {f for line in (row.what, *row.why, *row.fix) for _, f, _, _ in string.Formatter().parse(line) if f}
    return dict.fromkeys(names, "VALUE")


@pytest.mark.parametrize("code", catalogue())
def test_every_error_teaches(code: str) -> None:
    error = PxError(code, **fields(code))
    assert error.what
    assert error.fix, "an error without a fix does not teach"
    assert str(error).startswith(f"{code}  ")
    assert error.exit_code in {*EXIT_BY_FAMILY.values(), 126, 127}
    assert error.as_json()["code"] == code


def test_every_code_in_the_source_is_in_the_catalogue() -> None:
    used = {code for path in SOURCES for code in re.findall(r'PxError\(\s*"(PX\d{3})"', path.read_text())}
    assert used <= set(catalogue())


def test_every_raise_gives_the_fields_that_the_text_names() -> None:
    for path in SOURCES:
        if "tests" in path.parts:
            continue
        for found in re.finditer(
            r'PxError\(\s*"(PX\d{3})"(?P<rest>(?:[^()]|\([^()]*(?:\([^()]*\)[^()]*)*\))*)\)', path.read_text()
        ):
            given = set(re.findall(r"(?:^|[\s,(])(\w+)=", found["rest"]))
            if "**" not in found["rest"]:
                missing = set(fields(found[1])) - given
                assert not missing, f"{path.name}: {found[1]} lacks {missing}"


def test_the_reference_page_lists_every_code() -> None:
    page = (REPO / "docs/reference/errors.md").read_text()
    for code, row in catalogue().items():
        assert f"## {code}" in page
        assert row.what in page
