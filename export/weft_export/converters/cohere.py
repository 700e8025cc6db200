"""Command R (Cohere 2024) and Command A (Cohere et al. 2025): attention and feed-forward beside each other."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import norm_names, read_activation, read_sizes, read_words, turned, windowed
from weft_export.converters.fields import Fields
from weft_export.converters.llama import LLAMA, llama_names
from weft_export.converters.sources import Names
from weft_export.families.decoder_only import ALL, NONE, DecoderOnlyConfig
from weft_export.layers.style import Style


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Command R: LayerNorms without biases. The one of 104 billion numbers, whose heads have such norms, is refused."""
    return _turned(hf, theta=500000.0)


def windowed_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Command R7B and A: windows in three layers of four. The fourth sees all, and has no positions."""
    fields = hf.fields
    pattern = max(fields.whole("sliding_window_pattern", 4), 1)
    window = fields.whole_or_null("sliding_window", 4096)
    config = windowed(hf, _turned(hf, theta=10000.0), window, lambda layer: (layer + 1) % pattern != 0)
    windows = config.windows or (ALL,) * config.num_layers
    return replace(config, rotation_of=tuple(NONE if window == ALL else 0 for window in windows))


def _turned(hf: HfCheckpoint, *, theta: float) -> DecoderOnlyConfig:
    fields = hf.fields
    _check_released(fields)
    style = Style(
        residual="parallel",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        norm_bias=False,
        activation=read_activation(fields),
        gated=True,
        bias=fields.flag("attention_bias", default=False),
        feed_forward_bias=False,
    )
    words = read_words(hf, tied=True, logit_scale=fields.positive("logit_scale", 0.0625))
    return turned(hf, read_sizes(hf, style, words, absent={"intermediate_size": 22528}), theta=theta)


def _check_released(fields: Fields) -> None:
    """Refuse fields of the released configs that say anything but what transformers does: it reads the first alone."""
    fields.only("use_qk_norm", False)
    fields.only("position_embedding_type", "rope_gptj")
    fields.only("rotary_pct", 1.0)
    fields.only("order_of_interleaved_layers", "local_attn_first")
    fields.only("use_gated_activation", True)
    fields.only("use_parallel_block", True)
    fields.only("use_embedding_sharing", fields.flag("tie_word_embeddings", default=True))
    # The pattern of windows says the first, and the tokenizer the last. The other is how weights lie on devices.
    fields.skip("layer_switch", "use_parallel_embedding", "model_max_length")


def names(config: DecoderOnlyConfig) -> Names:
    """Llama's. Both our norms are their one."""
    one = norm_names("layers.{}.feed_forward_norm", "model.layers.{}.input_layernorm")
    return {**llama_names(config, neighbours=True), **one}


COHERE = replace(LLAMA, model_type="cohere", architectures=("CohereForCausalLM",), sizes=sizes, names=names)
COHERE2 = replace(COHERE, model_type="cohere2", architectures=("Cohere2ForCausalLM",), sizes=windowed_sizes)
CONVERTERS = (COHERE, COHERE2)
