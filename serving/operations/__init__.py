"""How the service is watched: request ids, logs, metrics, drift of features, traces."""
