"""Weft's server: batches requests for text, captions and labels onto ONNX Runtime sessions and answers over gRPC."""
