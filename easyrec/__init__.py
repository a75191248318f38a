"""EasyRec: recommendation models from one YAML file, trained, measured, exported and served."""
