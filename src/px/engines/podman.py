"""The podman engine."""

from __future__ import annotations

import os
import resource
import sys
from typing import TYPE_CHECKING

from px.engines.containers import INIT, Containers
from px.engines.protocol import Problem
from px.process import run

if TYPE_CHECKING:
    from px.warm.spec import RunSpec


class Podman(Containers):
    """Runs the packed image with podman, as root or rootless."""

    name = "podman"

    def check(self) -> Problem | None:
        if self._client is None:
            return Problem("podman is not installed", ("Install it: https://podman.io/docs/installation",))
        asked = run([self._client, "info", "--format", "{{.Host.OCIRuntime.Name}} {{.Host.CgroupsVersion}}"])
        if not asked.ok:
            said = asked.stderr.strip().splitlines()
            return Problem(said[-1] if said else f"podman info ended with code {asked.code}", ("Run: podman info",))
        runtime, _, cgroups = asked.stdout.strip().partition(" ")
        if runtime == "crun" and cgroups == "v1" and os.path.isdir("/sys/fs/cgroup/unified"):
            return Problem(
                "podman's runtime crun does not work with control groups of both versions at once (hybrid mode)",
                ('Use runc: install it and set runtime = "runc" under [engine] in containers.conf',),
            )
        return None

    def identity(self, spec: RunSpec) -> tuple[list[str], int, int]:
        """Rootless podman maps the caller to any id; as root it maps nothing, like docker."""
        if os.geteuid() == 0:
            return ["--user", f"{os.getuid()}:{os.getgid()}"], os.getuid(), os.getgid()
        uid, gid = spec.user.uid, spec.user.gid
        return ["--userns", f"keep-id:uid={uid},gid={gid}", "--user", f"{uid}:{gid}"], uid, gid

    def gpus(self, names: tuple[str, ...]) -> list[str]:
        return [o for name in names for o in ("--device", f"nvidia.com/gpu={name}")]

    def private_directory(self, path: str, uid: int, gid: int) -> list[str]:  # noqa: ARG002
        # podman has no option that gives a temporary file system to a user; nobody else is in there.
        return ["--tmpfs", f"{path}:exec,mode=1777"]

    def special(self) -> list[str]:
        """Bounds that this caller may set.

        podman asks for a million open files and 32768 processes, whoever runs it, and fails where it may not raise
        its own bounds to that; the second is also the most that it leaves to itself.
        """
        # Its own init is a package that many installations lack; px's serves as well.
        options = ["--init", *(("--init-path", str(INIT)) if sys.platform == "linux" else ())]
        for name, kind, most in (
            ("nofile", resource.RLIMIT_NOFILE, 1 << 20),
            ("nproc", resource.RLIMIT_NPROC, 1 << 15),
        ):
            hard = resource.getrlimit(kind)[1]
            value = most if hard == resource.RLIM_INFINITY else min(hard, most)
            options += ["--ulimit", f"{name}={value}:{value}"]
        return options
