"""The Open Inference Protocol v2: each element of its tensors becomes a request of weft.v1."""
