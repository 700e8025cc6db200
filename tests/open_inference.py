"""Requests of the Open Inference Protocol, asked of models that are loaded in this process, and what answers say."""

import struct

import numpy as np

from weft_proto.inference.methods import METHODS
from weft_proto.inference.open_inference_pb2 import ModelInferRequest
from weft_proto.v1 import model_pb2
from weft_server.config import read_config
from weft_server.models.registry import ModelRegistry, RegistryEntry
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.rpc.health import Health
from weft_server.rpc.services import open_inference_behaviours


def entries_of(*models):
    """What a registry has of models that are ready."""
    return [
        RegistryEntry(each.name, each.version, each.bundle.directory, model_pb2.MODEL_STATE_READY, model=each)
        for each in models
    ]


def packed(elements):
    """Elements as raw contents have them."""
    return b"".join(struct.pack("<I", len(each)) + each for each in elements)


def infer(name, *, raw=True, parameters=(), **inputs):
    """A request for a model, of its input tensors: texts, or the bytes of files."""
    request = ModelInferRequest(model_name=name, id="mine")
    for key, elements in inputs.items():
        tensor = request.inputs.add(name=key, datatype="BYTES", shape=[len(elements)])
        data = [each.encode() if isinstance(each, str) else each for each in elements]
        if raw:
            request.raw_input_contents.append(packed(data))
        else:
            tensor.contents.bytes_contents.extend(data)
    for key, value in dict(parameters).items():
        kind = "string_param" if isinstance(value, str) else "int64_param"
        setattr(request.parameters[key], kind, value)
    return request


def cut(raw):
    """The elements of raw contents."""
    found, at = [], 0
    while at < len(raw):
        (size,) = struct.unpack_from("<I", raw, at)
        at += 4 + size
        found.append(raw[at - size : at])
    return found


def tensors(response):
    """The outputs by name, as arrays: of float32, of bytes, or of what the JSON says."""
    found = {}
    for index, output in enumerate(response.outputs):
        if response.raw_output_contents:
            assert not output.HasField("contents")
            raw = response.raw_output_contents[index]
            values = np.frombuffer(raw, "<f4") if output.datatype == "FP32" else cut(raw)
        else:
            values = output.contents.fp32_contents if output.datatype == "FP32" else output.contents.bytes_contents
        kind = np.float32 if output.datatype == "FP32" else object
        found[output.name] = np.array(list(values), kind).reshape(list(output.shape))
    return found


class Asked:
    """The methods of the protocol over some models, without the wire."""

    def __init__(self, *models, health=None, registry=None, **settings):
        registry = registry or ModelRegistry(entries_of(*models))
        config = read_config(repository=".", **settings)
        self._answers = open_inference_behaviours(registry, config, health or Health(()))

    async def __call__(self, method, request=None, **fields):
        """The response, or the RequestError that it raises; the model is let go."""
        call = RequestContext(method)
        REQUEST_CONTEXT.set(call)
        try:
            return await self._answers[method](request or METHODS[method].request(**fields), None)
        finally:
            call.let_go()
