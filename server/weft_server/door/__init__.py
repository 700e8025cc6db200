"""Speaks gRPC and HTTP: checks what callers send, and says what they get."""
