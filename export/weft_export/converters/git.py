"""GIT (Wang et al. 2022): CLIP's image encoder, whose places stand before the words in BERT's layers."""

from typing import Any

from torch import Tensor
from torch.nn import functional

from weft_export.converters import clip
from weft_export.converters.converter import DEFAULT_TOKENS, Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.sources import Names, Source, both, both_rows, computed, layer_names, norm, tied
from weft_export.families.git import GitConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style

_TEXT, _VISION = "git.", "git.image_encoder.vision_model."


def sizes(hf: HfCheckpoint) -> GitConfig:
    """The top of config.json is of the words, and vision_config of the picture."""
    fields = hf.fields
    # With several, a prompt begins with the frames of a video.
    fields.only("num_image_with_embedding", None)
    vision = fields.part("vision_config")
    vision.only("model_type", "git_vision_model")
    vision.skip("projection_dim", "tie_word_embeddings")
    # Their own default of patches is not CLIP's.
    vision.take_for_granted("patch_size", 16)
    tower: dict[str, Any] = clip.tower_sizes(hf, vision)
    eps, activation = fields.number("layer_norm_eps", 1e-12), fields.among("hidden_act", ACTIVATIONS, "gelu")
    patches = tower["image_height"] // tower["patch_size"] * (tower["image_width"] // tower["patch_size"])
    words = hf.max_tokens(fields.whole("max_position_embeddings", 1024), DEFAULT_TOKENS)
    return GitConfig(
        target_vocab_size=fields.whole("vocab_size", 30522),
        max_target_tokens=1 + patches + words,
        channels=tower["channels"],
        image_height=tower["image_height"],
        image_width=tower["image_width"],
        patch_size=tower["patch_size"],
        d_encoder=tower["d_model"],
        num_encoder_heads=tower["num_heads"],
        d_encoder_ff=tower["d_ff"],
        num_encoder_layers=tower["num_layers"],
        d_model=fields.whole("hidden_size", 768),
        num_decoder_heads=fields.whole("num_attention_heads", 12),
        d_decoder_ff=fields.whole("intermediate_size", 3072),
        num_decoder_layers=fields.whole("num_hidden_layers", 6),
        class_token=True,
        first_norm=True,
        encoder_style=Style(norm_eps=tower["norm_eps"], activation=tower["activation"]),
        style=Style(residual="post", norm_eps=eps, activation=activation),
        embeddings=EmbeddingStyle(
            positions=True,
            norm=True,
            norm_eps=eps,
            tied=fields.flag("tie_word_embeddings", default=False),
            bias=True,
        ),
    )


def names(config: GitConfig) -> Names:
    """CLIP's names behind a prefix, and BERT's behind another."""
    tokens, head = f"{_TEXT}embeddings.word_embeddings.weight", "output.weight"
    seen = {
        f"encoder.{ours}" if ours.startswith("layers.") else ours: theirs
        for ours, theirs in clip.encoder_names(_VISION).items()
    }
    return {
        **seen,
        **both("encoder.norm", f"{_VISION}post_layernorm"),
        **both("projection", f"{_TEXT}visual_projection.visual_projection.0"),
        **both("projection_norm", f"{_TEXT}visual_projection.visual_projection.1"),
        "embeddings.tokens.weight": tied(tokens, head) if config.embeddings.tied else tokens,
        "embeddings.positions.weight": _places(config.max_target_tokens),
        **norm("embeddings.norm", f"{_TEXT}embeddings.LayerNorm"),
        "embeddings.projection.weight": head,
        "embeddings.bias": "output.bias",
        **layer_names(_LAYER, "layers.{}.", f"{_TEXT}encoder.layer.{{}}."),
    }


def _places(count: int) -> Source:
    """Return the vectors of places, of which words take the first. Nobody reads those behind them."""

    def rows(table: Tensor) -> Tensor:
        return functional.pad(table[:count], (0, 0, 0, max(0, count - len(table))))

    return computed(rows, f"{_TEXT}embeddings.position_embeddings.weight")


_LAYER: Names = {
    **both_rows("attention.qkv", "attention.self.{query,key,value}"),
    **both("attention.output", "attention.output.dense"),
    **norm("attention_norm", "attention.output.LayerNorm"),
    **both("feed_forward.up_proj", "intermediate.dense"),
    **both("feed_forward.down_proj", "output.dense"),
    **norm("feed_forward_norm", "output.LayerNorm"),
}
GIT = Converter(
    model_type="git",
    architectures=("GitForCausalLM",),
    family="git",
    sizes=sizes,
    names=names,
    ignored=(r".*\.position_ids",),
    bias="embeddings.bias",
)
CONVERTERS = (GIT,)
