"""Mixtures of experts: Mixtral (Jiang et al. 2024), Qwen 3, Granite 3, OLMoE (Muennighoff et al. 2024).

Layers are those of the dense kind beside each.
"""

from collections.abc import Sequence
from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import llama_style, read_sizes, read_words, turned, turned_sizes, windowed
from weft_export.converters.granite import GRANITE, granite_style, granite_words
from weft_export.converters.llama import LLAMA, llama_names, qwen3_names
from weft_export.converters.sources import Names, Source, computed
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

_OURS, _THEIRS = "layers.{}.feed_forward", "model.layers.{}"
_PARTS = ("gate_proj", "up_proj", "down_proj")


def mixtral_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Mixtral: Mistral's layers."""
    fields = hf.fields
    style = mixed(hf, llama_style(hf, norm_eps=1e-5), "num_local_experts", 8, 2)
    absent = {"num_key_value_heads": 8, "intermediate_size": 14336}
    config = turned_sizes(hf, style, absent=absent, theta=1e6)
    window = fields.whole_or_null("sliding_window", None)
    return windowed(hf, config, window, lambda _: window is not None, typed=False)


def mixtral_names(config: DecoderOnlyConfig) -> Names:
    """Mistral's, and the names of the first mixture, which have numbers."""
    return {**llama_names(config), **_expert_names("block_sparse_moe", ("w1", "w3", "w2"))}


def qwen_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Qwen 3: with norms of heads. All layers are mixtures; those of which some are not are refused."""
    fields = hf.fields
    fields.only("decoder_sparse_step", 1)
    fields.only("mlp_only_layers", [])
    # That of layers that are no mixtures.
    fields.skip("intermediate_size", "max_window_layers")
    style = llama_style(hf, qk_norm=True, bias=fields.flag("attention_bias", default=False), feed_forward_bias=False)
    style = mixed(hf, style, number_of_experts(hf), 128, 8, normed=fields.flag("norm_topk_prob", default=False))
    words = read_words(hf, tied=False)
    called = {"intermediate_size": "moe_intermediate_size"}
    absent = {"num_key_value_heads": 4, "intermediate_size": 768}
    config = turned(hf, read_sizes(hf, style, words, called=called, absent=absent))
    window = fields.whole_or_null("sliding_window", 4096) if fields.flag("use_sliding_window", default=False) else None
    fields.skip("sliding_window")
    return windowed(hf, config, window, lambda _: window is not None, typed=False)


def qwen_names(config: DecoderOnlyConfig) -> Names:
    """Qwen 3's."""
    return {**qwen3_names(config), **_expert_names("mlp", ("gate_proj", "up_proj", "down_proj"))}


def olmoe_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """OLMoE: with a norm of all queries and of all keys. Those that clip queries and the like are refused."""
    fields = hf.fields
    fields.only("clip_qkv", None)
    bias = fields.flag("attention_bias", default=False)
    style = llama_style(hf, norm_eps=1e-5, bias=bias, feed_forward_bias=False, qk_norm=True, whole_qk_norm=True)
    style = mixed(hf, style, number_of_experts(hf), 64, 8, normed=fields.flag("norm_topk_prob", default=False))
    return turned_sizes(hf, style, absent={"intermediate_size": 2048})


def granite_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Granite 3 of 1 and 3 billion numbers: the dense one's layers, with its multipliers."""
    style = mixed(hf, granite_style(hf), "num_local_experts", 8, 2)
    return turned(hf, read_sizes(hf, style, granite_words(hf), absent={"intermediate_size": 11008}))


def granite_names(config: DecoderOnlyConfig) -> Names:
    """Llama's, but that all experts of a layer lie in two tensors."""
    return {**llama_names(config), **merged_expert_names(config)}


def merged_expert_names(config: DecoderOnlyConfig) -> Names:
    """Return the sources of Granite's experts."""
    moe = f"{_THEIRS}.block_sparse_moe"
    named: dict[str, Source | str] = {}
    for number in range(config.style.num_experts or 0):
        for layer in range(config.num_layers):
            named |= _numbered(f"layers.{layer}.feed_forward.experts.{number}", moe.replace("{}", str(layer)), number)
    return {f"{_OURS}.router": f"{moe}.router.layer.weight", **named}


def _numbered(ours: str, theirs: str, number: int) -> dict[str, Source | str]:
    """Return the sources of one expert."""
    first, last = f"{theirs}.input_linear.weight", f"{theirs}.output_linear.weight"
    return {
        f"{ours}.gate_proj.weight": computed(lambda all_: all_[number].chunk(2)[0], first),
        f"{ours}.up_proj.weight": computed(lambda all_: all_[number].chunk(2)[1], first),
        f"{ours}.down_proj.weight": computed(lambda all_: all_[number], last),
    }


def _expert_names(block: str, parts: Sequence[str]) -> Names:
    """Return the sources of experts that have a tensor for each product."""
    ours, theirs = f"{_OURS}.experts.{{}}", f"{_THEIRS}.{block}"
    named = {
        f"{ours}.{our}.weight": f"{theirs}.experts.{{}}.{their}.weight"
        for our, their in zip(_PARTS, parts, strict=True)
    }
    return {**named, f"{_OURS}.router": f"{theirs}.gate.weight"}


def number_of_experts(hf: HfCheckpoint) -> str:
    """Return the name of the field: transformers takes both, and writes the second."""
    return "num_experts" if "num_experts" in hf.fields else "num_local_experts"


def mixed(
    hf: HfCheckpoint, style: Style, field: str, num_experts: int, num_chosen: int, *, normed: bool = True
) -> Style:
    """Return a style with a mixture in each layer. The numbers are those of its class."""
    fields = hf.fields
    # They are of training.
    fields.skip("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
    count = fields.whole(field, num_experts)
    chosen = fields.whole("num_experts_per_tok", num_chosen)
    if not 1 <= chosen <= count:
        raise fields.wrong("num_experts_per_tok", f"must be between 1 and the {count} experts")
    return replace(style, num_experts=count, num_chosen_experts=chosen, normed_experts=normed)


MIXTRAL = replace(
    LLAMA, model_type="mixtral", architectures=("MixtralForCausalLM",), sizes=mixtral_sizes, names=mixtral_names
)
QWEN3_MOE = replace(
    LLAMA, model_type="qwen3_moe", architectures=("Qwen3MoeForCausalLM",), sizes=qwen_sizes, names=qwen_names
)
OLMOE = replace(LLAMA, model_type="olmoe", architectures=("OlmoeForCausalLM",), sizes=olmoe_sizes, names=qwen_names)
GRANITE_MOE = replace(
    GRANITE,
    model_type="granitemoe",
    architectures=("GraniteMoeForCausalLM",),
    sizes=granite_sizes,
    names=granite_names,
)
CONVERTERS = (MIXTRAL, QWEN3_MOE, OLMOE, GRANITE_MOE)
