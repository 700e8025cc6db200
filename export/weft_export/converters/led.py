"""LED (Beltagy et al. 2020): BART for long texts, whose encoder attends in windows."""

from weft_export.converters.bart import BART, names_with
from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.sources import Names, Source, both, both_rows, from_row
from weft_export.families.bart import BartConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style


def sizes(hf: HfCheckpoint) -> BartConfig:
    """Both sides have tables of places of their own lengths, whose first row is of the first place."""
    fields = hf.fields
    fields.only("is_encoder_decoder", True)
    fields.skip("num_hidden_layers", "init_std")
    num_layers, vocab_size = fields.whole("encoder_layers", 12), fields.whole("vocab_size", 50265)
    d_model, num_heads = fields.whole("d_model", 1024), fields.whole("encoder_attention_heads", 16)
    longest = fields.whole("max_encoder_position_embeddings", 16384)
    given = fields.raw("attention_window")
    given = 512 if given is None else given
    windows = given if isinstance(given, list) else [given] * num_layers
    if len(windows) != num_layers or not all(type(each) is int and each > 0 and each % 2 == 0 for each in windows):
        raise fields.wrong("attention_window", f"must be an even number, or one for each of {num_layers} layers")
    return BartConfig(
        source_vocab_size=vocab_size,
        target_vocab_size=vocab_size,
        max_source_tokens=hf.max_source_tokens(longest),
        max_target_tokens=hf.max_tokens(fields.whole("max_decoder_position_embeddings", 1024), 512),
        d_model=d_model,
        num_encoder_heads=num_heads,
        num_decoder_heads=fields.whole("decoder_attention_heads", 16),
        d_encoder_ff=fields.whole("encoder_ffn_dim", 4096),
        d_decoder_ff=fields.whole("decoder_ffn_dim", 4096),
        num_encoder_layers=num_layers,
        num_decoder_layers=fields.whole("decoder_layers", 12),
        # A window has half of its size on either side.
        windows=tuple(each // 2 for each in windows),
        style=Style(residual="post", activation=fields.among("activation_function", ACTIVATIONS, "gelu")),
        embeddings=EmbeddingStyle(
            positions=True,
            norm=True,
            tied=fields.flag("tie_word_embeddings", default=True),
            bias=True,
        ),
    )


def _places(_: BartConfig, ours: str, count: int, side: str) -> Names:
    return {ours: from_row(0, f"led.{side}.embed_positions.weight", count)}


def names(config: BartConfig) -> Names:
    """BART's names under another prefix, but for what attends in the encoder."""
    layer, theirs = "encoder.layers.{}.", "led.encoder.layers.{}.self_attn"
    local = f"{theirs}.longformer_self_attn"
    usual: dict[str, Source | str] = dict(names_with(_places, "led")(config))
    attention: dict[str, Source | str] = {
        **both_rows(f"{layer}attention.qkv", f"{local}.{{query,key,value}}"),
        **both_rows(f"{layer}attention.global_qkv", f"{local}.{{query,key,value}}_global"),
        **both(f"{layer}attention.output", f"{theirs}.output"),
    }
    return usual | attention


LED = Converter(
    model_type="led",
    architectures=("LEDForConditionalGeneration",),
    family="bart",
    sizes=sizes,
    names=names,
    ignored=BART.ignored,
    bias=BART.bias,
)
CONVERTERS = (LED,)
