"""Checks of what callers give: errors name the argument, say what it is and what it has to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def type_name(value: object) -> str:
    """What a value is, for people: "None", "a list", "an int"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def whole(name: str, value: Any, low: int, high: int = 2**31 - 1) -> int:
    """An int of low .. high; numpy's ints count as ints, bools do not."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: is {type_name(value)}; give a whole number")
    number = int(value.__index__())
    if not low <= number <= high:
        raise ValueError(f"{name}: is {number}; give {low} to {high}")
    return number


def share(name: str, value: Any) -> float:
    """A number of 0 .. 1, without 1."""
    number = real(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"{name}: is {number:g}; give a number of at least 0 and below 1")
    return number


def real(name: str, value: Any) -> float:
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}: is {type_name(value)}; give a number")
    return float(value)


def boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}: is {type_name(value)}; give True or False")
    return value


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: is {type_name(value)}; give a string")
    if not value:
        raise ValueError(f"{name}: is empty")
    return value


def seconds(name: str, value: Any) -> float | None:
    """None, or a time above 0."""
    if value is None:
        return None
    number = real(name, value)
    if not number > 0:
        raise ValueError(f"{name}: is {number:g}; give more than 0 seconds, or None to wait without a limit")
    return number


def nearest(word: str, candidates: Iterable[str]) -> str:
    """The candidate that was probably meant, or ""."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    found = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[found[0]] if found else ""


def choice(name: str, value: Any, candidates: Iterable[str]) -> str:
    """One of the candidates."""
    allowed = list(candidates)
    word = text(name, value)
    if word in allowed:
        return word
    close = nearest(word, allowed)
    hint = f'; did you mean "{close}"?' if close else ""
    raise ValueError(f'{name}: "{word}" is not one of {", ".join(allowed)}{hint}')
