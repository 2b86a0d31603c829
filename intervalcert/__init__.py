"""intervalcert: proves that a small change of the input cannot change a neural network's answer.

    network = load_model("model.npz")
    bounds  = compute_bounds(network)
    for verdict in certify(bounds, logits, eps="0.3"):
        print(verdict.index, verdict.certified, verdict.radius)

Names are imported when they are used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "AuditReport": "auditing",
    "Bounds": "artifacts",
    "InputError": "errors",
    "InputWarning": "errors",
    "IntervalcertError": "errors",
    "Network": "network",
    "SoundnessError": "errors",
    "UsageError": "errors",
    "Verdict": "certifier",
    "Verdicts": "bulk",
    "audit": "api",
    "certified_radius": "api",
    "certify": "api",
    "certify_deployed": "api",
    "certify_inputs": "api",
    "compute_bounds": "api",
    "evaluate": "api",
    "from_torch": "loaders",
    "load_bounds": "artifacts",
    "load_model": "loaders",
    "save_bounds": "artifacts",
    "save_model": "loaders",
}

__all__ = [
    "AuditReport",
    "Bounds",
    "InputError",
    "InputWarning",
    "IntervalcertError",
    "Network",
    "SoundnessError",
    "UsageError",
    "Verdict",
    "Verdicts",
    "__version__",
    "audit",
    "certified_radius",
    "certify",
    "certify_deployed",
    "certify_inputs",
    "compute_bounds",
    "evaluate",
    "from_torch",
    "load_bounds",
    "load_model",
    "save_bounds",
    "save_model",
]

if TYPE_CHECKING:
    from intervalcert.api import (
        audit,
        certified_radius,
        certify,
        certify_deployed,
        certify_inputs,
        compute_bounds,
        evaluate,
    )
    from intervalcert.artifacts import Bounds, load_bounds, save_bounds
    from intervalcert.auditing import AuditReport
    from intervalcert.bulk import Verdicts
    from intervalcert.certifier import Verdict
    from intervalcert.errors import InputError, InputWarning, IntervalcertError, SoundnessError, UsageError
    from intervalcert.loaders import from_torch, load_model, save_model
    from intervalcert.network import Network


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"intervalcert.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'intervalcert' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
