"""One folder that holds all a model needs to predict and recommend, and the code that writes, checks and uses it."""
