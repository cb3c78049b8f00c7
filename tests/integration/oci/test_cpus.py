"""Compressed bytes do not depend on the CPU: the same sample on emulated processors without its SIMD units."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.needs import need, only_for

PROGRAM = """
import hashlib, sys
from px.oci.compress import METHODS, block_function, sample
from tests.unit.oci.images import noise
data = sample() * 6 + noise(100_000) + bytes(50_000) + open(sys.argv[1], "rb").read()[:400_000]
for method in METHODS.values():
    print(method.name, hashlib.sha256(block_function(method)(data)).hexdigest())
"""


def compressed(*emulator: str) -> str:
    done = subprocess.run(
        [*emulator, sys.executable, "-c", PROGRAM, sys.executable],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


@pytest.mark.parametrize("cpu", ["qemu64", "max"])
def test_another_cpu_gives_the_same_bytes(cpu: str) -> None:
    only_for("x86-64", "it names processors of that kind")
    need("qemu")
    assert compressed("qemu-x86_64-static", "-cpu", cpu) == compressed()
