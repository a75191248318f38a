"""Metrics: pure functions of arrays, and the table that names them."""
