"""Writes a bundle: the manifest of bundle.proto beside the files it lists."""

import hashlib
import importlib.metadata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import onnx
import torch
from google.protobuf import json_format
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.choices import POOLINGS
from weft_export.errors import CheckpointError
from weft_export.families.classifier import IDENTITY, SIGMOID, Classifier
from weft_export.graphs.graphs import states_of
from weft_export.graphs.onnx_graph import OPSET, read_ports
from weft_export.layers.pooling import ATTENTION, NONE
from weft_proto.bundle_rules import FORMAT_VERSION, MANIFEST_FILE, MAX_MANIFEST_BYTES
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2

SCORINGS = {SIGMOID: common_pb2.LABEL_SCORING_SIGMOID, IDENTITY: common_pb2.LABEL_SCORING_IDENTITY}
_POOLINGS = {names.family: names.number for names in POOLINGS.values()} | {
    ATTENTION: bundle_pb2.POOLING_ATTENTION,
    NONE: bundle_pb2.POOLING_NONE,
}


def token_spec_of(config: Any) -> bundle_pb2.TokenVectorSpec | None:
    """Return what a model that embeds gives for each token of a text; None: one vector of the whole."""
    spec: bundle_pb2.TokenVectorSpec | None = getattr(config, "tokens", None)
    return spec


class GraphFile(Protocol):
    """A graph whose file has been written."""

    @property
    def role(self) -> bundle_pb2.GraphRole.ValueType:
        """What it computes."""

    @property
    def file_name(self) -> str:
        """The .onnx file."""


def manifest_of(
    checkpoint: Checkpoint, precision: bundle_pb2.Precision.ValueType, golden: bundle_pb2.Golden
) -> bundle_pb2.BundleManifest:
    """Return what a manifest says before there are files.

    Raises:
        CheckpointError: that alone is more than a server reads.
    """
    manifest = bundle_pb2.BundleManifest(
        format_version=FORMAT_VERSION,
        task=checkpoint.task,
        family=checkpoint.family,
        description=checkpoint.description,
        precision=precision,
        states=states_of(checkpoint.model, precision, paged=checkpoint.paged),
        text=checkpoint.text,
        image=checkpoint.image,
        audio=checkpoint.audio,
        labels=checkpoint.labels,
        golden=golden,
        rounding=checkpoint.rounding,
        adapters=checkpoint.adapters,
    )
    if TASKS[checkpoint.task].has_labels or TASKS[checkpoint.task].matches:
        manifest.scoring = SCORINGS.get(getattr(checkpoint.model, "scoring", ""), common_pb2.LABEL_SCORING_UNSPECIFIED)
    if TASKS[checkpoint.task].embeds:
        config: Any = checkpoint.model.config
        # What is left of a vector that was cut has no length of its own.
        normalized = config.normalized and getattr(config, "cut", None) is None
        manifest.embedding.CopyFrom(
            bundle_pb2.EmbeddingSpec(
                dimensions=config.dimensions,
                pooling=_POOLINGS[config.pooling],
                normalized=normalized,
                tokens=token_spec_of(config),
            )
        )
    if TASKS[checkpoint.task].matches:
        assert isinstance(checkpoint.model, Classifier)
        model = checkpoint.model
        spec = bundle_pb2.MatchSpec(scale=model.scale, bias=model.bias, label_text=checkpoint.label_text)
        manifest.matching.CopyFrom(spec)
    if checkpoint.explained_heads:
        manifest.attention.heads.extend(checkpoint.explained_heads)
        if checkpoint.attention_layer is not None:
            manifest.attention.default_layer = checkpoint.attention_layer
    if checkpoint.decoding.ByteSize():
        manifest.decoding.CopyFrom(checkpoint.decoding)
    if checkpoint.max_new_tokens is not None:
        manifest.decoding.max_new_tokens = checkpoint.max_new_tokens
    if checkpoint.min_new_tokens:
        manifest.decoding.min_new_tokens = checkpoint.min_new_tokens
    _to_json(manifest)
    return manifest


def write_manifest(
    directory: Path,
    manifest: bundle_pb2.BundleManifest,
    graphs: Iterable[GraphFile],
    *,
    parity: bundle_pb2.Parity,
    provenance: bundle_pb2.Provenance,
    quality: bundle_pb2.Quality | None = None,
) -> None:
    """Complete a manifest with everything that lies in a directory and write bundle.json into it."""
    manifest.files.extend(_describe(path) for path in sorted(directory.iterdir()))
    manifest.graphs.extend(read_ports(directory / graph.file_name, graph.role) for graph in graphs)
    manifest.parity.CopyFrom(parity)
    manifest.provenance.CopyFrom(provenance)
    if quality is not None:
        manifest.quality.CopyFrom(quality)
    (directory / MANIFEST_FILE).write_bytes(_to_json(manifest))


def _to_json(manifest: bundle_pb2.BundleManifest) -> bytes:
    data = (json_format.MessageToJson(manifest, indent=2, ensure_ascii=False) + "\n").encode()
    if len(data) > MAX_MANIFEST_BYTES:
        raise CheckpointError(
            f"{MANIFEST_FILE} would have {len(data)} bytes or more; a server reads {MAX_MANIFEST_BYTES}. Labels and the"
            " probabilities of the golden answer are its largest parts"
        )
    return data


def provenance_of(checkpoint: Checkpoint, weights: Sequence[Path], onnxruntime_version: str) -> bundle_pb2.Provenance:
    """Say what made a bundle from the weights files of a checkpoint."""
    return bundle_pb2.Provenance(
        weft_version=importlib.metadata.version("weft-serving"),
        torch_version=str(torch.__version__),
        onnx_version=onnx.__version__,
        onnxruntime_version=onnxruntime_version,
        opset=OPSET,
        checkpoint_sha256=_digest(weights),
        num_parameters=sum(_distinct(checkpoint.model.parameters())),
    )


def provenance_of_file(path: Path, onnxruntime_version: str, opset: int, num_parameters: int) -> bundle_pb2.Provenance:
    """Say what made a bundle from an .onnx file of others. There is no version of torch: none was asked."""
    return bundle_pb2.Provenance(
        weft_version=importlib.metadata.version("weft-serving"),
        onnx_version=onnx.__version__,
        onnxruntime_version=onnxruntime_version,
        opset=opset,
        checkpoint_sha256=_sha256(path),
        num_parameters=num_parameters,
    )


def _distinct(parameters: Iterable[Tensor]) -> Iterable[int]:
    """Return the sizes of parameters, of those that share their memory once."""
    return {parameter.data_ptr(): parameter.numel() for parameter in parameters}.values()


def _digest(paths: Sequence[Path]) -> str:
    """Return the digest of a file, or of the digests of several, a line each."""
    digests = [_sha256(path) for path in paths]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()


def _describe(path: Path) -> bundle_pb2.BundleFile:
    return bundle_pb2.BundleFile(path=path.name, sha256=_sha256(path), size_bytes=path.stat().st_size)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
