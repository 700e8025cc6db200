"""Weft's contracts: the generated gRPC and protobuf code, and the rules that it cannot say.

Edit the .proto files, then run `make proto`.
"""
