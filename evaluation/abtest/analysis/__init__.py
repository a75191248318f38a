"""From logs to a verdict.

tables    logs as Ibis tables with checked columns
units     one row a unit: its variant and when it was first exposed
values    what each unit did, by day and by age; moments of it
trust     checks that come before any number
judging   moments -> effects, intervals, p-values
verdict   the rule that fires, in words
run       all of it: `analyze`
"""
