"""The gRPC services: their methods, the interceptor around each call, and the server that has them."""
