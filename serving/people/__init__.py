"""Who asks: what bundles, the store and the request know of a person, put together for a model."""
