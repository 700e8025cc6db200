"""Masked language models (*ForMaskedLM): what behind a body says which token fits in a place."""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.sources import Names, Source, both, first_of, norm, tied
from weft_export.families.encoder_only import EncoderConfig, EncoderOnlyConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_export.families.masked_lm import MaskedLmConfig

_TABLE = "body.embeddings.tokens.weight"


@dataclass(frozen=True)
class MaskedLmHead:
    """Where a kind's head lies in its files.

    dense, norm: the linear layer and the norm before the logits.
    decoder: the layer of the logits. Its matrix is saved if it is none of the tokens' table. None: it always is.
    bias: another name of the decoder's bias, which counts where the matrix is the table.
    activation: what follows the linear layer. None: what the layers of the body have.
    biased: the logits have a bias.
    """

    dense: str
    norm: str
    decoder: str | None
    bias: str | None = None
    activation: str | None = None
    biased: bool = True


BERT_HEAD = MaskedLmHead(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.decoder",
    "cls.predictions.bias",
)
ROBERTA_HEAD = MaskedLmHead("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias", activation="gelu")


def masked_lm_sizes(body: EncoderOnlyConfig, hf: HfCheckpoint, head: MaskedLmHead) -> "MaskedLmConfig":
    """Return what a tagger's sizes are as those of a masked language model."""
    from weft_export.families.masked_lm import MaskedLmConfig  # noqa: PLC0415 - late: most encoders fill no masks

    kept = {field.name: getattr(body, field.name) for field in fields(EncoderConfig)}
    is_tied = head.decoder is None or hf.fields.flag("tie_word_embeddings", default=True)
    kept["embeddings"] = replace(body.embeddings, tied=is_tied, bias=head.biased)
    activation = head.activation or body.head_activation or body.style.activation
    return MaskedLmConfig(**kept, head_activation=activation, head_bias=body.head_bias)


def head_names(body: "Callable[[MaskedLmConfig], Names]", config: "MaskedLmConfig", head: MaskedLmHead) -> Names:
    """Return the names of a head, and that of the table if it is the head's too."""
    names: dict[str, Source | str] = {**both("dense", head.dense), **norm("norm", head.norm)}
    table, biases = body(config)[_TABLE], [f"{head.decoder}.bias"] if head.decoder else []
    assert isinstance(table, str)
    if config.embeddings.tied:
        names[_TABLE] = tied(table, *([f"{head.decoder}.weight"] if head.decoder else []))
        names["body.embeddings.bias"] = tied(*([head.bias] if head.bias else []), *biases)
    else:
        names["body.embeddings.projection.weight"] = f"{head.decoder}.weight"
        # transformers then has two of them, and adds the decoder's own.
        names["body.embeddings.bias"] = first_of(*biases, *([head.bias] if head.bias else []))
    return names
