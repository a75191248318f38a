"""Names that TensorFlow allows in signatures, for columns and tasks that may have any name."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

_ALLOWED = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_RESERVED = {"self", *keyword.kwlist}
"""What Python does not take as the name of an argument, and signatures are functions."""


def tensor_names(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """A name for each tensor: its own where that is allowed, else a similar one; all different.

    Args:
        names: Names of columns or tasks.
        taken: Tensor names that are in use already.

    Returns:
        Tensor name by name.
    """
    names = list(dict.fromkeys(names))
    chosen = {name: name for name in names if _ALLOWED.fullmatch(name) and name not in _RESERVED}
    used = set(taken) | set(chosen)
    for name in names:
        if name in chosen and name not in taken:
            continue
        base = re.sub(r"[^A-Za-z0-9_]", "_", name)
        base = base if _ALLOWED.fullmatch(base) else f"column_{base}"
        number, candidate = 1, base
        while candidate in used or candidate in _RESERVED:
            number += 1
            candidate = f"{base}_{number}"
        chosen[name] = candidate
        used.add(candidate)
    return chosen
