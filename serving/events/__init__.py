"""Events: validated, written durably before they are acknowledged, each once, and compacted into training data."""
