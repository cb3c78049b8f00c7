"""What the tests need of a machine, and what happens where it is missing.

``need("skopeo")`` lets the test go on where skopeo works.  Where it does not, root installs it.  If it still does not
work, the test is skipped; the end of the run lists what was not tested, and how to get it.  In CI such a skip is a
failure, so that CI cannot be green without the proof.

``only_for("root", why)`` is the other kind of skip: nothing is missing, the test is about another user or another
machine.  It is the only kind that CI accepts.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from px.engines import limits
from px.warm.spec import Limits
from tests.support import apt, machine
from tests.support.machine import Check, every, runs

# Read when the tests begin: they run without these variables (tests/conftest.py).
IN_CI = any(os.environ.get(name, "").lower() not in ("", "0", "false") for name in ("PX_CI", "CI"))

OCI_SCHEMAS = Path("/usr/share/gocode/src/github.com/opencontainers/image-spec/schema")
GCC = "12.2.0"
"""What the shipped px-init was made by: Debian 12's."""


@dataclass(frozen=True)
class Need:
    """Something that a test uses: how to see whether it works, and where it comes from."""

    check: Check
    packages: tuple[str, ...] = ()
    """Debian's packages that bring it."""
    hint: str = ""
    """What to do where no package helps."""
    in_ci: bool = True
    """Whether CI must have it; what px itself does not depend on may be missing there, and is listed."""
    long: bool = False
    """Whether only long tests use it: then it is not installed along with the rest."""

    @property
    def how(self) -> str:
        return self.hint or apt.command(self.packages)


def _program(*argv: str, packages: tuple[str, ...] = ()) -> Need:
    return Need(runs(*argv), packages or (argv[0],))


NEEDS = {
    "a Debian mirror": Need(machine.debian_mirror, hint="see that its mirror can be reached, or set PX_DEBIAN_MIRROR"),
    "a package index": Need(machine.package_index, hint="see that `uv pip compile` reaches one"),
    "a user to become": Need(runs("setpriv", "--version"), ("util-linux",)),
    "apt of Debian 12 or 13": Need(runs("apt-get", "--version"), hint="run the tests on Debian 12 or 13"),
    "bubblewrap": Need(machine.bubblewrap, hint="px doctor"),
    "bwrap on PATH": _program("bwrap", "--version", packages=("bubblewrap",)),
    "busybox": _program("/bin/busybox", "true", packages=("busybox-static",)),
    "Chromium": Need(runs("chromium", "--version"), ("chromium", "fonts-dejavu-core"), long=True),
    "compilers of px-init": Need(
        every(machine.gcc("x86_64", GCC), machine.gcc("aarch64", GCC)),
        ("gcc", "linux-libc-dev", "gcc-aarch64-linux-gnu", "linux-libc-dev-arm64-cross"),
    ),
    "control groups": Need(machine.control_groups, hint="sudo make test"),
    "CPython 3.12": Need(machine.python("3.12"), hint="pyenv install 3.12", in_ci=False),
    "CPython 3.13": Need(machine.python("3.13"), hint="pyenv install 3.13", in_ci=False),
    "docker-registry": _program("docker-registry", "--version"),
    "dockerd": Need(every(runs("dockerd", "--version"), runs("docker", "--version")), ("docker.io", "docker-cli")),
    "git": _program("git", "--version"),
    "fish": Need(runs("fish", "--version"), ("fish",), long=True),
    "iproute2": _program("ip", "-Version", packages=("iproute2",)),
    "htpasswd": _program("htpasswd", "-nb", "user", "password", packages=("apache2-utils",)),
    "make": _program("make", "--version"),
    "man": Need(runs("man", "--version"), ("man-db",), long=True),
    "musl": _program("musl-gcc", "--version", packages=("musl", "musl-tools", "gcc")),
    "network namespaces": Need(runs("unshare", "--net", "true"), hint="give the tests CAP_SYS_ADMIN"),
    "OCI schemas": Need(machine.directory(OCI_SCHEMAS), ("golang-github-opencontainers-image-spec-dev",)),
    "openssl": _program("openssl", "version"),
    # runc, because podman's usual crun refuses control groups of both versions at once; uidmap, for ordinary users.
    "podman": Need(every(runs("podman", "--version"), runs("runc", "--version")), ("podman", "runc", "uidmap")),
    "PostgreSQL": Need(machine.postgres, ("postgresql",)),
    "qemu": Need(
        every(runs("qemu-aarch64-static", "--version"), runs("qemu-x86_64-static", "--version")), ("qemu-user-static",)
    ),
    "root": Need(machine.root, hint="sudo make test"),
    "skopeo": Need(
        every(runs("skopeo", "--version"), machine.room_for_all),
        ("skopeo",),
        "sudo apt-get install -y skopeo && sudo chmod 1777 /var/tmp",
    ),
    "Slurm": Need(
        every(runs("slurmctld", "-V"), runs("slurmd", "-V"), runs("munged", "--version")),
        ("slurm-wlm", "munge"),
        long=True,
    ),
    "umoci": _program("umoci", "--version"),
    "update-alternatives": _program("update-alternatives", "--version", packages=("dpkg",)),
    "vim": _program("vim.tiny", "--version", packages=("vim-tiny",)),
    "zsh": Need(runs("zsh", "--version"), ("zsh",), long=True),
    "user namespaces": Need(runs("unshare", "--user", "--map-root-user", "true"), hint="px doctor"),
}

