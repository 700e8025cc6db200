"""How a picture is resized before it is cut or padded, as an ImageSpec says."""

from weft_proto.v1 import bundle_pb2


def resized_sizes(spec: bundle_pb2.ImageSpec, width: int, height: int) -> list[tuple[int, int]]:
    """Return the widths and heights that a picture is resized to, one after the other, before it is cut or padded."""
    last = resized_size(spec, width, height)
    if not spec.shortest_edge or not spec.padding:
        return [last]
    first = _by_shortest_edge(spec, width, height)
    return [first] if first == last else [first, last]


def _by_shortest_edge(spec: bundle_pb2.ImageSpec, width: int, height: int) -> tuple[int, int]:
    shorter = min(width, height)
    return spec.shortest_edge * width // shorter, spec.shortest_edge * height // shorter


def resized_size(spec: bundle_pb2.ImageSpec, width: int, height: int) -> tuple[int, int]:
    """Return the width and height that a picture has at last before it is cut or padded, as ImageSpec says."""
    if spec.shortest_edge:
        width, height = _by_shortest_edge(spec, width, height)
        if not spec.padding:
            return width, height
        if height > spec.height:
            return max(1, width * spec.height // height), spec.height
        return (spec.width, max(1, height * spec.width // width)) if width > spec.width else (width, height)
    if spec.padding:
        scale = min(spec.width / width, spec.height / height)
        return max(1, round(width * scale)), max(1, round(height * scale))
    return spec.resize_width or spec.width, spec.resize_height or spec.height


def _padding_fault(spec: bundle_pb2.ImageSpec) -> str | None:
    if len(spec.padding) != spec.channels:
        return f"image.padding has {len(spec.padding)} values for {spec.channels} channels"
    if spec.resize_height or spec.resize_width:
        return "image.padding is set, and so is resize_height or resize_width"
    if spec.shortest_edge > min(spec.height, spec.width):
        return f"image.shortest_edge ({spec.shortest_edge}) is more than height or width, and image.padding is set"
    if spec.shortest_edge:
        return None
    if spec.grid_rows > 1 or spec.grid_columns > 1:
        return "image.padding is for pictures that are not explained, whose grid is 1 x 1"
    return None


def resizing_fault(spec: bundle_pb2.ImageSpec) -> str | None:
    """Say what is wrong with how an ImageSpec resizes and cuts, or None."""
    if spec.padding:
        return _padding_fault(spec)
    if spec.shortest_edge:
        if spec.resize_height or spec.resize_width:
            return "image.shortest_edge is set, and so is resize_height or resize_width"
        if spec.shortest_edge < max(spec.height, spec.width):
            return f"image.shortest_edge ({spec.shortest_edge}) is less than height or width"
    for side in ("height", "width"):
        resized, cut = getattr(spec, f"resize_{side}"), getattr(spec, side)
        if 0 < resized < cut:
            return f"image.resize_{side} ({resized}) is less than {side} ({cut})"
    return None
