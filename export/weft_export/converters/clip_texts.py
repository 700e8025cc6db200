"""CLIP's text encoder: a tower that a bundle has, or what an export runs once for each label that stays."""

from dataclasses import dataclass

import tokenizers
import torch
from torch import Tensor, nn

from weft_export.checkpoints.files import read_file
from weft_export.checkpoints.tokenizer import encode, tokenizer_of
from weft_export.choices import Pooling
from weft_export.converters.converter import DEFAULT_LABEL_TEXT, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.sources import Names, Source, both, both_rows, from_row, source_of
from weft_export.errors import CheckpointError
from weft_export.families.causal import CausalLayer
from weft_export.families.sizes import require_divisible, require_sizes
from weft_export.families.text_embedder import Dense, TextEmbedderConfig
from weft_export.layers.attention import causal_mask
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.pooling import LAST
from weft_export.layers.style import Style
from weft_export.options import ExportOptions

_TOKENIZER_FILE = "tokenizer.json"
_PREFIX = "text_model."
_PROJECTION, _SCALE = "text_projection.weight", "logit_scale"
# What old configs say is the end of a text, although their tokenizer has another id for it: its last.
_OLD_END = 2


@dataclass(frozen=True)
class TextSizes:
    """The sizes of the text encoder, by the names of our families."""

    vocab_size: int
    max_tokens: int
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    style: Style

    def __post_init__(self) -> None:
        require_sizes(self)
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)


class ClipText(nn.Module):
    """A causal Transformer with learned positions; what it says of a text stands at the text's end."""

    def __init__(self, sizes: TextSizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab_size, sizes.d_model)
        self.positions = nn.Parameter(torch.empty(sizes.max_tokens, sizes.d_model))
        heads = (sizes.num_heads, sizes.num_heads)
        self.layers = nn.ModuleList(
            CausalLayer(sizes.d_model, *heads, sizes.d_ff, 0.0, sizes.style, None) for _ in range(sizes.num_layers)
        )
        self.norm = sizes.style.last_norm(sizes.d_model)

    def forward(self, ids: Tensor, end: int) -> Tensor:
        """Return the vector [d_model] of ids [seq], of which ids[end] is the end."""
        x = self.tokens(ids)[None] + self.positions[: len(ids)]
        mask = causal_mask(len(ids)).to(x.device)
        for layer in self.layers:
            x = layer(x, mask, None)
        vector: Tensor = self.norm(x[0, end])
        return vector


def read_text_sizes(fields: Fields) -> TextSizes:
    """Read the fields of text_config.

    Raises:
        CheckpointError: a field is missing, or is not what the text encoder can have.
        ValueError: a size is out of its range.
    """
    # They are of a text encoder alone.
    fields.skip("projection_dim", "model_type")
    return TextSizes(
        vocab_size=fields.whole("vocab_size", 49408),
        max_tokens=fields.whole("max_position_embeddings", 77),
        d_model=fields.whole("hidden_size", 512),
        num_heads=fields.whole("num_attention_heads", 8),
        d_ff=fields.whole("intermediate_size", 2048),
        num_layers=fields.whole("num_hidden_layers", 12),
        style=Style(
            norm_eps=fields.number("layer_norm_eps", 1e-5),
            activation=fields.among("hidden_act", ACTIVATIONS, "quick_gelu"),
        ),
    )


def text_config(hf: HfCheckpoint, fields: Fields, width: int) -> TextEmbedderConfig:
    """Return the text encoder as a tower into `width` numbers: it reads what stands at a text's last token, its end.

    Raises:
        CheckpointError: as read_text_sizes, or a text does not end with the token that CLIP reads at.
    """
    end_id = fields.whole("eos_token_id", 49407)
    fields.skip("bos_token_id", "pad_token_id")
    sizes = read_text_sizes(fields)
    tokenizer = _tokenizer_of(hf)
    ids = list(encode(tokenizer, "a").ids)
    wanted = max(ids, default=0) if end_id == _OLD_END else end_id
    if wanted not in ids or ids.index(wanted) != len(ids) - 1:
        raise CheckpointError(f"{_TOKENIZER_FILE} does not end a text with the token {wanted}, where CLIP is read")
    return TextEmbedderConfig(
        vocab_size=sizes.vocab_size,
        max_tokens=hf.max_tokens(sizes.max_tokens),
        d_model=sizes.d_model,
        num_heads=sizes.num_heads,
        d_ff=sizes.d_ff,
        num_layers=sizes.num_layers,
        style=sizes.style,
        embeddings=EmbeddingStyle(positions=True),
        causal=True,
        pooling=LAST,
        dense=(Dense(width, bias=False),),
    )


