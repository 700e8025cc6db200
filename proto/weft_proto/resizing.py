"""How a picture is resized before it is cut or padded, as an ImageSpec says."""

from weft_proto.v1 import bundle_pb2


def resized_size(spec: bundle_pb2.ImageSpec, width: int, height: int) -> tuple[int, int]:
    """Return the width and height that a picture is resized to before it is cut or padded, as ImageSpec says."""
    if spec.padding:
        scale = min(spec.width / width, spec.height / height)
        return max(1, round(width * scale)), max(1, round(height * scale))
    if not spec.shortest_edge:
        return spec.resize_width or spec.width, spec.resize_height or spec.height
    shorter = min(width, height)
    return spec.shortest_edge * width // shorter, spec.shortest_edge * height // shorter


def _padding_fault(spec: bundle_pb2.ImageSpec) -> str | None:
    if len(spec.padding) != spec.channels:
        return f"image.padding has {len(spec.padding)} values for {spec.channels} channels"
    if spec.shortest_edge or spec.resize_height or spec.resize_width:
        return "image.padding is set, and so is shortest_edge, resize_height or resize_width"
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
