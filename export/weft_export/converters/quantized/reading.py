"""Weights that `quantization_config` says are stored otherwise, as the float32 weights that they stand for."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from weft_export.checkpoints.formats import QUANTISED
from weft_export.converters.fields import Fields
from weft_export.converters.quantized.product import StoredProduct
from weft_export.converters.tensors import NamedTensors, StoredTensors
from weft_export.errors import CheckpointError

# What AutoRound writes into the formats of others: how it found the weights.
_AUTO_ROUND = [
    "amp",
    "autoround_version",
    "batch_size",
    "block_name_to_quantize",
    "enable_minmax_tuning",
    "enable_norm_bias_tuning",
    "enable_quanted_input",
    "gradient_accumulate_steps",
    "iters",
    "low_gpu_mem_usage",
    "lr",
    "minmax_lr",
    "nsamples",
    "provider",
    "seqlen",
    "sym",
    "to_quant_block_names",
]
# Its own format is that of others under another name.
_PACKINGS = {"auto_round:auto_gptq": "gptq", "auto_round:auto_awq": "awq"}
# Of each quant_method the module in this folder, whose stored_products finds what stands for a weight.
_METHODS = {"gptq": "gptq", "awq": "awq", "compressed-tensors": "compressed", "mxfp4": "mxfp4"}


def unquantised(config: Mapping[str, Any], fields: Fields, stored: StoredTensors) -> NamedTensors:
    """Return the tensors of a directory whose config says that they are quantised: a weight for all that stands for it.

    Raises:
        CheckpointError: the way is not read, or its tensors do not fit each other. The field is named.
    """
    key = next(each for each in QUANTISED if config.get(each) is not None)
    said = fields.part(key)
    # What llmcompressor writes may leave its own name out.
    method = said.word("quant_method", "compressed-tensors" if "config_groups" in said else "")
    if method == "auto-round" or "autoround_version" in said:
        said.skip("quant_method", *_AUTO_ROUND)
        said.only("data_type", "int")
        method = said.among("packing_format", _PACKINGS) if method == "auto-round" else method
    if method not in _METHODS:
        known = ", ".join(_METHODS)
        raise said.wrong("quant_method", f"is not read: of weights that are quantised already, {known} are")
    if config.get("model_type") == "gpt2":
        raise CheckpointError(
            f"{said.place}: GPT-2's matrices are stored as [inputs, outputs], and quantised ones are read as"
            " [outputs, inputs] alone"
        )
    module = import_module(f"weft_export.converters.quantized.{_METHODS[method]}")
    products: list[StoredProduct] = module.stored_products(said, stored)
    said.check_all_read()
    if not products:
        raise said.wrong("quant_method", "says that weights are quantised, and the files have none such")
    fields.notes.append(
        f"{len(products)} weights that {method} quantised are widened to float32, which loses nothing"
        f"{'' if not all(each.is_even for each in products) else '; at --precision int4 they keep their 4 bits'}"
    )
    fields.notes.extend(said.notes)
    return _with(stored, products)


def _with(stored: StoredTensors, products: list[StoredProduct]) -> NamedTensors:
    used = {name for product in products for name in product.used}
    tensors = NamedTensors()
    tensors.paths, tensors.is_pickle = stored.paths, stored.is_pickle
    for name in stored.entries.keys() - used:
        tensors.add(stored.paths[0], name, stored.entries[name], stored.reader(name))
    for product in products:
        tensors.add(stored.paths[0], product.name, product.entry, product.read)
    return tensors
