"""A checkpoint with an adapter added to its weights, and what that is of each product of ours.

The merged checkpoint is written as a directory and read as any other. So whatever a converter does to a weight, it does
to what an adapter adds to it: rows are put together, turned or reordered. Only what PEFT calls them is told by a table.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from weft_export.adapters.adapter_config import MERGE
from weft_export.adapters.modules import Modules
from weft_export.adapters.peft import Adapter, Change, changed
from weft_export.checkpoints.weights import WEIGHTS_FILE
from weft_export.converters.tensors import StoredTensors
from weft_export.errors import CheckpointError
from weft_export.graphs.adapting import adapter_spec
from weft_export.verification.session import Pairs
from weft_proto.v1 import bundle_pb2

# What float32 has rounded away of a weight, merged or not, as a share of its size.
_NOISE = 2.0**-22
_SMALL_FILE = 2**26


def write_merged(checkpoint: Path, adapter: Adapter, directory: Path) -> dict[str, Change]:
    """Write a checkpoint's directory with an adapter added to its weights.

    Returns:
        What was added, by the names of the weights in the checkpoint's files.

    Raises:
        CheckpointError: There are three cases:
            1. The adapter is for a module that the checkpoint has not.
            2. It has two changes of one weight.
            3. It has a parameter that was saved whole and is not the checkpoint's.
    """
    stored = StoredTensors(checkpoint)
    modules = Modules(checkpoint, stored.entries)
    _check_whole(adapter, modules, stored)
    by_weight = _by_weight(adapter, modules)
    merged = {name: stored.read(name) for name in stored.entries}
    for name, change in by_weight.items():
        merged[name] = changed(merged[name], change, name, turned=modules.is_turned(name))
    content = safetensors.torch.save({name: tensor.clone().contiguous() for name, tensor in merged.items()})
    (directory / WEIGHTS_FILE).write_bytes(content)
    for path in checkpoint.iterdir():
        is_weights = path.suffix in (".safetensors", ".bin") or path.name.endswith(".index.json")
        if path.is_file() and not is_weights and path.stat().st_size <= _SMALL_FILE:
            shutil.copyfile(path, directory / path.name)
        elif path.is_dir():
            # sentence-transformers keeps in folders what is behind the body. No adapter changes that.
            (directory / path.name).symlink_to(path.resolve(), target_is_directory=True)
    return by_weight


def _by_weight(adapter: Adapter, modules: Modules) -> dict[str, Change]:
    by_weight: dict[str, Change] = {}
    for module, change in adapter.changes.items():
        name = modules.stored(f"{module}.weight")
        if name is None:
            raise CheckpointError(f"the adapter is for {module}, and the checkpoint has no weight of that name")
        if name in by_weight:
            raise CheckpointError(f"the adapter is for {module} and for another module that is {name} too")
        by_weight[name] = change
    return by_weight


def _check_whole(adapter: Adapter, modules: Modules, stored: StoredTensors) -> None:
    """Let pass what was saved whole and never trained, as PEFT saves the heads of classifiers."""
    for name, tensor in adapter.whole.items():
        place = modules.stored(name)
        if place is None or not torch.equal(stored.read(place), tensor.float()):
            raise CheckpointError(
                f"{adapter.weights}: {name} was saved whole, and is not the checkpoint's own. An adapter changes"
                f" products of layers alone; {MERGE}"
            )


def pairs_of(
    base: nn.Module,
    merged: nn.Module,
    spec: bundle_pb2.AdapterSpec,
    made_of: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Pairs:
    """Return A [inputs, rank] and B [rank, outputs] of each product whose weight differs.

    made_of: the stored weights that each of ours is made of, where they have other names.

    Raises:
        CheckpointError: another weight differs, or the difference has a larger rank than the product takes.
    """
    layers = {f"{layer.name}.weight": layer for layer in spec.layers}
    after = dict(merged.named_parameters())
    pairs = {}
    for name, parameter in base.named_parameters():
        weight, sum_ = parameter.detach().double(), after[name].detach().double()
        delta = sum_ - weight
        if not bool(delta.any()):
            continue
        if name not in layers:
            known = f" (of {', '.join(made_of[name])})" if name in made_of else ""
            raise CheckpointError(f"the adapter changes {name}{known}, and {_taken(base, name, spec)}")
        layer = layers[name]
        pairs[layer.name] = _factors(delta, layer, max(float(weight.norm()), float(sum_.norm())))
    if not pairs:
        raise CheckpointError("the adapter changes nothing: all that it adds is zero, by lora_alpha or by its tensors")
    return {layer.name: pairs[layer.name] for layer in spec.layers if layer.name in pairs}


def _taken(base: nn.Module, name: str, spec: bundle_pb2.AdapterSpec) -> str:
    """Say what a bundle takes adapters of, and what to do with one of another weight."""
    taken = ", ".join(sorted({layer.name.rpartition(".")[2] for layer in spec.layers}))
    product = name.removesuffix(".weight")
    if product in {layer.name for layer in adapter_spec(base, 1).layers}:
        more = f"export it with {product.rpartition('.')[2]} in --adapted too"
    else:
        # A head may have a product of the same name.
        more = f"train it with exclude_modules that leave out all others, or take another way: {MERGE}"
    return f"the bundle takes adapters of the layers' {taken} alone; {more}"


def _factors(delta: Tensor, layer: bundle_pb2.AdaptedLayer, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Return A and B of a difference [outputs, inputs] of low rank, of weights of this size at most."""
    generator = torch.Generator().manual_seed(0)
    # The columns of a matrix of low rank are combinations of as many random ones ("Finding Structure with Randomness",
    # Halko et al. 2011, section 1.3).
    width = min(layer.rank + 8, *delta.shape)
    seen = delta @ torch.randn(delta.shape[1], width, dtype=torch.float64, generator=generator)
    basis = torch.linalg.qr(seen).Q
    left, sizes, right = torch.linalg.svd(basis.T @ delta, full_matrices=False)
    noise = _NOISE * size
    rank = max(1, int((sizes > noise).sum()))
    missing = float((delta - basis @ (basis.T @ delta)).norm())
    if rank > layer.rank or missing > noise + 1e-6 * float(delta.norm()):
        least = f"{rank}" if rank < width else f"{width} or more"
        raise CheckpointError(
            f"the adapter has a rank of {least} in {layer.name}, and the bundle takes {layer.rank} there: export it"
            " with --adapters of more"
        )
    # Each gets the half of the sizes, so neither is far larger than the other.
    roots = sizes[:rank].sqrt()
    a = (right[:rank] * roots[:, None]).T
    b = (basis @ left[:, :rank] * roots).T
    return a.float().contiguous().numpy(), b.float().contiguous().numpy()
