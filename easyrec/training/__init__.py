"""Training: the inner step, the outer loop, checkpoints; the only place that knows where computation runs."""
