"""The layers that families are built of, in torch and in the operators of ONNX Runtime."""
