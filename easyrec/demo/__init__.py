"""The demonstration: real MovieLens ratings from an installed package to recommendations by title."""
