"""Makes the call that a line says in hexadecimal: the method's path, its kind and the request, or what HTTP sends."""

import socket
import sys

import grpc


def by_grpc(path, kind, request):
    """Make a call of gRPC."""
    with grpc.insecure_channel(sys.argv[1]) as channel:
        make = channel.unary_stream if kind == "stream" else channel.unary_unary
        answer = make(path)(bytes.fromhex(request), wait_for_ready=True)
        if kind == "stream":
            list(answer)


def by_http(request):
    """Send it, and read what comes."""
    host, _, port = sys.argv[1].rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(bytes.fromhex(request))
        while connection.recv(1 << 16):
            pass


how, *rest = input().split()
by_http(*rest) if how == "HTTP" else by_grpc(how, *rest)
