"""The methods of the Open Inference Protocol as rows, and with those of weft.v1 all that a server answers of both."""

from weft_proto.inference import open_inference_pb2
from weft_proto.v1 import methods as weft_v1

(_SERVICE,) = open_inference_pb2.DESCRIPTOR.services_by_name.values()
SERVICE = _SERVICE.full_name
# Those that ModelInfer asks.
TYPED = ("Classify", "Tag", "Embed")
_TASKS = tuple(dict.fromkeys(task for name in TYPED for task in weft_v1.METHODS[name].tasks))
# By name.
METHODS = {
    each.name: weft_v1.method_of(each, _TASKS if each.name == "ModelInfer" else None) for each in _SERVICE.methods
}
METHOD_AT = weft_v1.METHOD_AT | {method.path: method for method in METHODS.values()}
