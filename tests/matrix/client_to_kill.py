"""Makes the call that a line says: the method's path, its kind, and the request in hexadecimal."""

import sys

import grpc

with grpc.insecure_channel(sys.argv[1]) as channel:
    grpc.channel_ready_future(channel).result(60)
    path, kind, request = input().split()
    make = channel.unary_stream if kind == "stream" else channel.unary_unary
    answer = make(path)(bytes.fromhex(request))
    if kind == "stream":
        list(answer)