SOMEBODY: dict[str, Callable[[], bool]] = {
    "root": lambda: os.geteuid() == 0,
    "an ordinary user": lambda: os.geteuid() != 0,
    "Linux": lambda: sys.platform == "linux",
    "x86-64": lambda: platform.machine() == "x86_64",
    "a mirror that has every shipped pin": lambda: "PX_BASES" not in os.environ,
    "a machine whose systemd makes no groups": lambda: limits.systemd_scope(Limits(pids=5)) is None,
}


def need(*names: str) -> None:
    """Go on with the test if the machine has all of this."""
    __tracebackhide__ = True  # pytest names the line of the test
    for name in names:
        if (why := _problem(name)) is not None:
            lacks(name, why)


def lacks(name: str, why: str) -> NoReturn:
    """End the test: what it needs turned out not to work."""
    __tracebackhide__ = True
    assert name in NEEDS
    pytest.skip(f"needs {name}: {' '.join(why.split())}")


def only_for(who: str, why: str) -> None:
    """Go on with the test if it is about this user or machine; ``why`` it is about no other."""
    __tracebackhide__ = True
    if not SOMEBODY[who]():
        pytest.skip(f"only for {who}: {why}")


@cache
def _problem(name: str) -> str | None:
    needed = NEEDS[name]
    why = needed.check()
    if why is None or not needed.packages:
        return why
    # All that is missing at once; if that fails because of another package, at least this one's.
    refused = apt.install(_packages(needed)) and apt.install(needed.packages)
    why = needed.check()
    return why if why is None or refused is None else f"{why}; {refused}"


def _packages(needed: Need) -> list[str]:
    """What to install now: in CI all that is missing, because one run of apt takes less time than many."""
    wanted = [n for n in NEEDS.values() if n.packages and not n.long and n.check() is not None] if IN_CI else []
    return sorted({package for n in [needed, *wanted] for package in n.packages})


# --- the end of the run ----------------------------------------------------------------------------------------


def judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI a skipped test has failed, unless it is about somebody else."""
    if not IN_CI or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = _reason(report)
    named = re.match(r"needs (.+?): ", reason)
    may_lack = named is not None and named[1] in NEEDS and not NEEDS[named[1]].in_ci
    if not reason.startswith("only for ") and not may_lack:
        report.outcome = "failed"
        report.longrepr = f"CI must not skip this test: {reason}"


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    said = report.longrepr[2] if isinstance(report.longrepr, (tuple, list)) else str(report.longrepr)
    return said.removeprefix("Skipped: ")


def summary(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """A line for each missing need: how many tests lack it, why, and what to do."""
    found = [re.match(r"(?:CI must not skip this test: )?needs (.+?): (.*)", _reason(r)) for r in reports]
    missing = [m for m in found if m is not None and m[1] in NEEDS]
    reasons, counts = {m[1]: m[2] for m in missing}, Counter(m[1] for m in missing)
    return [
        f"{name}: {counts[name]} test{'s' * (counts[name] != 1)}. {why}\n    to get it: {NEEDS[name].how}"
        for name, why in sorted(reasons.items())
    ]
