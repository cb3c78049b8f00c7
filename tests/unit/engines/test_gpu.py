"""Which GPUs a run gets, and what of the machine comes with them: on made-up machines (tests/support/gpu.py)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from px.engines.docker import Docker
from px.engines.gpu import driver, find, plain_yaml
from px.engines.gpu.asked import Asked, choose, named, parse_asked
from px.engines.gpu.cdi import read_specification
from px.engines.gpu.find import Gpu, find_driver
from px.engines.gpu.give import LIBRARIES, add_gpus, add_names, driver_program
from px.engines.podman import Podman
from px.errors import PxError
from px.warm.spec import RunSpec
from tests.support import gpu
from tests.support.elf import make_elf

SPEC = RunSpec((), ("python",), {"PATH": "/usr/bin"})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two GPUs whose numbers are not their order on the bus; its nodes are plain files, which unit tests can make."""
    monkeypatch.setattr(driver, "is_device", os.path.exists)
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "sda"):
        (tmp_path / "dev" / name).touch()
    for place, minor, uuid in (("0000:1b:00.0", 1, gpu.UUIDS[0]), ("0000:86:00.0", 0, gpu.UUIDS[1])):
        information = tmp_path / "proc/driver/nvidia/gpus" / place / "information"
        information.parent.mkdir(parents=True)
        information.write_text(f"Model: \t\t NVIDIA H200\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
    libraries = gpu.make_libraries(tmp_path / f"usr/lib/{os.uname().machine}-linux-gnu")
    (libraries / "libnvidia-container.so.1").write_bytes(make_elf(soname="libnvidia-container.so.1"))
    (libraries / "libm.so.6").write_bytes(make_elf(soname="libm.so.6"))
    return tmp_path


def with_specification(root: Path, document: Any, name: str = "etc/cdi/nvidia.yaml") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document) if path.suffix == ".json" else gpu.as_yaml(document) + "\n")
    path.parent.chmod(0o755)
    path.chmod(0o644)
    return path


def code(error: pytest.ExceptionInfo[PxError]) -> str:
    return error.value.code


# --- found by px itself ----------------------------------------------------------------------------------------------


def test_finds_gpus_in_the_order_of_the_bus(machine: Path) -> None:
    found = find_driver(machine)
    assert [g.names for g in found.gpus] == [("0", gpu.UUIDS[0]), ("1", gpu.UUIDS[1])]
    assert [Path(g.nodes[0]).name for g in found.gpus] == ["nvidia1", "nvidia0"]
    assert [Path(node).name for node in found.nodes] == ["nvidiactl", "nvidia-uvm"]
    assert found.version == gpu.VERSION


def test_takes_every_library_of_the_driver_and_no_other(machine: Path) -> None:
    names = {name for file in find_driver(machine).files for name in file.names}
    versioned = {f"{stem}.so.{gpu.VERSION}" for stem in gpu.LIBRARIES}
    assert names == versioned | set(gpu.LIBRARIES.values()) | {"libcuda.so"}


def test_without_what_the_kernel_says_the_numbers_count(machine: Path) -> None:
    for path in (machine / "proc/driver/nvidia/gpus").glob("*/information"):
        path.unlink()
    assert [Path(g.nodes[0]).name for g in find_driver(machine).gpus] == ["nvidia0", "nvidia1"]
    assert [g.names for g in find_driver(machine).gpus] == [("0",), ("1",)]


@pytest.mark.parametrize(
    ("missing", "expected"),
    [("dev", "PX925"), ("dev/nvidia-uvm", "PX929"), ("usr", "PX929")],
)
def test_says_what_is_missing(machine: Path, missing: str, expected: str) -> None:
    (machine / missing).rename(machine / "elsewhere")
    with pytest.raises(PxError) as e:
        find_driver(machine)
    assert code(e) == expected


def test_a_loaded_driver_without_nodes_is_not_the_same_as_none(machine: Path) -> None:
    (machine / "dev").rename(machine / "elsewhere")
    (machine / "proc/driver/nvidia/version").touch()
    with pytest.raises(PxError, match="nvidia-modprobe"):
        find_driver(machine)


