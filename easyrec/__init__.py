"""EasyRec: recommendation models from one YAML file, trained, measured, exported and served.

    import easyrec

    run = easyrec.train("pipeline.yaml")
    run.metrics["liked/auc"], run.recommend(user=42, n=10)

    model = easyrec.load("runs/pipeline")
    model.predict(frame), model.recommend(user=42)

The names below are loaded when they are first used, so that a configuration is checked without TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from easyrec.config.loader import load_config
    from easyrec.errors import EasyRecError
    from easyrec.export.bundle import Bundle, load
    from easyrec.workflow import Run, evaluate_run, train

__version__ = "0.1.0"

__all__ = ["Bundle", "EasyRecError", "Run", "evaluate_run", "load", "load_config", "train"]

_HOMES = {
    "Bundle": "easyrec.export.bundle",
    "EasyRecError": "easyrec.errors",
    "Run": "easyrec.workflow",
    "evaluate_run": "easyrec.workflow",
    "load": "easyrec.export.bundle",
    "load_config": "easyrec.config.loader",
    "train": "easyrec.workflow",
}
_LIGHT = {"EasyRecError", "load_config"}  # after the others TensorFlow is there, and quiet


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _LIGHT:
        importlib.import_module("easyrec.startup").start_tensorflow()
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
