"""Feature transforms in NumPy, for services that do without TensorFlow. Start at `base.py`."""