def test_a_link_by_the_name_of_a_library_is_followed_before_it_counts(machine: Path) -> None:
    libraries = machine / f"usr/lib/{os.uname().machine}-linux-gnu"
    secret = machine / "shadow"
    secret.write_bytes(make_elf(soname="libcuda.so.1"))
    (libraries / "libnvidia-ml.so.1").unlink()
    (libraries / "libnvidia-ml.so.1").symlink_to(secret)
    assert str(secret) not in {file.source for file in find_driver(machine).files}


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        (b"#!/bin/sh\n", 0o644, "not for this machine"),
        (b"", 0o644, "not for this machine"),
        (make_elf(soname="libcuda.so.1", machine="aarch64"), 0o644, "not for this machine"),
        (make_elf(soname="libcuda.so.1"), 0o666, "everybody"),
    ],
)
def test_refuses_what_no_driver_would_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, mode: int, problem: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "", "", "", "x86_64")))
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(content)
    path.chmod(mode)
    assert problem in str(driver.take(str(path)))


def test_reads_what_ldconfig_says(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "1 libs found in cache `/etc/ld.so.cache'\n"
        "\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1\n"
        "\tlibcudart.so.13 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.13\n"
        "\tlibnvidia-ml.so.1 (libc6,x86-64, OS ABI: Linux 2.3.99) => /opt/a driver/libnvidia-ml.so.1\n"
    )
    monkeypatch.setattr(find, "run", lambda *a, **k: type("Done", (), {"stdout": said}))
    monkeypatch.setattr(os, "access", lambda *a: True)
    assert find._of_ldconfig() == ["/lib/x86_64-linux-gnu/libcuda.so.1", "/opt/a driver/libnvidia-ml.so.1"]


# --- CDI -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["etc/cdi/nvidia.yaml", "etc/cdi/nvidia.json", "var/run/cdi/nvidia.yaml"])
def test_reads_a_specification(tmp_path: Path, name: str) -> None:
    with_specification(tmp_path, gpu.specification(tmp_path / "lib", gpus=2), name)
    found = read_specification(tmp_path)
    assert found is not None
    assert found.devices == {
        "0": ("/dev/nvidia0",),
        gpu.UUIDS[0]: ("/dev/nvidia0",),
        "1": ("/dev/nvidia1",),
        gpu.UUIDS[1]: ("/dev/nvidia1",),
        "all": ("/dev/nvidia0", "/dev/nvidia1"),
    }
    assert found.nodes == ("/dev/nvidia-uvm", "/dev/nvidiactl")  # drawing on screens is left out
    assert f"{tmp_path}/lib/libcuda.so.{gpu.VERSION}" in found.files


def test_a_specification_goes_before_what_is_there(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "is_device", lambda _: True)
    monkeypatch.setattr(os, "access", lambda *a: True)
    libraries = gpu.make_libraries(machine / "driver")
    path = with_specification(machine, gpu.specification(libraries))
    found = find_driver(machine)
    assert [g.names for g in found.gpus] == [("0", gpu.UUIDS[0])]
    assert {Path(file.source).parent for file in found.files} == {libraries}
    assert found.source == str(path)


def test_parts_of_a_gpu_have_their_own_nodes(tmp_path: Path) -> None:
    nodes = ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/../sda"]
    device = {"name": "0:1", "containerEdits": {"deviceNodes": [{"path": node} for node in nodes]}}
    with_specification(tmp_path, gpu.specification(tmp_path, devices=[device]))
    found = read_specification(tmp_path)
    assert found is not None
    assert find._described(found) == (Gpu(("0:1",), ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12")),)


def test_a_node_that_is_another_one_outside_is_left_out(tmp_path: Path) -> None:
    nodes = [{"path": "/dev/nvidia0", "hostPath": "/dev/sda"}, {"path": "/dev/sda"}, {"path": "/dev/nvidia0/../sda"}]
    device = {"name": "0", "containerEdits": {"deviceNodes": nodes}}
    with_specification(tmp_path, gpu.specification(tmp_path, devices=[device]))
    found = read_specification(tmp_path)
    assert found is not None
    assert found.devices == {"0": ()}


def test_files_of_others_are_none_of_our_business(tmp_path: Path) -> None:
    with_specification(tmp_path, {"kind": "example.com/gpu", "devices": []}, "etc/cdi/other.json")
    (tmp_path / "etc/cdi/broken.yaml").write_text("{ &anchor")
    (tmp_path / "etc/cdi/notes.txt").write_text("nvidia.com/gpu")
    assert read_specification(tmp_path) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"devices": {}},
        {"devices": [{"name": 0}]},
        {"devices": ["0"]},
        {"devices": [{"name": str(n)} for n in range(5000)]},
        {"containerEdits": []},
        {"containerEdits": {"mounts": [{"hostPath": "/usr/lib/../../etc/shadow"}]}},
        {"containerEdits": {"mounts": [{"hostPath": "lib/libcuda.so.1"}]}},
        {"containerEdits": {"mounts": [{"hostPath": "/libcuda.so.1\0"}]}},
        {"containerEdits": {"deviceNodes": [{"path": ["/dev/nvidia0"]}]}},
    ],
)
def test_refuses_a_specification_that_is_none(tmp_path: Path, changes: dict[str, Any]) -> None:
    with_specification(tmp_path, gpu.specification(tmp_path, **changes), "etc/cdi/nvidia.json")
    with pytest.raises(PxError) as e:
        read_specification(tmp_path)
    assert code(e) == "PX927"


