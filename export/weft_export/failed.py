"""The graphs of an export whose proof failed: they stay for who looks at them, and for the next export."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.graphs.graphs import Graph
from weft_export.verification.tolerance import Figures
from weft_proto.v1 import bundle_pb2

FIGURES_FILE = "figures.txt"
_DIGITS = 16


def place_of(
    home: Path,
    directory: Path,
    checkpoint: Checkpoint,
    precision: bundle_pb2.Precision.ValueType,
    graphs: Sequence[Graph],
) -> Path:
    """Return where such graphs of a checkpoint stay in `home`. Its name follows from all that they are traced from.

    That is the model with its weights, what a graph takes and gives, and the exporter itself. A golden request, a
    description and held-out examples are no part of it, but for what rounding makes of these.
    """
    from weft_export.checkpoints.exporter import sources, versions  # noqa: PLC0415 - late: few exports fail

    digest = hashlib.sha256()
    ports = [
        (graph.file_name, graph.outputs, [(port.name, port.example.shape, port.axes) for port in graph.inputs])
        for graph in graphs
    ]
    states = [state.SerializeToString(deterministic=True) for graph in graphs for state in graph.states]
    adapters = b"" if checkpoint.adapters is None else checkpoint.adapters.SerializeToString(deterministic=True)
    model = checkpoint.model
    made_of = (versions(), precision, checkpoint.paged, adapters, ports, states, model.config, model)
    digest.update(repr(made_of).encode())
    for name, path in sources(directory):
        digest.update(f"{name}\0".encode() + path.read_bytes())
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype}\0".encode())
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return home / f".weft-failed-{digest.hexdigest()[:_DIGITS]}"


def any_in(home: Path) -> bool:
    """Whether a folder has graphs of a failed export: else nobody has to know the place of one."""
    return any(home.glob(".weft-failed-*"))


def take(place: Path, work: Path) -> bool:
    """Move what stays in a place to `work`, which is empty. Return whether there was anything."""
    try:
        place.rename(work)
    except OSError:
        return False
    (work / FIGURES_FILE).unlink(missing_ok=True)
    return True


def leave(work: Path, place: Path, figures: Figures) -> None:
    """Move the graphs in `work` to a place, and write the figures beside them."""
    figures.write(work / FIGURES_FILE)
    if place.exists():  # another export of the same was quicker
        (place / FIGURES_FILE).write_bytes((work / FIGURES_FILE).read_bytes())
    else:
        shutil.move(work, place)
