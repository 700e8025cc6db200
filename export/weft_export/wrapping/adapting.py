"""Gives the graph of an ONNX file the ports of bundle.proto, by nodes before its inputs. `giving` has those behind.

What a graph may take, each by this name, which `naming` gives it:

    pixel_values     of pictures
    input_ids        of texts
    lengths          how many ids of a row are real
    attention_mask   made of lengths: 1 for an id that is real
    token_type_ids   all 0: one text
    position_ids     0, 1, 2 ...

Pixels may be asked for with the channels last, and in the order blue, green, red.
"""

from collections.abc import Mapping, Sequence

import onnx_ir

from weft_export.errors import CheckpointError
from weft_export.wrapping.building import FLOATS, INTEGERS, Nodes
from weft_export.wrapping.giving import give_probabilities, give_vectors
from weft_export.wrapping.onnx_model import OnnxModel

_PICTURE_AXES = 4
TEXT_INPUTS = ("input_ids", "lengths", "attention_mask", "token_type_ids", "position_ids")
IMAGE_INPUTS = ("pixel_values",)


def adapt(model: onnx_ir.Model, described: OnnxModel) -> None:
    """Make the ports of a graph those of its role, where another form of them is known.

    Raises:
        CheckpointError: it takes or gives something else, or the axis of its batch is fixed.
    """
    graph = model.graph
    given = {str(port.name): port for port in graph.inputs if port.name not in graph.initializers}
    _check_inputs(given, IMAGE_INPUTS if described.row.takes_image else TEXT_INPUTS)
    for name, port in given.items():
        _check_axes(name, port, 1 if described.row.takes_image or name == "lengths" else 2)
    before = Nodes(graph, "weft.in")
    if described.image is not None:
        _take_pixels(before, given["pixel_values"], described)
    else:
        _take_text(before, given)
    graph.inputs[:] = before.inputs
    graph.insert_before(graph[0], before.nodes)
    (give_vectors if described.row.embeds else give_probabilities)(graph, described)


def _cast(before: Nodes, value: onnx_ir.Value, old: onnx_ir.Value, known: Sequence[onnx_ir.DataType]) -> None:
    """Put a value in the place of an old input, in its data type."""
    if old.dtype is None or old.dtype not in known:
        names = " or ".join(str(dtype).lower() for dtype in known)
        raise CheckpointError(f"the input {old.name!r} is of the type {old.dtype}; it must be {names}")
    old.name = f"{old.name}.given"
    old.replace_all_uses_with(before.add("Cast", value, to=int(old.dtype)))


def _take_pixels(before: Nodes, given: onnx_ir.Value, described: OnnxModel) -> None:
    image = described.image_spec
    pixels = before.input("pixel_values", onnx_ir.DataType.FLOAT, ["batch", image.channels, image.height, image.width])
    _check_pixels(given, described)
    if described.is_bgr:
        order = before.constant([2, 1, 0], onnx_ir.DataType.INT64)
        pixels_in_order = before.add("Gather", pixels, order, axis=1)
    else:
        pixels_in_order = pixels
    if wants_channels_last(list(given.shape or []), image.channels):
        pixels_in_order = before.add("Transpose", pixels_in_order, perm=[0, 2, 3, 1])
    _cast(before, pixels_in_order, given, FLOATS)


def wants_channels_last(axes: Sequence[object] | None, channels: int) -> bool:
    """Whether an input takes pixels as [batch, height, width, channels]: its axes say so, where they are numbers."""
    axes = axes or ()
    return len(axes) == _PICTURE_AXES and axes[1] != channels and axes[3] == channels


def _check_pixels(given: onnx_ir.Value, described: OnnxModel) -> None:
    """Refuse pictures of other sizes than the input says."""
    image = described.image_spec
    axes = list(given.shape or [])
    if not axes:
        return
    wanted = [image.channels, image.height, image.width]
    if wants_channels_last(axes, image.channels):
        wanted = [image.height, image.width, image.channels]
    fits = all(not isinstance(size, int) or size in {each, -1} for size, each in zip(axes[1:], wanted, strict=False))
    if len(axes) != _PICTURE_AXES or not fits:
        told = ", ".join(str(each) for each in axes)
        raise CheckpointError(
            f"the input {given.name!r} is [{told}], and pictures are {image.channels} channels of"
            f" {image.height} x {image.width} pixels: --image-size says their size"
        )


def _take_text(before: Nodes, given: Mapping[str, onnx_ir.Value]) -> None:
    i32, i64 = onnx_ir.DataType.INT32, onnx_ir.DataType.INT64
    input_ids = before.input("input_ids", i64, ["batch", "seq"])
    lengths = before.input("lengths", i32, ["batch"])
    _cast(before, input_ids, given["input_ids"], INTEGERS)
    if "lengths" in given:
        _cast(before, lengths, given["lengths"], INTEGERS)
    zeros = before.add("Mul", input_ids, before.constant(0, i64))
    seq = before.add("Gather", before.add("Shape", input_ids), before.constant(1, i64), axis=0)
    positions = before.add("Range", before.constant(0, i64), seq, before.constant(1, i64))
    if "attention_mask" in given:
        rows = before.add("Unsqueeze", before.add("Cast", lengths, to=int(i64)), before.constant([1], i64))
        kinds = (*INTEGERS, *FLOATS, onnx_ir.DataType.BOOL)
        _cast(before, before.add("Less", positions, rows), given["attention_mask"], kinds)
    if "token_type_ids" in given:
        _cast(before, zeros, given["token_type_ids"], INTEGERS)
    if "position_ids" in given:
        _cast(before, before.add("Add", zeros, positions), given["position_ids"], INTEGERS)


def _check_inputs(given: Mapping[str, onnx_ir.Value], known: Sequence[str]) -> None:
    hint = f"known are {', '.join(known)}: --rename OLD=NEW gives an input another name"
    for name in given:
        if name not in known:
            raise CheckpointError(f"the graph takes {name!r}; {hint}")
    if known[0] not in given:
        raise CheckpointError(f"the graph takes no {known[0]}; {hint}")
    if "lengths" in given and "attention_mask" in given:
        raise CheckpointError("a graph of texts takes lengths or an attention_mask, to tell ids from padding: not both")


def _check_axes(name: str, port: onnx_ir.Value, num_free: int) -> None:
    """Refuse a graph that was exported for one size of batch, or one length of texts."""
    axes = list(port.shape or [])[:num_free]
    for what, size in zip(("batch", "length"), axes, strict=False):
        if isinstance(size, int) and size > 0:  # some exporters write -1 for an axis that is free
            raise CheckpointError(
                f"the {what} of the input {name!r} is fixed at {size}: export the model again with a free axis,"
                " in torch.onnx.export by dynamic_shapes"
            )
