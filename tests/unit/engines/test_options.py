"""Options of a run: what is accepted, and what is refused with an example of the right form."""

from __future__ import annotations

from pathlib import Path

import pytest

from px.engines import options
from px.errors import PxError
from px.warm.spec import Limits, Mount


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4m", 4 << 20),
        ("512M", 512 << 20),
        ("1.5g", 3 << 29),
        ("1GiB", 1 << 30),
        ("2gb", 2 << 30),
        ("8388608", 8 << 20),
    ],
)
def test_memory(text: str, expected: int) -> None:
    assert options.parse_memory(text) == expected


@pytest.mark.parametrize("text", ["", "m", "-1g", "1x", "1 2m", "0", "3m", "1e9"])
def test_memory_refused(text: str) -> None:
    with pytest.raises(PxError) as e:
        options.parse_memory(text)
    assert e.value.code == "PX040"
    assert "--memory 512m" in str(e.value)


def test_processors_and_processes() -> None:
    assert options.parse_limits(memory="64m", cpus="1.5", pids="100") == Limits(64 << 20, 1.5, 100)
    assert not options.parse_limits()
    for text in ("0", "-1", "x", "nan", "inf", "1e9"):
        with pytest.raises(PxError, match="PX040"):
            options.parse_cpus(text)
    for text in ("0", "1", "-5", "1.5", "x", ""):
        with pytest.raises(PxError, match="PX040"):
            options.parse_pids(text)


def test_volumes(tmp_path: Path) -> None:
    (tmp_path / "a:b c").mkdir()
    (tmp_path / "file").touch()
    assert options.parse_volume("file:/x", tmp_path) == Mount(tmp_path / "file", "/x", read_only=False)
    assert options.parse_volume("a:b c:/d/../e:ro", tmp_path) == Mount(tmp_path / "a:b c", "/e", read_only=True)
    assert options.parse_volume("../file:/x", tmp_path / "a:b c") == Mount(tmp_path / "file", "/x", read_only=False)
    assert options.parse_volume(f"{tmp_path}/file:/x:rw", Path("/")) == Mount(tmp_path / "file", "/x", read_only=False)


@pytest.mark.parametrize(
    "text",
    ["", "file", "file:", ":/x", "file:x", "missing:/x", "file:/x:rx", "file:/", "file:/proc", "file:/dev/x",
     "file:/a/../proc", "file:/sys/fs"],
)  # fmt: skip
def test_volumes_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PxError, match="PX040"):
        options.parse_volume(text, tmp_path)


def test_variables() -> None:
    host = {"HERE": "host's", "OTHER": "no"}
    assert options.parse_env(["A=1=2", "HERE", "EMPTY="], host) == {"A": "1=2", "HERE": "host's", "EMPTY": ""}
    for entry in ("NOT_SET", "=x", "1A=x", "A B=x", "A=\0"):
        with pytest.raises(PxError, match="PX040"):
            options.parse_env([entry], host)


def test_extra_certificates(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.pem", tmp_path / "bad.pem"
    good.write_text("-----BEGIN CERTIFICATE-----\n")
    bad.write_text("nothing")
    assert options.extra_ca({}) is None
    assert options.extra_ca({"PX_EXTRA_CA": str(good)}) == good
    for path in (bad, tmp_path / "missing"):
        with pytest.raises(PxError, match="PX040"):
            options.extra_ca({"PX_EXTRA_CA": str(path)})
