"""Names of weights that stay the same from one process to the next."""

from __future__ import annotations

import re
from collections.abc import Sequence


def below(layer: str, path: str) -> str:
    """The path of a variable with its layer's name in front, where Keras has left it out.

    Keras has when the variable was made outside of a call of the layer, as states of dropout are.
    """
    return path if path.startswith(f"{layer}/") else f"{layer}/{path}"


def stable_names(paths: Sequence[str]) -> list[str]:
    """Keras paths with the numbers that Keras adds to layers of one name counted anew within their parent.

    Keras counts over the whole process, so that a second network would have other names than the first. Names that
    appear twice in one parent get "_1", "_2", ... in order of appearance.
    """
    known: dict[tuple[str, str], str] = {}
    counts: dict[tuple[str, str], int] = {}
    names = []
    for path in paths:
        parent = original = ""
        for part in path.split("/"):
            original = f"{original}/{part}"
            if (parent, original) not in known:
                base = re.sub(r"_\d+$", "", part)
                count = counts[parent, base] = counts.get((parent, base), -1) + 1
                known[parent, original] = f"{parent}/{base}_{count}" if count else f"{parent}/{base}"
            parent = known[parent, original]
        names.append(parent.lstrip("/"))
    return names
