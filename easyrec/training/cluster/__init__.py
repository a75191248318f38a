"""Training on many machines: roles, processes, splits handed out, faults survived. Nothing else knows of a cluster."""
