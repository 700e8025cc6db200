"""The graphs of a bundle: from modules to .onnx files, and what runs them."""
