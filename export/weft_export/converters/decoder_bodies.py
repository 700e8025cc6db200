"""Bodies of decoders that embed texts: Qwen3 Embedding (Zhang et al. 2025) and others of its kind."""

from weft_export.converters.converter import Converter
from weft_export.converters.llama import LLAMA
from weft_export.converters.mistral import MISTRAL
from weft_export.converters.qwen import QWEN2, QWEN3
from weft_export.converters.sentence import decoder_embedder_sizes, dense_names
from weft_export.converters.sources import Names, layer_names
from weft_export.families.decoder_embedder import DecoderEmbedderConfig


def embedder_of(converter: Converter) -> Converter:
    """Return what makes an embedder of the body of a kind, whether it was saved alone or under a head for words."""
    (whole,) = converter.architectures

    def names(config: DecoderEmbedderConfig) -> Names:
        table = {**converter.names(config.body)}
        # The words of a head are nobody's here, even where they differ from those that are read.
        tokens = table["words.tokens.weight"]
        table["words.tokens.weight"] = tokens if isinstance(tokens, str) else tokens.names[0]
        return layer_names(table, "body.", "")

    return Converter(
        model_type=converter.model_type,
        architectures=(whole.replace("ForCausalLM", "Model"), whole),
        family="decoder_embedder",
        sizes=lambda hf: decoder_embedder_sizes(converter.sizes(hf), hf),
        names=names,
        prefix="model.",
        computed_names=dense_names,
        ignored=(*converter.ignored, r"lm_head\..*"),
    )


DECODER_BODIES = tuple(map(embedder_of, (LLAMA, MISTRAL, QWEN2, QWEN3)))
