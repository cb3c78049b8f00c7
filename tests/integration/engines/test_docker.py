"""The docker engine, with a real daemon."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from px.engines.docker import Docker
from px.errors import PxError
from px.warm.spec import ImageSource, Limits, RunSpec
from tests.integration.engines import places
from tests.integration.engines.conftest import ENV, Driver, eventually, make_driver
from tests.integration.engines.test_signals import WAIT, running
from tests.integration.engines.test_terminal import end, job, shell, terminal_of
from tests.support.dockerd import DockerEngine, running_docker
from tests.support.needs import need
from tests.support.rootfs import tar
from tests.support.users import another_user

IMAGE = "px-engine-test:1"


@pytest.fixture(scope="module")
def daemon() -> Iterator[DockerEngine]:
    with running_docker() as engine:
        yield engine


@pytest.fixture(scope="module")
def image(daemon: DockerEngine, layers: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> str:
    archive = tmp_path_factory.mktemp("image") / "root.tar"
    tar(layers[0], archive)
    imported = daemon.run("import", archive, IMAGE).stdout.strip()
    archive.unlink()
    return imported


@pytest.fixture
def box(daemon: DockerEngine, image: str, layers: tuple[Path, ...]) -> Iterator[Driver]:
    for driver in make_driver(layers, os.geteuid()):
        driver.engine = "docker"
        driver.more = {"image": image, "network": False, "label": "test"}
        driver.env["DOCKER_HOST"] = daemon.host
        yield driver


def containers(daemon: DockerEngine) -> list[str]:
    return daemon.run("ps", "-aq").stdout.split()


def test_a_run(box: Driver, daemon: DockerEngine) -> None:
    done = box.run("sh", "-c", "id -un; pwd; hostname; cat; echo err >&2; touch made; exit 3", text="input\n")
    assert (done.returncode, done.stdout) == (3, "px\n/app\nsandbox\ninput\n"), done.stderr
    assert done.stderr == "err\n"
    assert (box.app / "made").stat().st_uid == box.uid
    assert containers(daemon) == []


def test_a_daemon_that_cannot_give_gpus(box: Driver, daemon: DockerEngine) -> None:
    """docker itself says what it lacks: NVIDIA's container toolkit, which no test machine has."""
    done = box.run("true", gpus=("0", "1"))
    assert done.returncode == 125, done.stderr
    assert "gpu" in done.stderr
    assert containers(daemon) == []


def test_files_belong_to_an_ordinary_caller(daemon: DockerEngine, image: str, layers: tuple[Path, ...]) -> None:
    daemon.socket.chmod(0o666)
    for driver in make_driver(layers, another_user(layers[0])):
        driver.engine, driver.more = "docker", {"image": image, "network": False}
        driver.env["DOCKER_HOST"] = daemon.host
        done = driver.run("sh", "-c", "id -un; touch made; touch $HOME/x && echo home")
        assert done.stdout == "px\nhome\n", done.stderr
        assert (driver.app / "made").stat().st_uid == driver.uid


def test_isolation_is_that_of_the_other_engine(box: Driver) -> None:
    done = box.run("grep", "-E", "^(CapEff|CapBnd|NoNewPrivs|Seccomp):", "/proc/self/status")
    assert dict(line.split() for line in done.stdout.splitlines()) == {
        "CapEff:": "0" * 16, "CapBnd:": "0" * 16, "NoNewPrivs:": "1", "Seccomp:": "2",
    }  # fmt: skip
    names = box.python("import socket; print([n for _, n in socket.if_nameindex()])")
    assert names.stdout == "['lo']\n"


def test_variables_mounts_files_and_a_read_only_root(box: Driver) -> None:
    odd = box.directory / 'a,b "c" é'
    odd.mkdir()
    (odd / "f").write_text("content")
    env = {**ENV, "LINES_": "a\nb", "SPACED": " x = 'y' "}
    script = (
        "cat /mnt/f /opt/data; env -0 | grep -z -E '^(LINES_|SPACED)=' | sort -z | tr '\\0' ';'; touch /mnt/x /etc/x"
    )
    done = box.run(
        "sh", "-c", script, env=env, mounts=[[str(odd), "/mnt", True]], files=[["/opt/data", "made"]],
        read_only_root=True, cwd="/",
    )  # fmt: skip
    assert done.stdout == "contentmadeLINES_=a\nb;SPACED= x = 'y' ;"
    assert done.stderr.count("Read-only file system") == 2


