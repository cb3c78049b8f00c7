"""What a target sees and leaves behind under bubblewrap, as the caller and as an ordinary user."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.engines import places
from tests.integration.engines.conftest import ENV, Driver


@pytest.mark.parametrize("code", [0, 3, 255])
def test_exit_code_is_the_targets(caller: Driver, code: int) -> None:
    assert caller.run("sh", "-c", f"exit {code}").returncode == code


def test_a_signal_that_ends_the_target_is_128_and_n(caller: Driver) -> None:
    assert caller.run("sh", "-c", "kill -TERM $$").returncode == 143
    assert caller.run("sh", "-c", "kill -KILL $$").returncode == 137


def test_missing_and_unusable_programs(caller: Driver) -> None:
    missing = caller.run("no-such-program")
    assert (missing.returncode, missing.stderr) == (127, "px: no-such-program: not found in the sandbox\n")
    assert caller.run("/etc/passwd").returncode == 126


def test_who_and_where(box: Driver) -> None:
    done = box.run("sh", "-c", "id -u; id -g; id -un; pwd; hostname; echo $HOME; touch $HOME/x && echo writable")
    assert done.stdout.split() == ["1000", "1000", "px", "/app", "sandbox", "/home/px", "writable"], done.stderr


def test_files_made_in_app_belong_to_the_caller(box: Driver) -> None:
    assert box.run("sh", "-c", "echo hello > made; mkdir -p d/e; touch d/e/f").returncode == 0
    made = box.app / "made"
    assert made.read_text() == "hello\n"
    assert {path.stat().st_uid for path in [made, *box.app.rglob("*")]} == {box.uid}


def test_only_named_variables_pass(box: Driver) -> None:
    box.env["SECRET_OF_THE_HOST"] = "1"
    env = {**ENV, "EMPTY": "", "LINES_": "a\nb", "ÜMLAUT": "ß = 'x\""}
    done = box.python("import os, json; print(json.dumps(dict(os.environ)))", env=env)
    seen = json.loads(done.stdout)
    assert {k: v for k, v in seen.items() if k not in ("PWD", "LC_CTYPE")} == env


def test_no_descriptor_leaks(box: Driver) -> None:
    held, held_too = os.pipe()
    try:
        code = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1])"
        process = box.start("python3", "-c", code, pass_fds=(held, held_too))
        assert process.communicate()[0] == "[0, 1, 2]\n"
    finally:
        os.close(held)
        os.close(held_too)


def test_writes_to_the_root_are_private_and_gone_afterwards(caller: Driver, tmp_path: Path) -> None:
    (tmp_path / "srv" / "data").mkdir(parents=True)
    (tmp_path / "srv" / "old").write_text("old")
    caller.layers = (*caller.layers, tmp_path)
    script = "echo new > /srv/data/new; rm /srv/old; cat /srv/data/new; ls /srv"
    assert caller.run("sh", "-c", script).stdout.split() == ["new", "data"]
    assert caller.run("ls", "/srv", "/srv/data").stdout.split() == ["/srv:", "data", "old", "/srv/data:"]
    assert (tmp_path / "srv" / "old").read_text() == "old"


def test_the_system_is_not_the_targets_to_change(box: Driver) -> None:
    done = box.run("sh", "-c", "touch /etc/x /usr/lib/x; rm -f /usr/bin/python3; test -e /usr/bin/python3 && echo ok")
    assert done.stdout == "ok\n"
    assert done.stderr.count("Permission denied") == 3
    assert box.run("sh", "-c", "touch /tmp/a /var/tmp/b /run/c /dev/shm/d $HOME/e && echo ok").stdout == "ok\n"


def test_read_only_root_leaves_app_home_and_temporary_files_writable(box: Driver) -> None:
    done = box.run(
        "sh", "-c", "touch /etc/x /x /usr/x; touch /app/a $HOME/b /tmp/c /var/tmp/d /dev/shm/e && echo ok",
        read_only_root=True,
    )  # fmt: skip
    assert done.stdout == "ok\n", done.stderr
    assert done.stderr.count("Read-only file system") == 3


def test_mounts_read_only_and_not_with_awkward_names(box: Driver) -> None:
    odd = box.directory / "a:b, c\\d=é"
    odd.mkdir()
    (odd / "f").write_text("content")
    os.chown(odd, box.uid, -1)
    mounts = [[str(odd), "/mnt/ro here", True], [str(odd), "/mnt/rw", False], [str(odd / "f"), "/mnt/file", True]]
    done = box.run(
        "sh", "-c", "cat '/mnt/ro here/f' /mnt/file; touch '/mnt/ro here/x' || touch /mnt/rw/y", mounts=mounts, cwd="/"
    )
    assert done.stdout == "contentcontent", done.stderr
    assert (odd / "y").exists()
    assert not (odd / "x").exists()


def test_upper_layers_cover_lower_ones(caller: Driver, tmp_path: Path) -> None:
    upper = tmp_path / "upper, with: signs"
    (upper / "etc").mkdir(parents=True)
    (upper / "etc/debian_version").write_text("upper\n")
    caller.layers = (*caller.layers, upper)
    assert caller.run("cat", "/etc/debian_version").stdout == "upper\n"


def test_an_image_cannot_lead_mounts_to_the_host(caller: Driver, tmp_path: Path) -> None:
    """bubblewrap follows links while the host is still at /oldroot: px must resolve them itself."""
    victim = tmp_path / "victim"
    victim.mkdir()
    hostile = tmp_path / "hostile"
    (hostile / "etc").mkdir(parents=True)
    (hostile / "data").symlink_to(f"/oldroot{victim}")
    (hostile / "etc/hosts").symlink_to(f"/oldroot{victim}/hosts")
    caller.layers = (*caller.layers, hostile)
    mounts = [[str(caller.app), "/data/inner", False]]
    assert caller.run("true", mounts=mounts, cwd="/").returncode == 0
    assert list(victim.iterdir()) == []


def test_stdin_reaches_the_target(box: Driver) -> None:
    assert box.run("wc", "-c", text="x" * 300_000).stdout.strip() == "300000"


def test_captured_stderr_passes_on(caller: Driver) -> None:
    done = caller.run("sh", "-c", "echo out; echo err >&2; exit 4", tee=True)
    assert (done.returncode, done.stdout, done.stderr) == (4, "out\nkept: err\n", "err\n")


def test_network_on_reaches_the_hosts_loopback_and_off_reaches_nothing(box: Driver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('connected')"
        assert box.python(code, network=True).stdout == "connected\n"
        refused = box.python(code, network=False)
    assert "ConnectionRefusedError" in refused.stderr
    names = box.python("import socket; print([n for _, n in socket.if_nameindex()])", network=False)
    assert names.stdout == "['lo']\n"


def test_names_resolve_as_on_the_host_only_with_the_network_on(caller: Driver) -> None:
    code = "import socket; print(socket.gethostbyname('sandbox')); print(open('/etc/resolv.conf').read())"
    on = caller.python(code)
    assert on.stdout.startswith("127.0.1.1\n")
    assert Path("/etc/resolv.conf").read_text().strip() in on.stdout
    off = caller.run("cat", "/etc/hosts", network=False)
    assert off.stdout.splitlines()[-1].split() == ["127.0.1.1", "sandbox"]
    assert all("localhost" in line for line in off.stdout.splitlines()[:-1])


def test_extra_certificates_are_added_to_the_images(box: Driver) -> None:
    extra = box.directory / "extra.pem"
    extra.write_text("-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n")
    code = (
        "import os; names = ['SSL_CERT_FILE', 'REQUESTS_CA_BUNDLE', 'CURL_CA_BUNDLE', 'NODE_EXTRA_CA_CERTS'];"
        "[path] = {os.environ[n] for n in names}; text = open(path).read();"
        "print(text.count('BEGIN CERTIFICATE') > 100, text.endswith(open('/mnt/extra').read()))"
    )
    mounts = [[str(extra), "/mnt/extra", True]]
    assert box.python(code, extra_ca=str(extra), mounts=mounts, cwd="/").stdout == "True True\n"


def test_a_store_of_another_user_works(layers: tuple[Path, ...], box: Driver) -> None:
    assert box.run("sh", "-c", "test -O /etc/hosts && test -d /app && echo ok").stdout == "ok\n"
    if box.uid != os.geteuid():
        assert layers[0].stat().st_uid != box.uid


def test_nothing_remains(box: Driver) -> None:
    box.env["TMPDIR"] = str(box.directory)

    def traces() -> tuple[list[str], list[str]]:
        # Only what is ours: a docker of another test makes mounts at the same time.
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        mine = [m for m in mounts if any(str(p) in m for p in (box.directory, *box.layers))]
        return mine, sorted(p.name for p in box.directory.iterdir())

    assert box.run("true").returncode == 0
    before = traces()
    assert box.run("sh", "-c", "sleep 1000 & touch /tmp/x").returncode == 0
    assert traces() == before
    assert before[1] == ["px-home", box.app.name]


def test_variables_and_paths_do_not_show_in_the_process_list(caller: Driver) -> None:
    process = caller.start("sh", "-c", "echo ready; sleep 60", env={**ENV, "TOKEN": "geheim-4711"})
    assert process.stdout is not None
    process.stdout.readline()
    listed = subprocess.run(["ps", "axww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    family = [line for line in listed.stdout.splitlines() if "bwrap" in line or "px-init" in line]
    process.kill()
    process.communicate()
    assert family
    assert not [line for line in family if "geheim-4711" in line and sys.executable not in line]


def test_places_of_the_host_in_the_working_tree(box: Driver) -> None:
    places.check(box)
