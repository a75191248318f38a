"""The configuration language: pydantic models of the YAML, loading, overrides, checks. Imports no TensorFlow."""
