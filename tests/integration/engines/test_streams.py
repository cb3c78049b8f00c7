"""Files on the standard streams.  The target gets pipes (tests/integration/attacks says why); the caller sees files."""

from __future__ import annotations

import resource
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.integration.engines.conftest import Driver

BIG = b"".join(b"%d\n" % number for number in range(200_000))


def in_shell(box: Driver, line: str, *argv: str, **fields: object) -> subprocess.CompletedProcess[str]:
    """Run ``line`` of a host's shell, in which ``$JOB`` is a run of ``argv`` in a sandbox."""
    command = shlex.join(box.command(argv, **fields))
    return subprocess.run(
        ["bash", "-c", line.replace("$JOB", command)],
        cwd=box.directory,
        env=box.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_file_on_standard_input_is_read_to_its_end(box: Driver) -> None:
    (box.directory / "data").write_bytes(BIG)
    done = in_shell(box, "$JOB < data", "sha256sum")
    expected = subprocess.run(["sha256sum"], input=BIG, capture_output=True, check=True).stdout.decode()
    assert (done.stdout, done.returncode) == (expected, 0)


@pytest.mark.parametrize(("target", "taken"), [("true", 0), ("head -c 2", 2), ("head -c 500000", 500_000), ("cat", -1)])
def test_the_callers_place_in_a_file_is_where_the_target_stopped(box: Driver, target: str, taken: int) -> None:
    (box.directory / "data").write_bytes(BIG)
    done = in_shell(box, "($JOB >/dev/null; wc -c) < data", *target.split())
    assert int(done.stdout) == (len(BIG) - taken if taken >= 0 else 0)


def test_a_loop_over_the_lines_of_a_file_sees_each(caller: Driver) -> None:
    (caller.directory / "lines").write_text("one\ntwo\nthree\n")
    done = in_shell(caller, "while read line; do $JOB; echo $line; done < lines", "true")
    assert done.stdout == "one\ntwo\nthree\n"


def test_output_into_files_is_complete_and_added_where_it_should_be(box: Driver) -> None:
    code = f"import sys; sys.stdout.write('y' * {1 << 22}); sys.stderr.write('said')"
    done = in_shell(box, "echo before > log; ($JOB >> log 2> err); echo after >> log", "python3", "-c", code)
    assert done.returncode == 0, done.stderr
    assert (box.directory / "log").read_text() == "before\n" + "y" * (1 << 22) + "after\n"
    assert (box.directory / "err").read_text() == "said"


@pytest.mark.parametrize("tee", [False, True])
@pytest.mark.parametrize("line", ["$JOB > both 2>&1", "$JOB 2>&1 | cat > both"])
def test_both_outputs_in_one_place_keep_their_order(caller: Driver, line: str, tee: bool) -> None:
    code = "import os\nfor i in range(500): os.write(1 + i % 2, b'%d\\n' % i)"
    in_shell(caller, line, "python3", "-c", code, tee=tee)
    expected = "".join(f"{i}\n" for i in range(500))
    assert (caller.directory / "both").read_text() == expected + (f"kept: {expected}" if tee else "")


def test_standard_output_can_be_searched(caller: Driver) -> None:
    done = in_shell(caller, "$JOB", "sh", "-c", "echo out; echo err >&2", tee="both")
    assert sorted(done.stdout.split()) == ["err", "kept:", "out", "out"]
    assert done.stderr == "err\n"


def test_output_that_does_not_fit_is_an_error(caller: Driver) -> None:
    out = caller.directory / "out"
    command = caller.command(("head", "-c", "1000000", "/dev/zero"))

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    with out.open("wb") as f:
        done = subprocess.run(
            command,
            env=caller.environment(),
            stdin=subprocess.DEVNULL,
            stdout=f,
            stderr=subprocess.PIPE,
            preexec_fn=bound,
            text=True,
            check=False,
        )
    assert done.returncode == 125
    assert done.stderr.startswith(
        "PX910  Not everything that the target wrote could be passed on: standard output: File"
    )
    assert out.stat().st_size == 100_000


def test_a_reader_that_has_enough_ends_the_target(caller: Driver) -> None:
    done = in_shell(caller, "$JOB 2>&1 | head -n 1; echo ${PIPESTATUS[0]}", "yes", tee=True)
    assert done.stdout == "y\n141\n"


def test_streams_that_the_caller_closed(caller: Driver) -> None:
    out = caller.directory / "out"
    assert in_shell(caller, "$JOB 2>&- >out", "sh", "-c", "echo word", tee=True).returncode == 0
    assert Path(out).read_text().startswith("word\n")
