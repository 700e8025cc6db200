"""Tiny bundles whose caches lie in blocks, as a CPU can serve them: the operator replaced, and with small blocks."""

import hashlib
import json
import math
from pathlib import Path

import onnx
from tiny import save_tiny

from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_export.verification.widening import on_cpu
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.loading.paged_lanes import block_bytes

BLOCK_TOKENS = 16


def export_both(name: str, folder: Path) -> tuple[Path, Path]:
    """Export a tiny generator at fp16 with slots and with blocks; the bundles' directories."""
    checkpoint = save_tiny(name, folder / "checkpoint")
    slotted, paged = folder / "slotted" / "1", folder / "paged" / "1"
    export_checkpoint(checkpoint, slotted, ExportOptions(precision="fp16", no_score=True, no_explain=True))
    export_checkpoint(checkpoint, paged, ExportOptions(precision="fp16", no_score=True, no_explain=True, paged=True))
    stand_in(paged)
    return slotted, paged


def stand_in(directory: Path) -> None:
    """Let a CPU run a paged bundle, and give it small blocks, so that tiny sequences have several."""
    bundle = load_bundle(directory)
    (graph,) = (each for each in bundle.manifest.graphs if each.role == bundle_pb2.GRAPH_ROLE_DECODER)
    model = onnx.load_from_string(on_cpu(directory / graph.path))
    caches = {name for state in bundle.manifest.states for name in (state.past, state.present)}
    for port in (*model.graph.input, *model.graph.output):
        if port.name in caches:
            port.type.tensor_type.shape.dim[1].dim_value = BLOCK_TOKENS
    del model.graph.value_info[:]
    used = {node.domain for node in model.graph.node}
    opsets = [opset for opset in model.opset_import if opset.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(opsets)
    data = model.SerializeToString()
    (directory / graph.path).write_bytes(data)
    path = directory / "bundle.json"
    told = json.loads(path.read_text())
    for file in told["files"]:
        if file["path"] == graph.path:
            file |= {"sizeBytes": str(len(data)), "sha256": hashlib.sha256(data).hexdigest()}
    for state in told["states"]:
        state["shape"][0] = BLOCK_TOKENS
    for each in told["graphs"]:
        for port in (*each["inputs"], *each["outputs"]):
            if port["name"] in caches:
                port["shape"][1] = str(BLOCK_TOKENS)
    path.write_text(json.dumps(told))


def gigabytes_of(directory: Path, num_blocks: int) -> float:
    """What `--cache-gb` gives a bundle so many blocks."""
    return math.nextafter(num_blocks * block_bytes(load_bundle(directory).manifest) / 1e9, math.inf)
