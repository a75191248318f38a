"""A bundle's model for LiteRT: computes predictions without TensorFlow.

convert.py       writes it at export; the only module here that needs TensorFlow
spec.py          what was written
functions.py     the functions of the model, for `easyrec.export.runtime.Runtime`
activations.py   ids to embeddings, in NumPy over memory-mapped tables
engine.py        the dense part, in LiteRT
"""
