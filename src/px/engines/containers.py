"""What docker and podman have in common: the packed image is loaded once, and a run is one ``run`` command.

The isolation is that of the bubblewrap engine as far as the client can say it: no capabilities, no new privileges,
the client's own seccomp filter, private /tmp and HOME, nothing of the host but what the spec names.  The client is a
child of px that may outlive it, so a small shell watches: when px is gone without a word, it removes the container.
"""

from __future__ import annotations

import csv
import io
import os
import secrets
import subprocess
import tempfile
from abc import abstractmethod
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from px import DATA, console
from px.engines.network.refusals import address_and_port
from px.engines.network.rules import parse_publish
from px.engines.protocol import Problem, failed_to_start
from px.errors import PxError
from px.process import run
from px.warm import arguments, places, supervise
from px.warm.spec import DataFile, Reach, RunSpec
from px.warm.streams import Streams, are_one_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from px.warm.spec import AnyPath, Mount
    from px.warm.streams import Sink

INIT = Path(DATA, "init", os.uname().machine)
"""px-init for this machine's own kind of processor."""
# $1 is the client, $2 the container, $3 the directory of its files; standard input ends when px does.
_WATCH = """
read -r client || exit 0
read -r word && exit 0
kill -9 "$client" 2>/dev/null
for try in 1 2 3 4 5 6 7 8 9 10; do
    "$1" rm -f "$2" >/dev/null 2>&1 && break
    sleep 0.5
done
rm -rf "$3"
"""


class Containers:
    """An engine that is another program with a ``run`` command of docker's form."""

    name: str

    @cached_property
    def _client(self) -> str | None:
        return places.program(self.name)

    @cached_property
    def _problem(self) -> Problem | None:
        return self.check()

    def problem(self) -> Problem | None:
        return self._problem

    @property
    def client(self) -> str:
        found = self.problem()
        if self._client is None or found is not None:
            raise PxError("PX905", why=[found.reason] if found else (), fix=found.fix if found else ())
        return self._client

    @abstractmethod
    def check(self) -> Problem | None:
        """Ask the client whether it works."""

    @abstractmethod
    def identity(self, spec: RunSpec) -> tuple[list[str], int, int]:
        """The options by which files of the target belong to the caller, and who the target then is inside."""

    def private_directory(self, path: str, uid: int, gid: int) -> list[str]:
        """Options for a temporary file system that belongs to the target."""
        return ["--tmpfs", f"{path}:exec,mode=0700,uid={uid},gid={gid}"]

    @abstractmethod
    def gpus(self, names: tuple[str, ...]) -> list[str]:
        """Options for these GPUs, or for ``all``."""

    def special(self) -> list[str]:
        """Further options that only this client needs."""
        return []

    def first_process(self, spec: RunSpec) -> tuple[str, ...]:
        """What the image is started with: the target, below an init that the options name."""
        return spec.argv

    # --- images ------------------------------------------------------------------------------------------------

    def load(self, spec: RunSpec) -> str:
        """The client's name for the spec's image, loaded if it is not there."""
        if spec.image is None:
            raise PxError("PX906", engine=self.name, problem="it runs packed images, and this run has none")
        for name in spec.image.names:
            if run([self.client, "image", "inspect", name]).ok:
                console.detail(f"{self.name} has image {name}")
                return name
        archive = spec.image.archive()
        loading = f"Loading the image into {self.name}"
        console.info(f"{loading} …")
        done = run([self.client, "load", "--quiet", "--input", archive], doing=loading)
        if not done.ok:
            raise PxError("PX906", engine=self.name, problem="the image could not be loaded", why=[done.stderr.strip()])
        for name in (*spec.image.names, done.stdout.strip().rpartition(": ")[2].rpartition("\n")[2]):
            if name and run([self.client, "image", "inspect", name]).ok:
                return name
        raise PxError("PX906", engine=self.name, problem=f"after loading {archive} the image is not there")

    # --- running -----------------------------------------------------------------------------------------------

    def run(self, spec: RunSpec, *, stdin: int | None = None, stdout: Sink = None, stderr: Sink = None) -> int:
        image = self.load(spec)
        container = f"px-{secrets.token_hex(6)}"
        with (
            tempfile.TemporaryDirectory(prefix="px-files-") as files,
            Streams(stdin, stdout, stderr) as streams,
            self._watcher(container, files) as watcher,
        ):
            argv = [self.client, *self.options(spec, container, Path(files)), image, *self.first_process(spec)[1:]]
            started: list[int] = []

            def after_fork(pid: int) -> None:
                started.append(pid)
                streams.started()
                watcher(f"{pid}\n")

            supervisor = supervise.Supervisor(lambda: started[0], spec.tty)
            # A Go program honours the signal mask that it starts with, so it gets an empty one.
            command = supervise.Command(argv, dict(os.environ), (), streams.fds, blocked=())
            code = supervisor.run(command, after_fork)
            if code == 125 and not Path(files, "cid").exists():
                raise failed_to_start(self.name)
            return code

    @contextmanager
    def _watcher(self, container: str, files: str) -> Iterator[Callable[[str], None]]:
        with subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "px-watch", self.client, container, files],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        ) as process:

            def tell(line: str) -> None:
                if process.stdin is not None:
                    process.stdin.write(line)
                    process.stdin.flush()

            try:
                yield tell
            finally:
                tell("0\ndone\n")

    def options(self, spec: RunSpec, container: str, files: Path) -> list[str]:
        identity, uid, gid = self.identity(spec)
        made = _write_files(files, spec, uid, gid)
        return [
            *("run", "--rm", "--interactive", "--pull", "never", "--log-driver", "none"),
            *("--name", container, "--cidfile", str(files / "cid"), "--label", f"px.sandbox={spec.label}"),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", *identity),
            # Under SELinux the working tree would be out of reach, and relabelling the user's files is not px's to do.
            *("--security-opt", "label=disable"),
            *("--hostname", spec.hostname, "--workdir", spec.cwd),
            *("--entrypoint", self.first_process(spec)[0]),
            *(("--tty",) if spec.tty and are_one_terminal((0, 1, 2)) else ()),
            *network_options(spec, self.name),
            *_limits(spec),
            *(self.gpus(spec.gpus) if spec.gpus else ()),
            *_temporary(spec),
            *self.private_directory(spec.home, uid, gid),
            *(o for m in spec.mounts if _is_there(m) for o in bind(m.source, m.target, read_only=m.read_only)),
            *(o for target in spec.hidden for o in bind(_empty(files), target, read_only=True)),
            *(o for path, target in made for o in bind(path, target, read_only=True)),
            *_environment(spec, files),
            *self.special(),
        ]


