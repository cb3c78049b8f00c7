"""A made-up NVIDIA driver.

It stands in for a real one, which no test machine has: the files are real ELF files and the nodes are real devices
(/dev/null), but nothing computes.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.elf import make_elf
from tests.support.rootfs import bubblewrap

VERSION = "580.65.06"
SHARED = ("nvidia-uvm", "nvidiactl")
UUIDS = ("GPU-11111111-2222-3333-4444-555555555555", "GPU-99999999-8888-7777-6666-555555555555")
LIBRARIES = {
    "libcuda": "libcuda.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libnvidia-gpucomp": f"libnvidia-gpucomp.so.{VERSION}",
}


def make_libraries(directory: Path, content: dict[str, bytes] | None = None) -> Path:
    """The driver's libraries as its installer leaves them: versioned files, and links by which they are found."""
    directory.mkdir(parents=True, exist_ok=True)
    for stem, soname in LIBRARIES.items():
        file = directory / f"{stem}.so.{VERSION}"
        file.write_bytes((content or {}).get(stem) or make_elf("libc.so.6", soname=soname, machine=os.uname().machine))
        if soname != file.name:
            (directory / soname).symlink_to(file.name)
    return directory


def specification(libraries: Path, gpus: int = 1, **changes: Any) -> dict[str, Any]:
    """What ``nvidia-ctk cdi generate`` writes, shortened: hooks, sockets and firmware are in a real one too."""
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{n}"}, {"path": f"/dev/dri/card{n}"}]}}
        for n in range(gpus)
        for name in (str(n), UUIDS[n])
    ]
    everything = {"deviceNodes": [{"path": f"/dev/nvidia{n}"} for n in range(gpus)]}
    hook = {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "chmod"]}
    files = [f"{libraries}/{stem}.so.{VERSION}" for stem in LIBRARIES]
    files += ["/run/nvidia-persistenced/socket", f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"]
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [*devices, {"name": "all", "containerEdits": everything}],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": f"/dev/{name}"} for name in ("nvidia-modeset", "nvidia-uvm", "nvidiactl")],
            "hooks": [hook],
            "mounts": [
                {"hostPath": f, "containerPath": f, "options": ["ro", "nosuid", "nodev", "bind"]} for f in files
            ],
        },
        **changes,
    }


def as_yaml(value: Any, indent: int = 0) -> str:
    """As nvidia-ctk writes it: lists as far left as their key, and only what looks like a number in quotes."""
    pad, lines = " " * indent, []
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list) and item:
                lines += [f"{pad}{key}:", as_yaml(item, indent + (2 if isinstance(item, dict) else 0))]
            else:
                lines.append(f"{pad}{key}: {_scalar(item)}")
        return "\n".join(lines)
    for item in value:
        lines.append(f"{pad}- {as_yaml(item, indent + 2).lstrip() if isinstance(item, dict) else _scalar(item)}")
    return "\n".join(lines)


def _scalar(value: Any) -> str:
    text = str(value)
    return json.dumps(text) if text.replace(".", "").isdigit() or not text else text


def made_up(directory: Path, layer: Path, nodes: tuple[str, ...], *, cdi: bool = False) -> list[str]:
    """The command that puts a program on a machine with these GPUs."""
    real = (layer / f"usr/lib/{os.uname().machine}-linux-gnu/libresolv.so.2").read_bytes()
    assert real.count(b"libresolv.so.2\0") == 1
    cuda = real.replace(b"libresolv.so.2\0", b"libcuda.so.1\0\0\0")  # a library that the loader takes
    libraries = make_libraries(directory / "driver", {"libcuda": cuda})
    (directory / "conf").write_text(f"{libraries}\n")
    # ldconfig always looks in the system's directories too, where a machine with a GPU has its own driver.
    ldconfig = next(path for path in ("/sbin/ldconfig.real", "/sbin/ldconfig") if os.path.exists(path))
    alone = [bubblewrap(), "--ro-bind", ldconfig, "/ldconfig", "--bind", str(directory), str(directory)]
    subprocess.run([*alone, "--", "/ldconfig", "-X", "-C", directory / "cache", "-f", directory / "conf"], check=True)
    specifications = directory / "cdi"
    specifications.mkdir()
    if cdi:
        (specifications / "nvidia.yaml").write_text(as_yaml(specification(libraries)))
    command = [bubblewrap(), "--dev-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/run"]
    command += ["--ro-bind", str(specifications), "/run/cdi", "--ro-bind", str(directory / "cache"), "/etc/ld.so.cache"]
    for node in (*nodes, *SHARED) if nodes else ():
        command += ["--dev-bind", "/dev/null", f"/dev/{node}"]
    command += ["--cap-add", "ALL"] if os.geteuid() == 0 else []  # root becomes somebody else in there
    return [*command, "--"]
