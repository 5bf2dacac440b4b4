"""Read the residual stream of open-weight language models.

Names are loaded on first use, so ``import ster`` is quick and loads no array library.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # type checkers take this for typing's, whose import is slow
if TYPE_CHECKING:
    from ster import plots
    from ster.documents.activations.value import Activations
    from ster.documents.answers import Answer
    from ster.documents.pair_sets.pair import ContrastPair
    from ster.documents.pairs import PairSet
    from ster.documents.prompt_sets.value import PromptSet
    from ster.errors import SterError
    from ster.loading import load
    from ster.reporting import SterWarning
    from ster.runs.sampling import Answering, Sampling
    from ster.runtime import Runtime
    from ster.toy import write_toy_checkpoint
    from ster.vectors.effect_selection import WeakDirectionError
    from ster.vectors.interventions import Intervention
    from ster.vectors.steering import SteeringVector
    from ster.vectors.trials import StrengthTrial
    from ster.workflows.ablating import Ablation, ablate

__version__ = "0.1.0"

__all__ = [
    "Ablation",
    "Activations",
    "Answer",
    "Answering",
    "ContrastPair",
    "Intervention",
    "PairSet",
    "PromptSet",
    "Runtime",
    "Sampling",
    "SteeringVector",
    "SterError",
    "SterWarning",
    "StrengthTrial",
    "WeakDirectionError",
    "__version__",
    "ablate",
    "load",
    "plots",
    "write_toy_checkpoint",
]

_HOMES = {
    "Ablation": "ster.workflows.ablating",
    "Activations": "ster.documents.activations.value",
    "Answer": "ster.documents.answers",
    "Answering": "ster.runs.sampling",
    "ContrastPair": "ster.documents.pair_sets.pair",
    "Intervention": "ster.vectors.interventions",
    "PairSet": "ster.documents.pairs",
    "PromptSet": "ster.documents.prompt_sets.value",
    "Runtime": "ster.runtime",
    "Sampling": "ster.runs.sampling",
    "SteeringVector": "ster.vectors.steering",
    "SterError": "ster.errors",
    "SterWarning": "ster.reporting",
    "StrengthTrial": "ster.vectors.trials",
    "WeakDirectionError": "ster.vectors.effect_selection",
    "ablate": "ster.workflows.ablating",
    "load": "ster.loading",
    "plots": "ster",
    "write_toy_checkpoint": "ster.toy",
}


def __getattr__(name: str) -> object:
    """Import a public name from its home and keep it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ster' has no attribute {name!r}")
    home = _HOMES[name]
    if home == __name__:  # a module of ster itself
        value: object = importlib.import_module(f"{home}.{name}")
    else:
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, whether loaded or not."""
    return __all__
