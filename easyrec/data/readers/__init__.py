"""One file per format, and the entry: `open_source` (row groups in any order) and `stream` (once, in order)."""
