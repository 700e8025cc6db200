"""The HTTP port beside gRPC: metrics and probes."""
