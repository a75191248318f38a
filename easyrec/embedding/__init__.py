"""Embedding tables: fused by width, looked up by unique ids, trained row by row."""
