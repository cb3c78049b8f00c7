"""The command line itself: help, flags, targets, exit codes, completions."""

from __future__ import annotations

import argparse
import errno
import json
import os
import subprocess
from pathlib import Path

import pytest

from px import __version__, console
from px.__main__ import main
from px.cli.commands import run as run_command
from px.cli.commands import sandbox_pin
from px.cli.main import COMMANDS, ELSEWHERE, GROUPS, make_parser, run
from px.cli.page import deliver
from px.errors import EXIT_INTERNAL
from px.warm.target import OnHost, resolve
from px.workflow.run import unknown_program
from tests.support.px import PX, run_px


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"px {__version__}\n"


@pytest.mark.parametrize(
    ("words", "gpu", "rest"),
    [
        ("--sandbox --gpu train.py --gpu", "all", ["train.py", "--gpu"]),
        ("--gpu=2 --sandbox train.py", "2", ["train.py"]),
        ("--sandbox --gpu 2 train.py 3", "2", ["train.py", "3"]),
        ("--sandbox --gpu all train.py", "all", ["train.py"]),
        ("--sandbox -e A=1 --gpu --network none x", "all", ["x"]),
        ("--sandbox x --gpu", None, ["x", "--gpu"]),
    ],
)
def test_a_flag_whose_value_may_be_left_out(words: str, gpu: str | None, rest: list[str]) -> None:
    parser = make_parser("run")
    run_command.configure(parser)
    args = parser.parse_args(run_command.arrange(parser, words.split()))
    assert (args.gpu, [args.target, *args.arguments]) == (gpu, rest)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert name in text
        assert command.summary in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as caught:
        run([*name.split(" "), "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "--json" in text
    assert COMMANDS[name].summary in text
    assert [line for line in text.splitlines() if len(line) > 80 and line[0] != " "] == []


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_alone_lists_its_commands(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([group]) == 2
    text = capsys.readouterr().out
    assert all(n in text for n in COMMANDS if n.startswith(group + " "))


def test_a_misspelt_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stats"]) == 2
    assert "px status" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "command"), [("install", "add"), ("install", "sync"), ("lock", "sync"), ("audit", "sandbox audit")]
)
def test_a_word_of_another_tool(word: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([word]) == 2
    assert f"px {command} " in capsys.readouterr().err


@pytest.mark.parametrize("word", ELSEWHERE)
def test_the_words_of_other_tools_lead_to_commands(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert word not in {**COMMANDS, **GROUPS}
    assert run([word, "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["details"]["code"] == "usage"
    assert answer["details"]["hint"].count("\n") == len(ELSEWHERE[word])


def test_dockers_flag_for_volumes_is_explained(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.11"\n')
    run_px("sync", cwd=tmp_path)
    done = run_px("run", "-v", "/data:/data", "ls", cwd=tmp_path, check=False)
    assert "PX040  -v /data:/data: -v is --verbose; a volume is --volume" in done.stderr
    assert "px run --sandbox --volume /data:/data ls" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("sync --nonsense", "px sync: unrecognized arguments: --nonsense\nhint: `px sync --help`"),
        ("sync --sandboxed", "did you mean --sandbox?"),
        ("run --with rich python", "hint: `px run --help`"),
        ("run --volumes=a:b ls", "did you mean --volume?"),
        ("run", "px run: the following arguments are required: TARGET\nhint: `px run --help`"),
    ],
)
def test_what_a_command_does_not_take_is_a_usage_error(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--json", *words.split()]) == 2
    answer = capsys.readouterr()
    assert said in answer.err
    assert json.loads(answer.out)["status"] == "error"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-q"], "the command is missing"),
        (["--project", "x"], "the command is missing"),
        (["--odd"], "unknown flag --odd"),
    ],
)
def test_flags_without_a_command(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(flags) == 2
    assert said in capsys.readouterr().err


def test_a_project_directory_that_is_not_there(tmp_path: Path) -> None:
    done = run_px("--project", "nowhere", "status", cwd=tmp_path, check=False)
    assert done.returncode == 121
    assert "nowhere: there is no such directory" in done.stderr


def test_a_project_above_is_not_the_one_here(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\n')
    assert run_px("--project", "..", "status", cwd=tmp_path / "a").stdout.startswith(f"No project at {tmp_path}\n")


def test_a_project_is_started_above(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    said = run_px("init", "../b", cwd=tmp_path / "a").stderr
    assert f"Started b at {tmp_path}/b/pyproject.toml\n" in said


def test_help_breaks_no_name_at_a_hyphen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = make_parser("sandbox pin")
    sandbox_pin.configure(parser)
    assert "px-pins.json" in parser.format_help()


def test_what_a_path_counts_from() -> None:
    assert [line for line in unknown_program("a/b.py").fix if f"it counts from {os.getcwd()}" in line]
    assert not [line for line in unknown_program("/a/b.py").fix if "it counts from" in line]


def test_a_page_lies_where_its_path_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far" / "folder").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "far" / "folder")
    monkeypatch.chdir(tmp_path / "here")
    for given, path in (("link/../a.html", "far/a.html"), ("../b.html", "b.html"), ("c.html", "here/c.html")):
        asked = argparse.Namespace(html=given, open=False)
        assert deliver(asked, lambda: b"page") == str(tmp_path / path)
        assert (tmp_path / path).read_bytes() == b"page"


def test_a_manifest_without_a_project_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.linter]\nstrict = true\n")
    for command in ("sync", "init"):
        said = run_px(command, cwd=tmp_path, check=False).stderr
        assert said.startswith("PX005")
        assert '\n      [project]\n      name = "NAME"\n' in said
    assert "[project]" in run_px("status", cwd=tmp_path).stdout
    (tmp_path / "pyproject.toml").write_text('[tool.poetry]\nname = "a"\n')
    for command in ("sync", "init", "status"):
        done = run_px(command, cwd=tmp_path, check=False)
        assert "uvx migrate-to-uv" in done.stderr + done.stdout
        assert 'name = "NAME"' not in done.stderr


def test_a_project_cannot_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ("file", "file/below"):
        done = run_px("init", path, cwd=tmp_path, check=False)
        assert done.returncode == 121
        assert done.stderr.startswith("PX040")


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.11"\n')
    (tmp_path / "file").write_text("")
    done = run_px("sync", cwd=tmp_path, check=False, PX_HOME=str(tmp_path / "file"))
    assert done.returncode == 124
    assert done.stderr.startswith("PX811")


@pytest.mark.parametrize(("closed", "out"), [("2>&-", "No project"), (">&-", ""), (">&- 2>&-", "")])
def test_an_output_that_the_caller_closed(tmp_path: Path, closed: str, out: str) -> None:
    command = ["sh", "-c", f"{PX} status {closed}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(out)


@pytest.mark.parametrize("piped", ["stdout", "stderr"])
def test_only_a_terminal_gets_colours(tmp_path: Path, piped: str) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.11"\n')
    ours, theirs = os.openpty()
    environment = {"PATH": os.environ["PATH"], "PX_HOME": str(tmp_path / "home"), "TERM": "xterm"}
    out, err = (subprocess.PIPE if piped == name else theirs for name in ("stdout", "stderr"))
    done = subprocess.run([PX, "status"], cwd=tmp_path, env=environment, stdout=out, stderr=err, check=True)
    os.close(theirs)
    assert b"\x1b[" not in (done.stdout or done.stderr)
    if piped == "stderr":
        assert os.read(ours, 4096).startswith(b"\x1b[1ma 1\x1b[0m")
    else:
        assert b"\n  lock     none\n" in done.stdout
    os.close(ours)


def test_errors_go_to_stderr_and_json_to_stdout(tmp_path: Path) -> None:
    done = run_px("sync", "--json", cwd=tmp_path, check=False)
    assert done.returncode == 121
    assert done.stderr.startswith("PX001")
    answer = json.loads(done.stdout)
    assert answer["status"] == "error"
    assert answer["details"]["code"] == "PX001"
    assert answer["details"]["fix"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions(shell: str, tmp_path: Path) -> None:
    script = run_px("completions", shell, cwd=tmp_path).stdout
    assert f"px completion for {shell}" in script
    assert json.loads(run_px("completions", shell, "--json", cwd=tmp_path).stdout)["details"]["script"] == script


def test_completing_a_line_in_bash(tmp_path: Path) -> None:
    """The shells themselves, with a terminal, are in tests/integration/test_shells.py."""
    (tmp_path / "script.py").write_text("")
    script = run_px("completions", "bash", cwd=tmp_path).stdout
    for line in ("px store g", "px run scr"):
        script += f'\nCOMP_WORDS=({line}); COMP_CWORD={len(line.split()) - 1}; _px; echo "${{COMPREPLY[@]}}"'
    env = {**os.environ, "PATH": f"{PX.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "gc\nscript.py\n"


@pytest.mark.parametrize("arguments", [["--help"], ["sandbox", "list"], ["doctor", "--json"]])
def test_an_answer_that_nobody_can_take(arguments: list[str], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PX, *arguments], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 120
    assert done.stderr == "px: the answer cannot be written: No space left on device\n"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        done = subprocess.run(
            [PX, *arguments], cwd=tmp_path, stdout=gone, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_a_sandbox_that_cannot_be_started_is_no_answer_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_process(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("px.warm.start._run_in_sandbox", no_process)
    monkeypatch.setattr("px.workflow.run.run_in_sandbox", no_process)
    monkeypatch.setattr("sys.argv", ["px", "run", "--sandbox", "python"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == EXIT_INTERNAL
    assert "temporarily unavailable" in capsys.readouterr().err


def test_a_terminal_that_lacks_a_sign(tmp_path: Path) -> None:
    (tmp_path / "größe").mkdir()
    done = run_px("status", cwd=tmp_path / "größe", PYTHONIOENCODING="ascii")
    assert "gr\\xf6\\xdfe" in done.stdout


@pytest.fixture
def places(tmp_path: Path) -> Path:
    for directory in ("cwd/package", "bin", "other"):
        (tmp_path / directory).mkdir(parents=True)
    for name in ("bin/python", "bin/python3", "bin/tool", "other/tool", "other/program", "cwd/run.sh"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "cwd/script.py").write_text("")
    (tmp_path / "cwd/package/__main__.py").write_text("")
    return tmp_path


def test_targets_in_their_order(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(places / "cwd")
    binaries = str(places / "bin")

    def found(target: str) -> list[str] | None:
        return resolve(target, ["-x", "--json"], OnHost(binaries, f"{binaries}:{places / 'other'}"))

    python = f"{binaries}/python"
    assert found("script.py") == [python, "script.py", "-x", "--json"]
    assert found("package") == [python, "package", "-x", "--json"]
    assert found("run.sh") == ["./run.sh", "-x", "--json"]
    assert found("python") == [python, "-x", "--json"]
    assert found("python3") == [f"{binaries}/python3", "-x", "--json"]
    assert found("python3.99") is None
    assert found("tool") == [f"{binaries}/tool", "-x", "--json"]
    assert (found("program") or [""])[0].endswith("other/program")
    assert found("nothing") is None
    assert found("./nothing") is None
    (places / "bin/package").symlink_to("tool")
    assert found("package") == [f"{binaries}/package", "-x", "--json"], "as uv does: scrapy and its directory scrapy"
    assert found("package/") == [python, "package/", "-x", "--json"]
    monkeypatch.chdir(places / "cwd/package")
    assert found(".") == [python, ".", "-x", "--json"]
    monkeypatch.chdir(places / "cwd")
    (places / "cwd" / "tool").write_text("print()")
    assert found("tool") == [python, "tool", "-x", "--json"], "a file here comes before a script of the env"


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("https://user:secret@host/simple/", "https://host/simple/"),
        ("git+https://token@host/x.git failed", "git+https://host/x.git failed"),
        ("https://host/a?X-Amz-Signature=secret&b=1", "https://host/a?X-Amz-Signature=***&b=1"),
        ("https://host/a?access_token=secret", "https://host/a?access_token=***"),
        ("https://user:p@ss@host/simple/", "https://host/simple/"),
        ("https://host/a@b, https://user@other", "https://host/a@b, https://other"),
        ("mail me@host", "mail me@host"),
    ],
)
def test_secrets_are_taken_out_of_urls(text: str, safe: str) -> None:
    assert console.redact(text) == safe


def test_nothing_to_reap_is_said(tmp_path: Path) -> None:
    done = run_px("sandbox", "reap", "--run", "no-such-run", cwd=tmp_path)
    assert done.stderr == "There is nothing to end\n"


def test_extras_that_exclude_each_other(tmp_path: Path) -> None:
    lines = ["[project]", 'name = "a"', 'version = "1"', 'requires-python = ">=3.11"']
    lines += ["[project.optional-dependencies]", "old = []", "new = []"]
    lines += ["[tool.uv]", 'conflicts = [[{ extra = "old" }, { extra = "new" }]]']
    (tmp_path / "pyproject.toml").write_text("\n".join(lines))
    said = run_px("sync", "--all-extras", cwd=tmp_path, check=False).stderr
    assert "  • Name one of them only, with --extra or --group" in said
