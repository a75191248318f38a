"""A/B experiments: who sees what, what they saw, and what it did to them.

assignment   pure functions of a configuration and a unit; standard library only
exposures    the log of what was shown to whom
statistics   effects, intervals and bounds from moments
analysis     from logs to moments, checks of trust, and a verdict
report       the verdict for people
"""
