"""The parts of the engines that need no sandbox: paths in layers, limits' settings, host files, arguments."""

from __future__ import annotations

import os
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest

from px.engines import limits
from px.engines.podman import Podman
from px.errors import PxError
from px.warm import arguments
from px.warm.links import Layers
from px.warm.spec import Limits, Mount, Reach, RunSpec


@pytest.fixture
def stack(tmp_path: Path) -> tuple[Path, ...]:
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    (lower / "usr/bin").mkdir(parents=True)
    (lower / "run").mkdir()
    (lower / "var").mkdir()
    (lower / "bin").symlink_to("usr/bin")
    (lower / "var/run").symlink_to("/run")
    (lower / "up").symlink_to("../../../../etc")
    (lower / "loop").symlink_to("loop")
    (lower / "shadowed").symlink_to("/oldroot")
    (upper / "shadowed").mkdir(parents=True)
    return lower, upper


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "/"), ("/bin/sh", "/usr/bin/sh"), ("/var/run/x", "/run/x"), ("/up/x", "/etc/x"), ("/a/./b//c", "/a/b/c"),
        ("/a/../../b", "/b"), ("/shadowed/x", "/shadowed/x"), ("/new/place", "/new/place"),
    ],
)  # fmt: skip
def test_paths_resolve_as_inside(stack: tuple[Path, ...], path: str, expected: str) -> None:
    assert Layers(stack).resolve(path) == expected


def test_a_loop_of_links_is_an_error(stack: tuple[Path, ...]) -> None:
    with pytest.raises(PxError, match="loop"):
        Layers(stack).resolve("/loop/x")


def test_settings_of_both_kinds_of_control_groups() -> None:
    bounds = Limits(memory=1 << 30, cpus=1.5, pids=10)
    v2 = dict(limits.v2_settings(bounds))
    assert (v2["memory.max"], v2["cpu.max"], v2["pids.max"]) == ("1073741824", "150000 100000", "11")
    assert dict(limits.v1_settings(bounds, "cpu")) == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"}
    assert dict(limits.v1_settings(bounds, "memory"))["memory.limit_in_bytes"] == "1073741824"
    assert limits.wanted(Limits(cpus=1)) == ("cpu",)


def test_the_command_for_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_on_path", lambda name: f"/usr/bin/{name}")
    command = limits._scope_command(("--user",), Limits(memory=1 << 20, cpus=0.5, pids=3))
    assert command[:3] == ("/usr/bin/systemd-run", "--user", "--scope")
    assert {"MemoryMax=1048576", "MemorySwapMax=0", "CPUQuota=50%", "TasksMax=4"} <= set(command)
    assert command[-1] == "--"


def test_a_link_in_an_image_does_not_bring_a_host_file_in(tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    (layer / "etc/ssl/certs").mkdir(parents=True)
    (tmp_path / "host-secret").write_text("secret")
    (layer / "etc/ssl/certs/ca-certificates.crt").symlink_to(tmp_path / "host-secret")
    extra = tmp_path / "extra.pem"
    extra.write_text("ours")
    [file] = arguments.trust_files(RunSpec((layer,), ("x",), {}, extra_ca=extra))
    assert file.content == b"ours"


def test_the_callers_own_certificate_variables_win(tmp_path: Path) -> None:
    spec = RunSpec((), ("x",), {"SSL_CERT_FILE": "/mine"}, extra_ca=tmp_path)
    assert arguments.environment(spec)["SSL_CERT_FILE"] == "/mine"
    assert arguments.environment(spec)["CURL_CA_BUNDLE"] == arguments.EXTRA_CA


def options(spec: RunSpec) -> list[str]:
    fds = arguments.Descriptors()
    try:
        command = arguments.command(spec, fds, channel=99)
        assert command[0] == "--args"
        return os.fsdecode(os.pread(int(command[1]), 1 << 20, 0)).split("\0")[:-1]
    finally:
        fds.close()


def test_arguments_follow_the_spec(tmp_path: Path) -> None:
    spec = RunSpec((tmp_path,), ("true",), {"A": "1"}, mounts=(Mount(tmp_path, "/m", read_only=True),), network=False)
    found = options(spec)
    assert "--share-net" not in found
    assert "--new-session" in found
    assert found[found.index("/m") - 2 : found.index("/m")] == ["--ro-bind", str(tmp_path)]
    for wanted in ("--unshare-user", "--disable-userns", "--die-with-parent", "--clearenv", "--seccomp"):
        assert wanted in found


def test_too_many_layers_for_one_mount_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PxError, match="PX_HOME"):
        options(RunSpec((tmp_path / ("x" * 200),) * 30, ("true",), {}))
    with pytest.raises(PxError, match="no layers"):
        options(RunSpec((), ("true",), {}))


def test_other_engines_publish_ports_and_refuse_what_needs_the_relay(tmp_path: Path) -> None:
    def network(spec: RunSpec) -> list[str]:
        found = Podman().options(spec, "name", Path(tempfile.mkdtemp(dir=tmp_path)))
        return [f"{a} {b}" for a, b in pairwise(found) if a in ("--network", "--publish")]

    spec = RunSpec((), ("true",), {})
    assert network(spec) == []
    assert network(spec.replace(network=False)) == ["--network none"]
    published = spec.replace(reach=Reach((), ("8000", "[::1]:1:2")))
    assert network(published) == ["--publish 127.0.0.1:8000:8000", "--publish [::1]:1:2"]
    for refused in (published.replace(network=False), spec.replace(network=False, reach=Reach(("a.org",)))):
        with pytest.raises(PxError, match="podman cannot run a sandbox with") as caught:
            network(refused)
        assert caught.value.code == "PX917"


def test_podman_is_asked_for_no_more_than_the_caller_has() -> None:
    found = Podman().special()
    assert [o.partition("=")[0] for o in found if "=" in o] == ["nofile", "nproc"]
