"""Immutable records: what `@dataclass(frozen=True)` makes, without the time that it takes.

A frozen dataclass compiles six methods for every class, 0.5 to 1 ms each time the process starts; with a hundred
classes that was a third of `chunkdsl check`. Records share their methods and look fields up instead. `fields`,
`replace` and `is_dataclass` of `dataclasses` work as usual. There is no ordering, and no `__post_init__`.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field
from functools import partial
from typing import TypeVar, dataclass_transform

T = TypeVar("T")
FIELDS = "__dataclass_fields__"


@dataclass_transform(frozen_default=True, eq_default=True, field_specifiers=(field,))
def record(cls: type[T] | None = None, *, eq: bool = True):
    """Decorate a class of annotated fields; defaults and `field(default_factory=..., compare=False)` are allowed.
    With `eq=False` an instance equals only itself."""
    if cls is None:
        return partial(record, eq=eq)
    cls.__doc__ = cls.__doc__ or cls.__name__  # where it is missing, dataclass works out a signature to put there
    made = dataclass(init=False, repr=False, eq=False)(cls)
    compared = tuple(f.name for f in getattr(made, FIELDS).values() if f.compare)
    made.__compared__ = None if len(compared) == len(made.__match_args__) else compared
    for method in (__init__, __repr__, __setattr__, __delattr__, *((__eq__, __hash__) if eq else ())):
        if method.__name__ not in cls.__dict__:
            setattr(made, method.__name__, method)
    return made


def __init__(self, *args, **named) -> None:
    names = self.__match_args__
    if len(args) == len(names) and not named:
        self.__dict__.update(zip(names, args, strict=True))
    else:
        self.__dict__.update(_fill(type(self), names, args, named))


def _fill(cls: type, names: tuple[str, ...], args: tuple, named: dict) -> dict:
    """The value of every field, in order. TypeError where one is missing, given twice or unknown."""
    if len(args) > len(names):
        raise TypeError(f"{cls.__name__} takes {len(names)} fields, not {len(args)}")
    given = dict(zip(names, args, strict=False))
    for name in named:
        if name in given or name not in names:
            raise TypeError(f"{cls.__name__} {'is given twice' if name in given else 'has no field'} {name}")
    given |= named
    values = {}
    for name, f in getattr(cls, FIELDS).items():
        if name in given:
            values[name] = given[name]
        elif f.default is not MISSING:
            values[name] = f.default
        elif f.default_factory is not MISSING:
            values[name] = f.default_factory()
        else:
            raise TypeError(f"{cls.__name__} is missing field {name}")
    return values


def _key(self) -> tuple:
    values = self.__dict__
    return tuple(values.values() if self.__compared__ is None else [values[name] for name in self.__compared__])


def __eq__(self, other: object) -> bool:
    if self is other:
        return True
    return _key(self) == _key(other) if type(self) is type(other) else NotImplemented


def __hash__(self) -> int:
    return hash(_key(self))


def __repr__(self) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


def __setattr__(self, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
