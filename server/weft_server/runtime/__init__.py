"""Speaks to ONNX Runtime: sessions, and the memory that they read and write."""
