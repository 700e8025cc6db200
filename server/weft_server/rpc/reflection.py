"""grpc.reflection, as v1 and as v1alpha: the messages are the same, and clients ask for either."""

from collections.abc import Sequence

import grpc
import grpc.aio
from grpc_reflection.v1alpha import reflection, reflection_pb2

V1 = "grpc.reflection.v1.ServerReflection"
_METHOD = "ServerReflectionInfo"


def add_reflection(services: Sequence[str], server: grpc.aio.Server) -> None:
    """Answer on `server` what `services` there are and how they are defined."""
    # Reflection is listed under its older name only: grpcio has no definition of the newer one.
    names = (*services, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    handler = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(names).ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(V1, {_METHOD: handler}),))
