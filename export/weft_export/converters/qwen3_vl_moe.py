"""Qwen3-VL as a mixture of experts (Bai et al. 2025): Qwen3-VL's encoder before the layers of Qwen 3's mixture."""

from dataclasses import replace

from torch import Tensor

from weft_export.converters import qwen3_vl
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import llama_style, read_sizes, read_words, turned
from weft_export.converters.mixtures import mixed, number_of_experts
from weft_export.converters.sources import Names, Source, computed
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.families.qwen3_vl import Qwen3VlConfig

_OURS, _THEIRS = "layers.{}.feed_forward", "model.language_model.layers.{}.mlp"
# What the decoder's class takes where text_config says nothing.
_ABSENT = {"vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16}


def sizes(hf: HfCheckpoint) -> Qwen3VlConfig:
    """As the dense one's. All layers are mixtures; those of which some are not are refused."""
    return qwen3_vl.sizes_with(hf, _decoder, _ABSENT, "qwen3_vl_moe_text")


def _decoder(text: HfCheckpoint) -> DecoderOnlyConfig:
    fields = text.fields
    fields.only("decoder_sparse_step", 1)
    fields.only("mlp_only_layers", [])
    # The released config says what its class does.
    fields.only("norm_topk_prob", True)
    # That of layers that are no mixtures.
    fields.skip("intermediate_size")
    bias = fields.flag("attention_bias", default=False)
    style = llama_style(text, qk_norm=True, bias=bias, feed_forward_bias=False)
    style = mixed(text, style, number_of_experts(text), 60, 4)
    words = read_words(text, tied=False)
    called = {"intermediate_size": "moe_intermediate_size"}
    absent = {"num_key_value_heads": 16, "intermediate_size": 1408}
    return turned(text, read_sizes(text, style, words, called=called, absent=absent), theta=500000.0)


def names(config: Qwen3VlConfig) -> Names:
    """The dense one's, but that all experts of a layer lie in two tensors."""
    table: dict[str, Source | str] = {**qwen3_vl.names(config), f"{_OURS}.router": f"{_THEIRS}.gate.weight"}
    for layer in range(config.num_layers):
        theirs = f"{_THEIRS}.experts".replace("{}", str(layer))
        for number in range(config.style.num_experts or 0):
            table |= _numbered(config, f"layers.{layer}.feed_forward.experts.{number}", theirs, number)
    return table


def _numbered(config: Qwen3VlConfig, ours: str, theirs: str, number: int) -> dict[str, Source | str]:
    """Return the sources of one expert."""
    inside, outside = (2 * config.d_ff, config.d_model), (config.d_model, config.d_ff)

    def first(every: Tensor) -> Tensor:
        return _matrix(every, number, inside)

    return {
        f"{ours}.gate_proj.weight": computed(lambda every: first(every).chunk(2)[0], f"{theirs}.gate_up_proj"),
        f"{ours}.up_proj.weight": computed(lambda every: first(every).chunk(2)[1], f"{theirs}.gate_up_proj"),
        f"{ours}.down_proj.weight": computed(lambda every: _matrix(every, number, outside), f"{theirs}.down_proj"),
    }


def _matrix(every: Tensor, number: int, shape: tuple[int, int]) -> Tensor:
    """Return that of one expert, of a shape. The released files have [inputs, outputs], and others the reverse."""
    return every[number] if every.shape[1:] == shape else every[number].t()


QWEN3_VL_MOE = replace(
    qwen3_vl.QWEN3_VL,
    model_type="qwen3_vl_moe",
    architectures=("Qwen3VLMoeForConditionalGeneration",),
    sizes=sizes,
    names=names,
)
CONVERTERS = (QWEN3_VL_MOE,)
