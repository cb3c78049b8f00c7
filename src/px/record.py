"""Frozen records with named fields: what a frozen dataclass is, for modules that the warm path imports.

There ``dataclasses``, ``typing`` and ``collections`` would cost more milliseconds than the sandbox itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, NoReturn, Self, dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class Record:
    """A base class; the annotations of a subclass are its fields, in order, and its class attributes their defaults."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(cls.__annotations__)

    def __init__(self, *values: Any, **named: Any):
        fields = self._fields
        given = {**dict(zip(fields, values, strict=False)), **named}
        missing = [f for f in fields if f not in given and not hasattr(type(self), f)]
        if missing or len(given) != len(values) + len(named) or not given.keys() <= set(fields):
            raise TypeError(f"{type(self).__name__} has the fields {fields}, not {(*values, *named)}")
        self.__dict__.update(given)

    def _replace(self, **changes: Any) -> Self:
        """The same but for these fields."""
        return type(self)(**{**self.__dict__, **changes})

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field) for field in self._fields)

    def __setattr__(self, name: str, _: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set: it is frozen")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be removed: it is frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self._values(), strict=True))
        return f"{type(self).__name__}({fields})"
