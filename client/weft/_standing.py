"""What clients ask of a server itself: how a model stands, and whether it serves."""

from google.protobuf.wrappers_pb2 import StringValue

from weft._fields import fill
from weft._requests import selector
from weft_proto.v1 import model_pb2


def get_model_request(name: str, version: int | None) -> model_pb2.GetModelRequest:
    """Ask for what a server says of one model."""
    return model_pb2.GetModelRequest(model=selector(name, version))


def health_request(service: str) -> StringValue:
    """Ask whether a health service serves; see `_channel.health_check` for the type."""
    message = StringValue()
    fill(message, value=service)
    return message
