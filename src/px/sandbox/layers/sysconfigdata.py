"""The traces of how a CPython was built, moved to where it lies in the image.

``sysconfig`` and the files for other build tools say under which prefix and with which compiler an interpreter
was built.  Neither the prefix nor the compiler exists in a sandbox: extension modules are built there with the
base's own ``cc``, against the headers under the prefix that the interpreter really has.
"""

from __future__ import annotations

import ast
import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_DATA = "lib/python*/_sysconfigdata_*.py"
_TOLD = (
    _DATA,
    "lib/pkgconfig/*.pc",
    "lib/python*/config-*/*",
    "bin/python*-config",
    "lib/python*/_sysconfig_vars*.json",
)
_ASSIGNED = "build_time_vars"
_CXX = re.compile(r"(?<!\S)(?:\S*/)?(?:[\w.]+-linux-gnu-)?(?:clang|g)\+\+(?:-\d+)?(?!\S)")
_CC = re.compile(r"(?<!\S)(?:\S*/)?(?:[\w.]+-linux-gnu-)?(?:clang|gcc)(?:-\d+)?(?!\S)")
_BINUTILS = re.compile(r"(?<!\S)(?:\S*/)?(?:llvm-|[\w.]+-linux-gnu-(?:gcc-)?)(ar|nm|ranlib|readelf|strip)(?!\S)")
# Options that only the compiler and linker of the builder understand.
_FOREIGN = re.compile(r"(?<!\S)(?:-fdebug-default-version=\S+|-fuse-ld=\S+|--rtlib=\S+)(?:\s+|$)")


@dataclass(frozen=True)
class BuildPrefix:
    """The prefix that an interpreter was configured with; empty if nothing tells it."""

    path: str

    @staticmethod
    def is_told_by(name: str) -> bool:
        """Whether a file of the installation may hold the prefix, by its path."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in _TOLD)

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> BuildPrefix:
        """Read from the build variables, the only place where it has a name."""
        for name in sorted(files):
            values = _variables(files[name]) if fnmatch.fnmatchcase(name, _DATA) else None
            if values and isinstance(values.get("prefix"), str):
                return cls(str(values["prefix"]).rstrip("/"))
        return cls("")

    def moved(self, name: str, content: bytes, to: str) -> bytes:
        """A file's content with the prefix replaced by ``to``, and with a compiler that a sandbox has."""
        if not self.is_told_by(name) or b"\0" in content:
            return content
        values = _variables(content) if fnmatch.fnmatchcase(name, _DATA) else None
        if values is None:
            return self._replaced(content.decode("utf-8", "surrogateescape"), to).encode("utf-8", "surrogateescape")
        moved = {key: self._value(value, to) for key, value in sorted(values.items())}
        rows = "".join(f"    {key!r}: {value!r},\n" for key, value in moved.items())
        return f"{_ASSIGNED} = {{\n{rows}}}\n".encode()

    def _value(self, value: object, to: str) -> object:
        return _tools(self._replaced(value, to)) if isinstance(value, str) else value

    def _replaced(self, text: str, to: str) -> str:
        if not self.path:
            return text
        # `/install` must not be found in `/usr/bin/install`, nor in `/installed`.
        return re.sub(rf"(?:(?<![\w\-/])|(?<=-[IL])){re.escape(self.path)}(?![\w.\-])", to, text)


def _variables(content: bytes) -> dict[str, object] | None:
    """The build variables, if the module is nothing but their assignment."""
    try:
        body = ast.parse(content).body
        found = [s for s in body if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == _ASSIGNED]
        values = ast.literal_eval(found[0].value) if len(found) == len(body) == 1 else None
    except (SyntaxError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def _tools(value: str) -> str:
    value = _CXX.sub("c++", value)
    value = _CC.sub("cc", value)
    value = _BINUTILS.sub(r"\1", value)
    return _FOREIGN.sub("", value).strip() if _FOREIGN.search(value) else value
