"""Directories whose weights are stored as small integers: GPTQ, AWQ, compressed-tensors, MXFP4."""
