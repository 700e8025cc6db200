"""`weft export --graphs-only`: the graphs of a checkpoint for who has a runtime, and a file that says their ports."""

import tempfile
from dataclasses import replace
from pathlib import Path

from google.protobuf import json_format

from weft_export.errors import ExportError
from weft_export.export import OnNote, OnStage, check_device, load, rounded
from weft_export.graphs.graphs import graphs_of, states_of
from weft_export.graphs.onnx_graph import read_ports, write_graph
from weft_export.options import ExportOptions
from weft_export.verification.parity import check_parity
from weft_proto.bundle_rules import ROUNDED
from weft_proto.v1 import bundle_pb2

PORTS_FILE = "ports.json"


def export_graphs(
    checkpoint_dir: Path, folder: Path, options: ExportOptions, on_stage: OnStage, on_note: OnNote
) -> bundle_pb2.Parity:
    """Write the .onnx files of a checkpoint, and ports.json: `graphs` and `states` as in a bundle's manifest.

    Torch and ONNX Runtime agree about them, as about a bundle's. on_note gets what a person should know, at once.

    Raises:
        ExportError: the folder is not empty; or as export_checkpoint.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(f"{folder} exists already, and is not an empty directory")
    on_stage("loading the checkpoint", 0, 1)
    loaded, number = load(checkpoint_dir, options), options.number
    for note in loaded.notes:
        on_note(note)
    checkpoint = replace(loaded.checkpoint, explains=not options.no_explain)
    check_device(checkpoint, number)
    if number in ROUNDED:
        checkpoint = rounded(checkpoint, number, (), on_note)
    graphs = graphs_of(checkpoint, number)
    home = next(path for path in folder.absolute().parents if path.is_dir())
    try:
        with tempfile.TemporaryDirectory(prefix=".weft-export-", dir=home) as scratch:
            work = Path(scratch) / "graphs"
            work.mkdir()
            for index, graph in enumerate(graphs):
                on_stage(f"exporting {graph.file_name}", index + 1, len(graphs) + 2)
                write_graph(graph, work)
            on_stage("checking parity", len(graphs) + 1, len(graphs) + 2)
            parity = check_parity(checkpoint, work, number)
            ports = bundle_pb2.BundleManifest(
                precision=number,
                graphs=[read_ports(work / graph.file_name, graph.role) for graph in graphs],
                states=states_of(checkpoint.model, number),
            )
            (work / PORTS_FILE).write_text(json_format.MessageToJson(ports, indent=2) + "\n", encoding="utf-8")
            folder.parent.mkdir(parents=True, exist_ok=True)
            work.rename(folder)
    except OSError as error:
        raise ExportError(f"cannot write {folder}: {error.strerror or error}") from error
    return parity
