"""Generated gRPC and protobuf code of Weft's contracts. Edit the .proto files, then run `make proto`."""