def test_refuses_a_specification_that_others_can_write(tmp_path: Path) -> None:
    path = with_specification(tmp_path, gpu.specification(tmp_path))
    for place, mode in ((path, 0o666), (path.parent, 0o777)):
        place.chmod(mode)
        with pytest.raises(PxError, match="chmod go-w") as e:
            read_specification(tmp_path)
        assert code(e) == "PX927"
        place.chmod(0o755)


def test_refuses_links_pipes_and_huge_files(tmp_path: Path) -> None:
    path = with_specification(tmp_path, gpu.specification(tmp_path))
    moved = path.rename(tmp_path / "elsewhere.yaml")
    path.symlink_to(moved)
    for make in (lambda: os.mkfifo(path), lambda: path.write_bytes(b"# nvidia.com/gpu\n" * 200_000)):
        with pytest.raises(PxError) as e:
            read_specification(tmp_path)
        assert code(e) == "PX927"
        path.unlink()
        make()
    with pytest.raises(PxError, match="larger"):
        read_specification(tmp_path)


# --- YAML ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("# only a comment\n", None),
        ("---\na: b\n", {"a": "b"}),
        ("a: 'it''s'  # said\nb: \"x # y\\n\"\n", {"a": "it's", "b": "x # y\n"}),
        ("a:\n- b: 1\n  c:\n  - d\n  - e\n- f\n", {"a": [{"b": "1", "c": ["d", "e"]}, "f"]}),
        ("a:\n  - - b\n    - c\n", {"a": [["b", "c"]]}),
        ("a: [x, 'y, z', \"w\"]\nb: {}\nc: []\n", {"a": ["x", "y, z", "w"], "b": {}, "c": []}),
        ("a:\nb:\n", {"a": None, "b": None}),
        ("a: http://x/#y\n", {"a": "http://x/#y"}),
    ],
)
def test_reads_plain_yaml(text: str, expected: object) -> None:
    assert plain_yaml.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("a: &x b", "a: *x", "a: !!python/object b", "a: |\n  b", "a: >\n  b", "a: {b: c}", "a: [[b]]", "a: [b"),
        *(
            "<<: *x",
            "a: b\na: c",
            "a:\n\tb: c",
            "  a: b\n c: d",
            "a: b\n  c: d",
            "a: b: c",
            'a: "b',
            "a: 'b",
            "%YAML 1.2",
        ),
        *("- " * 200 + "a", "a: " + "x" * 5000, "a: b\n---\nc: d", "a"),
    ],
)
def test_refuses_other_yaml(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        plain_yaml.parse(text)


def test_reads_what_was_written(tmp_path: Path) -> None:
    document = gpu.specification(tmp_path, gpus=2)
    assert plain_yaml.parse(gpu.as_yaml(document)) == document


# --- which of them ---------------------------------------------------------------------------------------------------

THREE = tuple(Gpu((str(n), f"GPU-{n}aaa"), (f"/dev/nvidia{n}",)) for n in range(3))


@pytest.mark.parametrize(
    ("visible", "count", "chosen", "inside"),
    [
        (None, None, "012", None),
        (None, 2, "01", None),
        ("2", None, "2", None),
        ("2,0", None, "02", "1,0"),
        ("2,0", 1, "2", None),
        ("GPU-1aaa", 1, "1", None),
        ("GPU-1", 1, "1", None),
        (" 1 , 0 ", None, "01", "1,0"),
        ("1,-1,0", None, "1", None),
        ("1,1", None, "1", None),
        ("0,7,1", None, "0", None),
    ],
)
def test_respects_what_is_visible(visible: str | None, count: int | None, chosen: str, inside: str | None) -> None:
    host = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    gpus, variables = choose(THREE, Asked(count), host)
    assert "".join(g.names[0] for g in gpus) == chosen
    assert variables.get("CUDA_VISIBLE_DEVICES") == inside


@pytest.mark.parametrize(
    ("visible", "count", "expected"),
    [
        *((v, None, "PX930") for v in ("", "-1", "NoDevFiles", "7", "GPU-", "GPU-x;rm", "MIG-1", "$(id)", ",0")),
        *((None, 4, "PX926"), ("1", 2, "PX926"), ("0,0", 2, "PX926")),
    ],
)
def test_refuses_what_is_not_there(visible: str | None, count: int | None, expected: str) -> None:
    host = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    with pytest.raises(PxError) as e:
        choose(THREE, Asked(count), host)
    assert code(e) == expected
    assert str(e.value)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "65", "one", "1e3", "²", "0x1", "ALL"])
