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
    "AuditReport": "bounds.audit",
    "Bounds": "bounds.results",
    "InputError": "errors",
    "InputWarning": "errors",
    "IntervalcertError": "errors",
    "Network": "model.network",
    "Radii": "verify.radius",
    "SoundnessError": "errors",
    "UsageError": "errors",
    "Verdict": "proof.decision",
    "Verdicts": "verify.verdicts",
    "audit": "api",
    "certified_radius": "api",
    "certify": "api",
    "certify_deployed": "api",
    "certify_inputs": "api",
    "compute_bounds": "api",
    "evaluate": "api",
    "from_torch": "io.models",
    "load_bounds": "io.bounds_file",
    "load_model": "io.models",
    "robust_radius": "api",
    "save_bounds": "io.bounds_file",
    "save_model": "io.models",
}

__all__ = [
    "AuditReport",
    "Bounds",
    "InputError",
    "InputWarning",
    "IntervalcertError",
    "Network",
    "Radii",
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
    "robust_radius",
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
        robust_radius,
    )
    from intervalcert.bounds.audit import AuditReport
    from intervalcert.bounds.results import Bounds
    from intervalcert.errors import InputError, InputWarning, IntervalcertError, SoundnessError, UsageError
    from intervalcert.io.bounds_file import load_bounds, save_bounds
    from intervalcert.io.models import from_torch, load_model, save_model
    from intervalcert.model.network import Network
    from intervalcert.proof.decision import Verdict
    from intervalcert.verify.radius import Radii
    from intervalcert.verify.verdicts import Verdicts


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"intervalcert.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'intervalcert' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
