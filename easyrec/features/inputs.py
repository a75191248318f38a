"""Raw inputs: which column a feature reads, and how a missing value looks in a tensor.

| kind   | tensor  | missing          |
|--------|---------|------------------|
| string | string  | "" (empty)       |
| int    | int64   | -2**63           |
| float  | float32 | NaN              |

The same holds in training and in the exported signatures. A list is a RaggedTensor in training; the exported
signatures take it as a dense [B, L] tensor padded with the missing value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from easyrec.config.features import Side

Kind = Literal["string", "int", "float"]
Role = Literal["category", "number"]
Part = Literal["values", "keys", "items"]

MISSING_INT = -(2**63)
"""Stands for a missing integer."""


@dataclass(frozen=True)
class InputSpec:
    """One raw tensor a feature reads.

    Attributes:
        name: Name of the tensor in the exported signatures: the column's name, unless it is one part of a map.
        column: Source column.
        kind: What the exported signature takes.
        side: Whom the feature describes.
        list: Whether a row holds several values.
        role: `category`: only equality matters, so 3, "3" and 3.0 are one value, and text is taken as it is.
            `number`: the amount matters, so text has to be numeric.
        part: The values of the column, or the keys or the items (the values) of a map column.
        aligned_with: Name of the input of the same feature whose rows have the same lengths.
        feature: The feature that reads it, for messages.
    """

    name: str
    column: str
    kind: Kind
    side: Side
    list: bool = False
    role: Role = "category"
    part: Part = "values"
    aligned_with: str | None = None
    feature: str = ""
