"""Large pages under embedding tables, so that reaching a row at random costs one miss less.

A table of hundreds of megabytes on pages of 4 KiB needs far more page translations than a processor keeps at hand, and
rows are reached at random. With pages of 2 MiB the work on rows takes a third less time
(docs/explanation/performance.md). Linux gives them to programs that ask; where it does not, only speed is lost.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import tensorflow as tf

_PAGE = 2 << 20
# From <linux/mman.h>: use large pages from now on; gather the present pages into large ones (Linux 6.1).
_MADV_HUGEPAGE = 14
_MADV_COLLAPSE = 25


def ask_for_huge_pages(variable: tf.Variable) -> None:
    """Asks for large pages under the memory of a variable; to be called before it is first scattered to."""
    size = variable.dtype.size * variable.shape.num_elements()
    if sys.platform != "linux" or size < 2 * _PAGE:
        return
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None:
        return
    # Until then reading gives the variable's own memory, not a copy.
    view = np.asarray(tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype))
    start = -(-view.ctypes.data // _PAGE) * _PAGE
    length = (view.ctypes.data + view.nbytes) // _PAGE * _PAGE - start
    for advice in (_MADV_HUGEPAGE, _MADV_COLLAPSE):
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), advice)
