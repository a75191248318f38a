"""Embedding tables: their defaults."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from easyrec.config.base import StrictModel

MAX_DIM = 8_192
"""Widest embedding; a number beyond it is a slip."""


class Initializer(StrictModel):
    """How the rows of an embedding table start."""

    type: Literal["uniform", "normal", "truncated_normal", "zeros"] = "truncated_normal"
    scale: float = Field(0.05, ge=0)
    """Half width of the uniform, standard deviation of the normal distributions."""


class EmbeddingConfig(StrictModel):
    """Defaults of all embedding tables."""

    dim: int = Field(16, ge=1, le=MAX_DIM)
    """Width of an embedding unless a feature says otherwise."""
    initializer: Initializer = Initializer()
    """How rows start."""
    storage: Literal["float32", "bfloat16", "float16"] = "float32"
    """How rows are stored; they are computed with, and summed up by the optimizer, as float32."""
    l2: float = Field(0.0, ge=0)
    """Penalty on the squared norm of the rows a batch uses."""
