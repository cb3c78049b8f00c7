"""What the sandbox lacks: said before anything runs where px can know it, else after the target's own words."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from px.home import Home
from tests.integration.sandbox.conftest import lock
from tests.integration.sandbox.native import make_sdist, write_project
from tests.support.elf import make_elf
from tests.support.index import serving
from tests.support.px import PX, log_of, run_px, snapshot
from tests.support.terminal import Terminal
from tests.support.wheels import WheelSpec

LOAD = "import ctypes; ctypes.CDLL('libmagic.so.1'); print('loaded')"
EXTENSION = "_psycopg.cpython-311-x86_64-linux-gnu.so"


def test_a_library_that_was_not_inferred_is_missed_before_anything_runs(database: Path, warm: Home) -> None:
    manifest = database / "pyproject.toml"
    manifest.write_text(f"{manifest.read_text()}\n[tool.px.sandbox]\nauto = false\n")
    before = snapshot(database)
    for command in (["run", "--sandbox", "python", "-c", "print('ran')"], ["sync", "--sandbox"]):
        done = run_px(*command, cwd=database, check=False)
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr.startswith("PX902")
        for said in ("libpq.so.5", EXTENSION, "(psycopg2)", "px sandbox add postgres", "postgres = false"):
            assert said in done.stderr
    answer = json.loads(run_px("run", "--sandbox", "--json", "python", cwd=database, check=False).stdout)
    assert (answer["status"], answer["details"]["code"]) == ("error", "PX902")
    # Nor may --auto-add do what the manifest forbids.
    done = run_px("run", "--sandbox", "--auto-add", "python", "-c", "print('ran')", cwd=database, check=False)
    assert done.returncode == 125
    assert "--auto-add does nothing here: [tool.px.sandbox" in done.stderr
    assert snapshot(database) == before
    # What the error says to do helps.
    run_px("sandbox", "add", "postgres", cwd=database)
    assert run_px("run", "--sandbox", "python", "-c", "import psycopg2; print(1)", cwd=database).stdout == "1\n"


def test_a_library_that_was_ruled_out_by_name_is_done_without(database: Path, warm: Home) -> None:
    manifest = database / "pyproject.toml"
    manifest.write_text(f"{manifest.read_text()}\n[tool.px.sandbox.capabilities]\npostgres = false\n")
    synced = run_px("sync", "--sandbox", cwd=database)
    assert EXTENSION in synced.stderr
    assert "libpq.so.5, which is not there because of [tool.px.sandbox.capabilities].postgres = false" in synced.stderr
    assert run_px("run", "--sandbox", "python", "-c", "import PIL; print('ran')", cwd=database).stdout == "ran\n"
    for flags in ([], ["--auto-add"]):
        done = run_px("run", "--sandbox", *flags, "python", "-c", "import psycopg2", cwd=database, check=False)
        assert done.returncode == 1
        assert "px sandbox add postgres" in done.stderr


def test_a_library_that_only_the_run_asks_for(plain: Path, warm: Home) -> None:
    before = snapshot(plain)
    run_px("sync", "--sandbox", cwd=plain)
    for flags in ([], ["-q"]):
        done = run_px("run", *flags, "--sandbox", "python", "-c", LOAD, cwd=plain, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        own, _, advice = done.stderr.partition("\nPX902  ")
        assert own.startswith("Traceback")
        assert advice.startswith(
            "A system library or program that your env needs is missing from the sandbox: libmagic"
        )
        assert "px sandbox add magic" in advice
    added = run_px("run", "--sandbox", "--auto-add", "python", "-c", LOAD, cwd=plain)
    assert added.stdout == "loaded\n"
    assert "Adding magic for this run (px sandbox add keeps it)" in added.stderr
    # For that run only: neither the manifest nor the project's sandbox has it now.
    assert snapshot(plain) == before
    assert run_px("run", "--sandbox", "python", "-c", LOAD, cwd=plain, check=False).returncode == 1
    frozen = run_px("run", "--sandbox", "--auto-add", "python", "-c", LOAD, cwd=plain, check=False, CI="1")
    assert frozen.returncode == 1
    assert "--auto-add does nothing here: CI is set" in frozen.stderr
    assert "px sandbox add magic" in frozen.stderr
    assert snapshot(plain) == before
    run_px("sandbox", "add", "magic", cwd=plain)
    assert (plain / "uv.lock").read_bytes() == before["uv.lock"][1]
    assert run_px("run", "--sandbox", "python", "-c", LOAD, cwd=plain).stdout == "loaded\n"
    run_px("sandbox", "remove", "magic", "--disable", cwd=plain)
    refused = run_px("run", "--sandbox", "--auto-add", "python", "-c", LOAD, cwd=plain, check=False)
    assert refused.returncode == 1
    assert "[tool.px.sandbox.capabilities].magic is false" in refused.stderr


def test_a_library_that_a_test_run_reports_on_standard_output(plain: Path, warm: Home) -> None:
    """As pytest does."""
    report = (
        "import sys\ntry:\n    "
        + LOAD.replace("; ", "\n    ")
        + "\nexcept OSError as e:\n    sys.exit(print('E', e) or 1)\n"
    )
    (plain / "report.py").write_text(report)
    manifest = plain / "pyproject.toml"
    manifest.write_text(f'{manifest.read_text()}\n[tool.px]\ntest = ["python", "report.py"]\n')
    done = run_px("test", "--sandbox", cwd=plain, check=False)
    assert (done.returncode, done.stdout.partition(":")[0]) == (1, "E libmagic.so.1")
    assert "PX902" in done.stderr
    assert "px sandbox add magic" in done.stderr
    added = run_px("test", "--sandbox", "--auto-add", cwd=plain)
    assert added.stdout.endswith("loaded\n")


def test_a_library_that_is_missed_on_a_terminal(plain: Path, warm: Home) -> None:
    run_px("sync", "--sandbox", cwd=plain)
    for _ in ("cold", "warm"):
        terminal = Terminal([str(PX), "run", "--sandbox", "python", "-c", LOAD], dict(os.environ), cwd=plain)
        terminal.expect("Traceback")
        terminal.expect("OSError: libmagic.so.1: cannot open shared object file")
        terminal.expect("PX902  .*: libmagic")
        assert terminal.wait() == 1


def test_a_header_that_a_build_asks_for(tmp_path: Path, warm: Home) -> None:
    sdist = make_sdist(tmp_path, "wantsmagic", includes="#include <magic.h>", libraries="-lmagic")
    root = lock(write_project(tmp_path / "p", sdist))
    before = snapshot(root)
    done = run_px("run", "--sandbox", "python", "-c", "import wantsmagic", cwd=root, check=False)
    assert done.returncode == 125
    assert "PX902" in done.stderr
    assert "magic.h" in done.stderr
    assert "px sandbox add magic" in done.stderr
    added = run_px(
        "run", "--sandbox", "--auto-add", "python", "-c", "import wantsmagic as w; print(w.answer)", cwd=root
    )
    assert added.stdout == "42\n"
    assert snapshot(root) == before
    run_px("sandbox", "add", "magic", cwd=root)
    run_px("run", "--sandbox", "python", "-c", "import wantsmagic", cwd=root)


def test_sync_and_pack_add_what_is_missing(tmp_path: Path, warm: Home) -> None:
    sdist = make_sdist(tmp_path, "wantsmagic2", includes="#include <magic.h>", libraries="-lmagic")
    root = write_project(tmp_path / "p", sdist)
    before = snapshot(root)
    assert run_px("sync", "--auto-add", cwd=root, check=False).stderr.startswith("PX041")
    # The lock of a first sync that fails stays: it is right, and took a while.
    failed = run_px("sync", "--sandbox", cwd=root, check=False)
    assert "px sandbox add magic" in failed.stderr
    assert "Nothing was changed" not in failed.stderr
    locked = (root / "uv.lock").read_bytes()
    frozen = run_px("sync", "--sandbox", "--auto-add", cwd=root, check=False, CI="1")
    assert "--auto-add does nothing here: CI is set" in frozen.stderr
    assert snapshot(root) == {**before, "uv.lock": snapshot(root)["uv.lock"]}
    done = run_px("sync", "--sandbox", "--auto-add", cwd=root)
    assert "Added to pyproject.toml: magic (--auto-add)" in done.stderr
    assert "[tool.px.sandbox.capabilities]\nmagic = true" in (root / "pyproject.toml").read_text()
    assert (root / "uv.lock").read_bytes() == locked
    run_px("run", "--sandbox", "python", "-c", "import wantsmagic2", cwd=root, CI="1")


def test_an_image_gets_what_its_build_asks_for(tmp_path: Path, warm: Home) -> None:
    sdist = make_sdist(tmp_path, "wantsmagic3", includes="#include <magic.h>", libraries="-lmagic")
    root = write_project(tmp_path / "p", sdist)
    manifest = root / "pyproject.toml"
    text = manifest.read_text().replace("dependencies = [", "dependencies = []\noptional-dependencies.more = [")
    manifest.write_text(text)
    lock(root)
    run_px("sync", "--sandbox", cwd=root)
    failed = run_px("pack", "image", "--extra", "more", cwd=root, check=False)
    assert "px sandbox add magic" in failed.stderr
    made = run_px("pack", "image", "--extra", "more", "--auto-add", "--tag", "added:1", "--json", cwd=root)
    assert json.loads(made.stdout)["details"]["images"][0]["capabilities"] == ["magic"]
    assert manifest.read_text() == text
    assert run_px("pack", "verify", "added:1", cwd=root).returncode == 0


def test_a_build_that_fails_for_reasons_of_its_own(tmp_path: Path, warm: Home) -> None:
    root = lock(write_project(tmp_path / "p", make_sdist(tmp_path, "broken", includes="#error deliberately broken")))
    done = run_px("run", "--sandbox", "python", "-c", "pass", cwd=root, check=False)
    assert done.returncode == 125
    assert "PX903" in done.stderr
    assert "broken 1.0 could not be built" in done.stderr
    assert "deliberately broken" in done.stderr
    log = log_of(root).read_text()
    assert "deliberately broken" in log


@pytest.mark.parametrize(
    ("version", "fix"),
    [("GLIBC_2.38", 'set [tool.px.sandbox].base = "debian-13"'), ("GLIBC_2.99", "choose an older version of newer")],
)
def test_a_wheel_that_needs_a_newer_c_library_is_caught_by_the_link_check(
    tmp_path: Path, warm: Home, monkeypatch: pytest.MonkeyPatch, version: str, fix: str
) -> None:
    elf = make_elf("libc.so.6", wants=(("libc.so.6", version),))
    name = "newer/_core.cpython-311-x86_64-linux-gnu.so"
    WheelSpec("newer", files={name: elf}, tag="cp311-cp311-manylinux_2_17_x86_64").write(tmp_path / "wheels")
    root = tmp_path / "p"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\nrequires-python = "==3.11.*"\ndependencies = ["newer"]\n'
    )
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    with serving(tmp_path / "wheels") as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        lock(root)
        done = run_px("run", "--sandbox", "python", "-c", "print('ran')", cwd=root, check=False)
    assert (done.returncode, done.stdout) == (125, "")
    for said in ("PX902", version, name, "(newer)", fix):
        assert said in done.stderr


def test_a_target_that_is_a_program_of_a_capability(plain: Path, warm: Home) -> None:
    done = run_px("run", "--sandbox", "pdftotext", "-v", cwd=plain, check=False)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("PX902")
    assert "px sandbox add pdf" in done.stderr
    assert run_px("run", "--sandbox", "--auto-add", "pdftotext", "-v", cwd=plain).returncode == 0
    unknown = run_px("run", "--sandbox", "no-such-program", cwd=plain, check=False).stderr
    assert unknown.startswith("PX020")
    assert "--volume /path/to/no-such-program:/usr/local/bin/no-such-program:ro" in unknown
    assert "an image on top of the project's" in unknown
