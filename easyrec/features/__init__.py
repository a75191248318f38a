"""Features: raw columns to ids and numbers; one transform per feature type, one fitted state per feature."""
