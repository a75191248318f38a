"""Reading, joining, splitting and streaming data: Arrow in, encoded batches out, no TensorFlow."""
