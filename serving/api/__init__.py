"""The REST API: what comes in and goes out, and which route leads where."""
