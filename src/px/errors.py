"""px's errors.  Each has a code and says what happened, why, and which command fixes it.

The texts are in ``data/errors.toml``, by code.  An error is raised with its code and with the fields that its text
names.  The file is read only when an error is shown, so commands that succeed do not pay for it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from px import DATA

if TYPE_CHECKING:
    from collections.abc import Sequence

# Shells use 126 and 127 for programs that cannot be started, and 128 + n for signals.  px run passes those on, so
# px's own codes are lower.  The key is the first digit of the error's code.
EXIT_INTERNAL = 120
EXIT_BY_FAMILY = {"0": 121, "1": 122, "2": 123, "8": 124, "9": 125}
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127


@dataclass(frozen=True)
class ErrorText:
    """One error of the catalogue, with its {fields} not yet filled in."""

    code: str
    what: str
    why: tuple[str, ...]
    fix: tuple[str, ...]


@cache
def catalogue() -> dict[str, ErrorText]:
    with open(f"{DATA}/errors.toml", "rb") as f:
        raw = tomllib.load(f)
    return {
        code: ErrorText(code, row["what"], tuple(row.get("why", ())), tuple(row.get("fix", ())))
        for code, row in raw.items()
    }


class PxError(Exception):
    """A failure that px can explain.  The user sees its code, what, Why and Fix, never a traceback.

    ``why`` and ``fix`` come before the catalogue's own lines.  They hold what only the raising code knows.  With
    ``whole_fix`` that code is certain of the cause, so the catalogue's more general advice is left out.
    """

    def __init__(
        self,
        code: str,
        *,
        why: Sequence[str] = (),
        fix: Sequence[str] = (),
        whole_fix: bool = False,
        **fields: object,
    ):
        super().__init__(code)
        self.code = code
        self.fields = fields
        self._why = tuple(why)
        self._fix = tuple(fix)
        self._whole_fix = whole_fix

    def _fill(self, lines: Sequence[str]) -> tuple[str, ...]:
        return tuple(line.format_map(self.fields) for line in lines)

    @property
    def what(self) -> str:
        return self._fill([catalogue()[self.code].what])[0]

    @property
    def why(self) -> tuple[str, ...]:
        # Lines from the raising code are complete.  They are not formatted: paths and messages may contain braces.
        return self._why + self._fill(catalogue()[self.code].why)

    @property
    def fix(self) -> tuple[str, ...]:
        return self._fix if self._whole_fix else self._fix + self._fill(catalogue()[self.code].fix)

    @property
    def exit_code(self) -> int:
        # These two as a shell does.
        if self.code == "PX020":
            return EXIT_NOT_FOUND
        if self.code == "PX021":
            return EXIT_NOT_EXECUTABLE
        return EXIT_BY_FAMILY[self.code[2]]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        out = [f"{self.code}  {self.what}"]
        for title, items in (("Why", self.why), ("Fix", self.fix)):
            if items:
                out += ["", f"{title}:"]
                out += [f"  • {item}" for item in items]
        return out

    def as_json(self) -> dict[str, object]:
        return {"code": self.code, "what": self.what, "why": list(self.why), "fix": list(self.fix)}
