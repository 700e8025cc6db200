"""Makes a bundle of an ONNX file that others made."""
