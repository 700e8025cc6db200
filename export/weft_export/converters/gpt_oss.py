"""gpt-oss (OpenAI 2025): a mixture of experts in each layer, and heads that may look nowhere.

Layers with a window alternate with those that see all. Experts have biases, and what passes their gates is cut.
"""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import llama_style, turned_sizes, windowed
from weft_export.converters.llama import LLAMA, llama_names
from weft_export.converters.mixtures import mixed, number_of_experts
from weft_export.converters.sources import Names, Source, computed
from weft_export.families.decoder_only import DecoderOnlyConfig

_OURS, _THEIRS = "layers.{}.feed_forward", "model.layers.{}"
_WINDOW = 128
_ORIGINAL = "original_max_position_embeddings"
# What its class takes where nothing says how heads are turned.
_ROPE = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, _ORIGINAL: 4096}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """YaRN over whole heads, a window in every second layer from the first on, and what its gates do."""
    fields = hf.fields
    if not fields.raw("rope_scaling"):
        fields.take_for_granted("rope_parameters", _ROPE)
    # Its class reads neither. What it does is x sigmoid(1.702 x), whatever they say.
    fields.only("hidden_act", "silu")
    fields.only("swiglu_alpha", 1.702)
    style = llama_style(
        hf,
        norm_eps=1e-5,
        activation="quick_gelu",
        gate_limit=fields.positive("swiglu_limit", 7.0),
        bias=fields.flag("attention_bias", default=True),
        feed_forward_bias=True,
    )
    style = replace(mixed(hf, style, number_of_experts(hf), 128, 4), router_bias=True)
    # The released config says both a second time.
    fields.only("experts_per_token", style.num_chosen_experts)
    said = fields.part("rope_scaling" if fields.raw("rope_scaling") else "rope_parameters")
    fields.only("initial_context_length", said.raw(_ORIGINAL))
    absent = {"num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880}
    config = replace(turned_sizes(hf, style, absent=absent, theta=150000.0), sinks=True)
    window = fields.whole_or_null("sliding_window", _WINDOW)
    return windowed(hf, config, window, lambda layer: layer % 2 == 0)


def names(config: DecoderOnlyConfig) -> Names:
    """Llama's, but that all experts of a layer lie in one tensor, and gates between what they multiply."""
    table = {
        **llama_names(config),
        "layers.{}.attention.sinks": f"{_THEIRS}.self_attn.sinks",
        f"{_OURS}.router": f"{_THEIRS}.mlp.router.weight",
        f"{_OURS}.router_bias": f"{_THEIRS}.mlp.router.bias",
    }
    for layer in range(config.num_layers):
        theirs = f"{_THEIRS}.mlp.experts".replace("{}", str(layer))
        for number in range(config.style.num_experts or 0):
            table |= _numbered(f"layers.{layer}.feed_forward.experts.{number}", theirs, number)
    return table


def _numbered(ours: str, theirs: str, number: int) -> dict[str, Source | str]:
    """Return the sources of one expert, whose matrices are stored as [inputs, outputs]."""
    first, last = f"{theirs}.gate_up_proj", f"{theirs}.down_proj"
    return {
        f"{ours}.gate_proj.weight": computed(lambda every: every[number, :, 0::2].t(), first),
        f"{ours}.gate_proj.bias": computed(lambda every: every[number, 0::2], f"{first}_bias"),
        f"{ours}.up_proj.weight": computed(lambda every: every[number, :, 1::2].t(), first),
        f"{ours}.up_proj.bias": computed(lambda every: every[number, 1::2], f"{first}_bias"),
        f"{ours}.down_proj.weight": computed(lambda every: every[number].t(), last),
        f"{ours}.down_proj.bias": computed(lambda every: every[number], f"{last}_bias"),
    }


GPT_OSS = replace(LLAMA, model_type="gpt_oss", architectures=("GptOssForCausalLM",), sizes=sizes, names=names)
CONVERTERS = (GPT_OSS,)
