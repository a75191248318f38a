"""Computes a SavedModel through TensorFlow's C API.

The C API (https://www.tensorflow.org/install/lang_c) is what TensorFlow offers to other languages than Python, and the
library is part of the Python package. Without the Python above it a model starts in a fraction of the time and memory,
is called in half the time, and loads with Python's interpreter lock free for requests.
"""