def check_pooling(hf: HfCheckpoint) -> None:
    """Raise CheckpointError where an option asks for another place of a text than its last one."""
    if hf.options.pooling not in (None, Pooling.LAST):
        raise CheckpointError(f"a text is read at its last place here: --pooling {hf.options.pooling} is not for it")


def tower_names(config: TextEmbedderConfig) -> Names:
    """Return the names of that tower."""
    ours, theirs = "body.encoder.layers.{}", f"{_PREFIX}encoder.layers.{{}}"
    places = f"{_PREFIX}embeddings.position_embedding.weight"
    return {
        "body.embeddings.tokens.weight": f"{_PREFIX}embeddings.token_embedding.weight",
        "body.embeddings.positions.weight": from_row(0, places, config.max_tokens),
        **both("body.encoder.norm", f"{_PREFIX}final_layer_norm"),
        **encoder_layer(ours, theirs),
        "dense.0.weight": _PROJECTION,
    }


def text_head(hf: HfCheckpoint, sizes: TextSizes) -> Source:
    """Return the source of the head: a row for each label, exp(logit_scale) times its text's vector of length 1."""
    end_id = hf.fields.part("text_config").whole("eos_token_id", 49407)
    tokenizer = _tokenizer_of(hf)
    texts = [_ids_of(hf.options, label, tokenizer, sizes, end_id) for label in hf.options.label_names]
    with torch.device("meta"):
        shell = ClipText(sizes)
    parts = {ours: source_of(_names(), ours) for ours in shell.state_dict()}
    names = tuple(dict.fromkeys(name for part in parts.values() for name in part.names))

    def make(*tensors: Tensor) -> Tensor:
        *stored, projection, scale = tensors
        by_name = dict(zip(names, stored, strict=True))
        weights = {}
        for ours, part in parts.items():
            given = [by_name[name] for name in part.names]
            weights[ours] = given[0] if part.make is None else part.make(*given)
        shell.load_state_dict(weights, assign=True)
        with torch.no_grad():
            vectors = torch.stack([shell(torch.tensor(ids), end) for ids, end in texts]) @ projection.t()
            head: Tensor = vectors / vectors.norm(dim=-1, keepdim=True) * scale.exp()
            return head

    return Source((*names, _PROJECTION, _SCALE), make)


def _tokenizer_of(hf: HfCheckpoint) -> tokenizers.Tokenizer:
    path = hf.directory / _TOKENIZER_FILE
    return tokenizer_of(path, read_file(path))


def _ids_of(
    options: ExportOptions, label: str, tokenizer: tokenizers.Tokenizer, sizes: TextSizes, end_id: int
) -> tuple[list[int], int]:
    """Return the token ids of a label's text, and where its end is."""
    ids = list(encode(tokenizer, (options.label_text or DEFAULT_LABEL_TEXT).replace("{}", label)).ids)
    if not 1 <= len(ids) <= sizes.max_tokens:
        raise CheckpointError(
            f"the text of the label {label!r:.80} has {len(ids)} tokens; 1 to {sizes.max_tokens} are taken"
        )
    if max(ids) >= sizes.vocab_size:
        raise CheckpointError(
            f"{_TOKENIZER_FILE} makes the token {max(ids)} of the label {label!r:.80}; the model has {sizes.vocab_size}"
        )
    end_id = max(ids) if end_id == _OLD_END else end_id
    # Where a text has no end, transformers reads what stands at its beginning.
    return ids, ids.index(end_id) if end_id in ids else 0


def _names() -> Names:
    ours, theirs = "layers.{}", f"{_PREFIX}encoder.layers.{{}}"
    return {
        "tokens.weight": f"{_PREFIX}embeddings.token_embedding.weight",
        "positions": f"{_PREFIX}embeddings.position_embedding.weight",
        **both("norm", f"{_PREFIX}final_layer_norm"),
        **encoder_layer(ours, theirs),
    }


def encoder_layer(ours: str, theirs: str) -> dict[str, Source | str]:
    """Return the sources of a layer, of either encoder."""
    return {
        **both(f"{ours}.attention_norm", f"{theirs}.layer_norm1"),
        **both(f"{ours}.feed_forward_norm", f"{theirs}.layer_norm2"),
        **both_rows(f"{ours}.attention.qkv", f"{theirs}.self_attn.{{q,k,v}}_proj"),
        **both(f"{ours}.attention.output", f"{theirs}.self_attn.out_proj"),
        **both(f"{ours}.feed_forward.up_proj", f"{theirs}.mlp.fc1"),
        **both(f"{ours}.feed_forward.down_proj", f"{theirs}.mlp.fc2"),
    }