def test_refuses_what_is_no_number_of_gpus(text: str) -> None:
    with pytest.raises(PxError) as e:
        parse_asked(text)
    assert code(e) == "PX040"


def test_names_end_where_cuda_stops_reading() -> None:
    assert named({"CUDA_VISIBLE_DEVICES": "0,GPU-12ab,MIG-GPU"}) == ("0", "GPU-12ab")
    assert len(named({"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(1000)))}) or ()) == 1000
    assert named({}) is None


# --- given -----------------------------------------------------------------------------------------------------------


def test_gives_nodes_files_and_two_variables(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("px.engines.gpu.give.find_driver", lambda: find_driver(machine))
    spec = add_gpus(SPEC.replace(env={"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/mine"}), Asked(1), {})
    assert [Path(node).name for node in spec.devices] == ["nvidiactl", "nvidia-uvm", "nvidia1"]
    assert spec.env == {"PATH": "/usr/bin:/run/px-gpu/bin", "LD_LIBRARY_PATH": f"/mine:{LIBRARIES}"}
    assert all(mount.read_only and mount.target.startswith(LIBRARIES) for mount in spec.mounts)
    assert f"{LIBRARIES}/libcuda.so.1" in {mount.target for mount in spec.mounts}
    reordered = add_gpus(SPEC, Asked(), {"CUDA_VISIBLE_DEVICES": "1,0"})
    assert reordered.env["CUDA_VISIBLE_DEVICES"] == "1,0"
    own = add_gpus(SPEC.replace(env={"CUDA_VISIBLE_DEVICES": "0"}), Asked(), {"CUDA_VISIBLE_DEVICES": "1,0"})
    assert own.env["CUDA_VISIBLE_DEVICES"] == "0"


def test_programs_of_the_driver_can_be_run(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("px.engines.gpu.give.find_driver", lambda: find_driver(machine))
    assert driver_program("nvidia-smi", "bubblewrap") is None
    program = machine / "usr/bin/nvidia-smi"
    program.parent.mkdir()
    program.write_bytes(make_elf("libc.so.6", machine=os.uname().machine))
    assert driver_program("nvidia-smi", "bubblewrap") == "/run/px-gpu/bin/nvidia-smi"
    assert driver_program("nvidia-smi", "docker") == "nvidia-smi"


@pytest.mark.parametrize(
    ("asked", "host", "docker", "podman"),
    [
        (Asked(), {}, "all", ["all"]),
        (Asked(2), {}, '"device=0,1"', ["0", "1"]),
        (Asked(), {"CUDA_VISIBLE_DEVICES": "1,GPU-2a"}, '"device=1,GPU-2a"', ["1", "GPU-2a"]),
        (Asked(1), {"CUDA_VISIBLE_DEVICES": "1,GPU-2a"}, '"device=1"', ["1"]),
    ],
)
def test_engines_with_a_way_of_their_own(asked: Asked, host: dict[str, str], docker: str, podman: list[str]) -> None:
    names = add_names(SPEC, asked, host).gpus
    assert Docker().gpus(names) == ["--gpus", docker]
    assert Podman().gpus(names) == [word for name in podman for word in ("--device", f"nvidia.com/gpu={name}")]
    with pytest.raises(PxError) as e:
        add_names(SPEC, Asked(3), {"CUDA_VISIBLE_DEVICES": "0"})
    assert code(e) == "PX926"


def test_the_table_has_what_is_read_of_it() -> None:
    table = driver.table()
    assert driver.is_library(table["required"])
    assert all(driver.is_shared_node(node) for node in (*table["nodes"], *table["optional_nodes"]))
    assert all(directory.startswith("/") for directory in table["directories"])
    assert not driver.is_library("libcudart.so.13")
    assert not driver.is_library("libcuda.so.1/../x")
    assert not driver.is_library("libnvidia-container.so.1")
