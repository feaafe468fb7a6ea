"""Values as Python people write them, in the words of the command line."""

import difflib
import functools
import inspect
import math
import operator
import os

from ._native import Error


class UnknownOption(Error, TypeError):
    """An option of that name does not exist. It is an Error like all others, and a TypeError as of any function."""


def options_named(call):
    """``call``, which names an option that it does not know, and the nearest one that it does."""
    known = [p.name for p in inspect.signature(call).parameters.values() if p.kind is not p.VAR_KEYWORD]

    @functools.wraps(call)
    def checked(*args, **options):
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean `{near[0]}`?" if near else "it has " + ", ".join(known)
                raise UnknownOption(f"{name}: no option of {call.__name__}(): {hint}")
        return call(*args, **options)

    return checked


def size(value, field):
    """Bytes or a text such as ``"8G"`` or ``"10%"``."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise Error(f"{field}: {value!r}: bytes as a number, or a text such as '8G' or '10%'")
    return str(value)


def path(value, field):
    """A path or the name of a generator."""
    try:
        return os.fsdecode(value)
    except TypeError:
        raise Error(f"{field}: {value!r}: a path, or 'gen:NAME,key=value'") from None


def whole(value, field, least=0, most=2**64 - 1, none=False):
    """A whole number in range; None too where that is allowed."""
    if none and value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        n = operator.index(value)
    except TypeError:
        n = None
    if n is None or not least <= n <= most:
        raise Error(f"{field}: {value!r}: a whole number from {least} to {most}")
    return n


def number(value, field, none=False):
    """A finite number of at least 0; None too where that is allowed. The engine knows the exact range."""
    if none and value is None:
        return None
    try:
        if isinstance(value, (bool, str)):
            raise TypeError
        x = float(value)
    except (TypeError, ValueError, OverflowError):
        x = math.nan
    if not 0 <= x < math.inf:
        raise Error(f"{field}: {value!r}: a number of at least 0")
    return x


def text(value, field, none=False):
    """A text; None too where that is allowed."""
    if isinstance(value, str) or (none and value is None):
        return value
    raise Error(f"{field}: {value!r}: a text")


def reading(format, limit, skip_bad, block_bytes, columns, time_unit):
    """How to read a trace."""
    return {
        "format": text(format, "format", none=True),
        "columns": text(columns, "columns", none=True),
        "time_unit": text(time_unit, "time_unit", none=True),
        "limit": whole(limit, "limit", none=True),
        "skip_bad": whole(skip_bad, "skip_bad"),
        "block_bytes": whole(block_bytes, "block_bytes", 1, 2**32 - 1, none=True),
    }
