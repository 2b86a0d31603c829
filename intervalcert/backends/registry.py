"""The registry of number systems. A new one is a module beside this and a line in `_REGISTRY`.

Modules are imported when they are asked for: a program that only uses `exact` never loads FLINT.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from intervalcert.backends.protocol import Backend
from intervalcert.errors import UsageError

__all__ = [
    "AUTO",
    "DEFAULT_PREC",
    "MAX_PREC",
    "MIN_PREC",
    "backend_names",
    "get_backend",
    "ladder_names",
    "precision_ladder",
]


_REGISTRY = {
    "arb": ("intervalcert.backends.arb", "ArbBackend"),
    "float64": ("intervalcert.backends.float64", "Float64Backend"),
    "exact": ("intervalcert.backends.exact", "ExactBackend"),
    "mpmath": ("intervalcert.backends.mpmath_iv", "MpmathBackend"),
}


_NEXT = {"float64": "arb", "arb": "exact", "mpmath": "exact"}
"""Whom to ask when a number system cannot tell, or its answer is too wide."""


AUTO, _FIRST = "auto", "float64"
"""The ladder for those who name no number system, and where it begins: with the fastest, every error bounded."""


DEFAULT_PREC = 64
"""Bits of the grid and of square roots. Their error is not amplified, so 64 bits cost about 1e-17 of a bound."""


MIN_PREC, MAX_PREC = 16, 4096


def backend_names() -> tuple[str, ...]:
    """Of the number systems."""
    return tuple(_REGISTRY)


def ladder_names() -> tuple[str, ...]:
    """What may be asked for: a ladder has the name of the number system that it begins with, or is ``auto``."""
    return (AUTO, *_REGISTRY)


def get_backend(name: str, prec: int = DEFAULT_PREC) -> Backend[Any]:
    """The number system called `name`, with a grid of 2^-prec."""
    if name not in _REGISTRY:
        raise UsageError(f"there is no number system {name!r}: choose one of {', '.join(_REGISTRY)}")
    if type(prec) is not int or not MIN_PREC <= prec <= MAX_PREC:
        raise UsageError(f"a precision of {prec!r} bits is outside {MIN_PREC}..{MAX_PREC}")
    module, cls = _REGISTRY[name]
    backend: Backend[Any] = getattr(import_module(module), cls)(prec)
    return backend


def precision_ladder(name: str, prec: int = DEFAULT_PREC) -> tuple[Backend[Any], ...]:
    """The precision ladder: the number system, the same with doubled bits where it can, the next one, …, exact.

    ``auto`` is float64, arb, exact. All of them share `prec`, so each of them encloses the value of the last one.
    Raises: UsageError for a name that is none of `ladder_names`.
    """
    if name not in ladder_names():
        raise UsageError(f"there is no backend {name!r}: choose one of {', '.join(ladder_names())}")
    begin = _FIRST if name == AUTO else name
    first = get_backend(begin, prec)
    finer = first.refined()
    further = precision_ladder(_NEXT[begin], prec) if begin in _NEXT else ()
    return (first, *(() if finer is None else (finer,)), *further)