def test_limits(box: Driver, daemon: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", daemon.host)
    over = box.python("x = bytearray(300 << 20); print('survived')", limits={"memory": 100 << 20})
    assert (over.returncode, over.stdout) == (137, "")
    spec = RunSpec((), ("true",), {}, limits=Limits(memory=1 << 30, cpus=1.5, pids=7))
    options = Docker().options(spec, "name", box.directory)
    assert options[options.index("--cpus") + 1] == "1.5"
    assert options[options.index("--pids-limit") + 1] == "7"


def test_missing_programs_and_images(box: Driver, daemon: DockerEngine) -> None:
    assert box.run("no-such-program").returncode == 127
    box.more["image"] = "sha256:" + "0" * 64
    done = box.run("true")
    assert done.returncode == 125
    assert "PX906" in done.stderr


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signals_reach_the_target(box: Driver, name: str) -> None:
    code = (
        f"import signal, sys, time; signal.signal(signal.{name}, lambda *a: (print('cleaned up'), sys.exit(5)));"
        f"print('ready', flush=True); {WAIT}"
    )
    with running(box, "python3", "-c", code) as process:
        process.send_signal(getattr(signal, name))
        out, _ = process.communicate(timeout=30)
        assert (out, process.returncode) == ("cleaned up\n", 5)


def test_the_container_goes_when_px_is_killed(box: Driver, daemon: DockerEngine) -> None:
    with running(box, "sh", "-c", "echo ready; sleep 1000") as process:
        assert len(containers(daemon)) == 1
        process.kill()
        eventually("the end of the container", lambda: not containers(daemon))


def test_a_terminal(box: Driver) -> None:
    code = (
        f"import os, time\ntry:\n    print('ready', {{os.ttyname(fd) for fd in (0, 1, 2)}}, flush=True); {WAIT}\n"
        "except KeyboardInterrupt:\n    print('caught', 'it')"
    )
    terminal = terminal_of(box, "python3", "-c", code, tee=True)
    terminal.expect("ready {'/dev/pts/0'}")
    terminal.type("\x1a")  # it has no shell that could make it go on, so it does not stop
    terminal.type("\x03")
    terminal.expect("caught it")
    assert terminal.wait() == 0


def test_a_shell_has_its_jobs(box: Driver) -> None:
    terminal = terminal_of(box, "bash", "--norc", "-i")
    terminal.expect("bash-.*[#$] ")
    terminal.type("sh -c 'echo be''gun; sleep 1000'\n")
    terminal.expect("begun")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.type("kill -9 %1\nexit 4\nexit 4\n")  # the first exit may be told that there are stopped jobs
    assert terminal.wait() == 4


def test_partly_a_terminal(box: Driver) -> None:
    """Then none, because docker would mix the streams."""
    terminal = shell(box)
    program = job(box, "sh", "-c", "test -t 1 || echo out; echo err >&2", tee=True)
    terminal.type(f"{program} 2>{box.directory}/err; cat {box.directory}/err; echo over\n")
    terminal.expect(r"\nout\r\n(kept: err\r\n)?err\r\nover")
    end(terminal)


def test_an_image_is_loaded_once(
    daemon: DockerEngine, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", daemon.host)
    small = tmp_path / "small.tar"
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_text("x")
    tar(tmp_path / "tree", small)
    name = daemon.run("import", small, "px-small:1").stdout.strip()
    daemon.run("save", "-o", tmp_path / "saved.tar", "px-small:1")
    daemon.run("rmi", "px-small:1")
    asked = []

    def archive() -> Path:
        asked.append(1)
        return tmp_path / "saved.tar"

    spec = RunSpec((), ("/file",), {}, image=ImageSource((name,), archive))
    engine = Docker()
    assert engine.load(spec) == name
    assert engine.load(spec) == name
    assert asked == [1]
    broken = spec.replace(image=ImageSource(("sha256:" + "1" * 64,), lambda: tmp_path / "tree/file"))
    with pytest.raises(PxError, match="PX906"):
        engine.load(broken)


def test_px_inside_a_container(box: Driver, daemon: DockerEngine, image: str) -> None:
    """bubblewrap in a container: refused with the reason by default, works with the options that px names."""
    import sys

    from tests.conftest import REPO

    need("bubblewrap")
    site = Path(sys.executable).parent.parent / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    inner = Driver(box.layers, box.directory, box.uid)
    command = inner.command(("echo", "nested"), network=False)[1:]
    mounts = [o for p in (REPO, site, box.directory, box.layers[0]) for o in ("--volume", f"{p}:{p}")]
    base = ["run", "--rm", "--network", "none", "--env", f"PX_HOME={box.directory}/inner", *mounts,
            "--env", f"PYTHONPATH={REPO}/src:{site}/site-packages"]  # fmt: skip
    refused = daemon.run(*base, image, "/usr/bin/python3", *command, check=False)
    assert refused.returncode == 125
    assert "inside a container" in refused.stderr
    assert "systempaths=unconfined" in refused.stderr
    options = [o for s in ("seccomp", "apparmor", "systempaths") for o in ("--security-opt", f"{s}=unconfined")]
    allowed = daemon.run(*base, *options, image, "/usr/bin/python3", *command, check=False)
    assert allowed.stdout == "nested\n", allowed.stderr


def test_no_daemon_is_said_with_the_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    problem = Docker().problem()
    assert problem is not None
    assert problem.fix


def test_files_for_the_container_are_gone_afterwards(box: Driver) -> None:
    box.env["TMPDIR"] = str(box.directory)
    assert box.run("true", files=[["/opt/data", "made"]]).returncode == 0
    assert not list(box.directory.glob("px-files-*"))


def test_places_of_the_host_in_the_working_tree(box: Driver) -> None:
    places.check(box)
