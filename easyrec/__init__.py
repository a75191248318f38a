"""EasyRec: recommendation models from one YAML file, trained, measured, exported and served."""

__version__ = "0.1.0"
