"""Models: one architecture a file, and the network that surrounds each with embeddings, tasks and losses."""
