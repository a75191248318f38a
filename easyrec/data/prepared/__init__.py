"""Training data encoded once into shards, which plain TensorFlow operations read on any machine."""
