"""The recommendation service: bundles behind a REST API."""
