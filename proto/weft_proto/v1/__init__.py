"""Generated gRPC and protobuf code of Weft's contracts, and the table of their methods.

Edit the .proto files, then run `make proto`.
"""
