"""Re-rankers: variety and business rules. Importing this package registers the built-in ones."""

from __future__ import annotations

from serving.funnel.reranking import diversity, explore, rules
from serving.funnel.stages import RERANKERS

for _name, _config, _implementation in (*diversity.MEMBERS, *rules.MEMBERS, *explore.MEMBERS):
    RERANKERS.register(_name, _config, _implementation)
