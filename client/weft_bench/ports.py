"""The two ports of a server: what a load needs of each."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from typing import Protocol

from google.protobuf.message import Message

from weft._model import Model
from weft._server import Server
from weft.exceptions import Error
from weft_bench.asking import to_binary
from weft_bench.caller import grpc_caller
from weft_bench.load import Caller
from weft_bench.workload import Method


class Port(Protocol):
    """A port of calls."""

    def list_models(self) -> tuple[Model, ...]:
        """Ask which models there are. Raises Error."""

    def pack(self, method: Method) -> Callable[[Message], bytes]:
        """Return what makes bytes of a method's requests. Raises InvalidRequest for one that the port lacks."""

    def calling(self, method: Method, model: str) -> AbstractAsyncContextManager[Caller]:
        """Return what connects, and then calls a method."""


def port_of(server: Server, form: str | None) -> Port:
    """Return the port of gRPC, or with a form that of HTTP. Raises Error."""
    if form is None:
        return _GrpcPort(server)
    if find_spec("httptools") is None:
        raise Error("--http needs httptools: pip install 'weft-serving[bench]', or in a clone: pip install '.[bench]'")
    from weft_bench.http_port import HttpPort  # noqa: PLC0415 - it imports httptools

    return HttpPort(server, form)


class _GrpcPort:
    """gRPC's port."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._settings = server.settings()

    def list_models(self) -> tuple[Model, ...]:
        """Ask which models there are. Raises Error."""
        with self._server.client() as client:
            return client.list_models()

    def pack(self, method: Method) -> Callable[[Message], bytes]:  # noqa: ARG002 - HTTP's depends on it
        """Return what makes bytes of a method's requests."""
        return to_binary

    def calling(self, method: Method, model: str) -> AbstractAsyncContextManager[Caller]:
        """Return what connects, and then calls a method."""
        return grpc_caller(self._settings, method, model)