def network_options(spec: RunSpec, engine: str) -> list[str]:
    """The engine's own network, or none; px's relay has no way into it."""
    reach = spec.reach or Reach()
    if spec.network:
        published = map(parse_publish, reach.publish)
        return [o for p in published for o in ("--publish", f"{address_and_port(p.host, p.port)}:{p.inside}")]
    if spec.reach is not None:
        flag = "--publish with --network none" if reach.publish else "--network allow"
        raise PxError("PX917", engine=engine, flag=flag)
    return ["--network", "none"]


def _limits(spec: RunSpec) -> list[str]:
    options = []
    if spec.limits.memory is not None:
        options += ["--memory", str(spec.limits.memory), "--memory-swap", str(spec.limits.memory)]
    if spec.limits.cpus is not None:
        options += ["--cpus", f"{spec.limits.cpus:g}"]
    if spec.limits.pids is not None:
        options += ["--pids-limit", str(spec.limits.pids)]
    return options


def _temporary(spec: RunSpec) -> list[str]:
    # Both clients mount temporary file systems without `exec` unless told.
    options = ["--tmpfs", "/tmp:exec,mode=1777", "--tmpfs", "/var/tmp:exec,mode=1777"]  # noqa: S108
    if spec.read_only_root:
        options += ["--read-only", "--tmpfs", "/run:mode=0755"]
    return options


def _csv(*fields: str) -> str:
    """``--mount`` takes a line of CSV, so that paths may contain commas."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def bind(source: AnyPath, target: str, *, read_only: bool) -> list[str]:
    """The option that shows a file or directory of this machine."""
    fields = ["type=bind", f"source={source}", f"target={target}", *(["readonly"] if read_only else [])]
    return ["--mount", _csv(*fields)]


def _is_there(mount: Mount) -> bool:
    """Not for what px added and the target may have removed, or replaced by a link to the host's files."""
    return not mount.own or (os.path.exists(mount.source) and os.path.realpath(mount.source) == os.fspath(mount.source))


def _empty(files: Path) -> Path:
    # Not a tmpfs: podman copies into one what it covers.
    directory = files / "empty"
    directory.mkdir(mode=0o555, exist_ok=True)
    return directory


def _write_files(directory: Path, spec: RunSpec, uid: int, gid: int) -> list[tuple[Path, str]]:
    """The spec's own files, and a passwd and group in which the target finds itself."""
    name = spec.user.name
    # The target's line comes first: when px is root's, both lines are for the same number.
    passwd = f"{name}:x:{uid}:{gid}::{spec.home}:/bin/sh\nroot:x:0:0:root:/root:/bin/sh\n"
    wanted = [
        *spec.files,
        *arguments.trust_files(spec),
        DataFile("/etc/passwd", passwd.encode()),
        DataFile("/etc/group", f"{name}:x:{gid}:\nroot:x:0:\n".encode()),
    ]
    directory.chmod(0o755)  # the target is perhaps not the user who owns it
    made = []
    for number, file in enumerate(wanted):
        path = directory / str(number)
        path.write_bytes(file.content)
        path.chmod(0o444)
        made.append((path, file.target))
    return made


def _environment(spec: RunSpec, files: Path) -> list[str]:
    """Variables go through a file, where ``ps`` does not show them; that format has no line breaks."""
    variables = arguments.environment(spec)
    plain = {name: value for name, value in variables.items() if "\n" not in value}
    path = files / "env"
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in plain.items()))
    others = [o for name, value in variables.items() if name not in plain for o in ("--env", f"{name}={value}")]
    return ["--env-file", str(path), *others]
