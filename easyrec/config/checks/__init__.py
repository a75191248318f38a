"""Rules that tie parts of a configuration together, beyond what one class can check of itself.

Each rule is a small function from a configuration to findings, a path and a message each. Rules hold for a
configuration as it was loaded; some see more once patterns are written out and sides are known (`resolve`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from easyrec.config.checks.data import DATA_RULES
from easyrec.config.checks.features import FEATURE_RULES
from easyrec.config.checks.model import MODEL_RULES
from easyrec.config.checks.training import TRAINING_RULES
from easyrec.config.paths import Path
from easyrec.config.pipeline import PipelineConfig
from easyrec.errors import Problem

Finding = tuple[Path, str]
Rule = Callable[[PipelineConfig], Iterator[Finding]]

RULES: tuple[Rule, ...] = (*DATA_RULES, *FEATURE_RULES, *MODEL_RULES, *TRAINING_RULES)


def check(config: PipelineConfig) -> list[Problem]:
    """All that the rules find, with the places where it was written."""
    return [config.locations.problem(path, message) for rule in RULES for path, message in rule(config)]
