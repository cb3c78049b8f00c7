"""The one place where px errors are made: a code, what happened, why, and the command that fixes it.

The texts live in ``data/errors.toml``, keyed by code; an error is raised with the code and the fields
that its text names.  The catalogue is read only when an error is shown, so raising one costs nothing on
the paths that succeed.
"""

from __future__ import annotations

import os

from px.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CATALOGUE = os.path.join(os.path.dirname(__file__), "data", "errors.toml")

# Shells keep 126 and 127 for targets that cannot be run and 128 + n for signals; px stays below.
EXIT_INTERNAL = 120
EXIT_BY_FAMILY = {"0": 121, "1": 122, "2": 123, "8": 124, "9": 125}
EXIT_USAGE = 2
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_INTERRUPTED = 130


class ErrorText(Record):
    """One row of the catalogue, before its fields are filled in."""

    code: str
    what: str
    why: tuple[str, ...]
    fix: tuple[str, ...]


_catalogue: dict[str, ErrorText] = {}


def catalogue() -> dict[str, ErrorText]:
    """Every error by its code; read once."""
    if not _catalogue:
        import tomllib

        with open(CATALOGUE, "rb") as f:
            raw = tomllib.load(f)
        for code, row in raw.items():
            _catalogue[code] = ErrorText(code, row["what"], tuple(row.get("why", ())), tuple(row.get("fix", ())))
    return _catalogue


class PxError(Exception):
    """A failure that px understands: shown as code, what, Why and Fix, never as a traceback.

    ``why`` and ``fix`` are put in front of the catalogue's own lines, for causes and commands that only
    the place that raises can know.  With ``whole_fix`` that place knows the cause for certain, and the
    catalogue's advice, which is for causes that are not known, is left out.
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
        return self._why + self._fill(catalogue()[self.code].why)

    @property
    def fix(self) -> tuple[str, ...]:
        return self._fix if self._whole_fix else self._fix + self._fill(catalogue()[self.code].fix)

    @property
    def exit_code(self) -> int:
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
