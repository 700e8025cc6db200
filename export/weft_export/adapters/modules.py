"""The modules of a base as PEFT knows them, by what their weights are called in the base's files.

PEFT names a module of the model in memory. transformers renames some when it reads a file, and gives them their old
names again when it writes one. So an adapter of a ViT is for vit.layers.0.attention.q_proj, and the file has
vit.encoder.layer.0.attention.attention.query.weight. Adapters of older versions have the names of the file.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from weft_export.checkpoints.formats import is_foreign
from weft_export.converters.text.json_file import read_object
from weft_proto.bundle_rules import CONFIG_FILE

Renamings = tuple[tuple[str, str], ...]


class ModelKind(NamedTuple):
    """What differs in one kind of model.

    renamings: patterns of the names in a file, and what transformers makes of them, one after the other.
    scope: what the names begin with that these are for.
    conv1d: a pattern of the weights that are stored as [inputs, outputs]: transformers' Conv1D. All others are Linear.
    """

    renamings: Renamings = ()
    scope: str = ""
    conv1d: str = r"(?!)"


_TABLE = "relative_position_bias_table"
_HEADS: Renamings = (
    (r"attention\.(?:attention|self)\.query", "attention.q_proj"),
    (r"attention\.(?:attention|self)\.key", "attention.k_proj"),
    (r"attention\.(?:attention|self)\.value", "attention.v_proj"),
    (r"attention\.output\.dense", "attention.o_proj"),
)
_LAYERS: Renamings = (*_HEADS, (r"intermediate\.dense", "mlp.fc1"), (r"output\.dense", "mlp.fc2"))
_VIT: Renamings = ((r"encoder\.layer\.", "layers."), *_LAYERS)
_BEIT: Renamings = (
    *_VIT,
    (r"encoder\.relative_position_bias", "shared_position_bias"),
    (rf"attention\.attention\.(relative_position_bias\.{_TABLE})", r"\1"),
)
_SWIN: Renamings = (*_LAYERS, (rf"attention\.self\.{_TABLE}", rf"attention.relative_position_bias.{_TABLE}"))
# Queries, keys and values are three modules of one stored matrix, so an adapter of these is refused by its name.
_NOMIC: Renamings = (
    (r"encoder\.layers", "layers"),
    (r"emb_ln", "embeddings.LayerNorm"),
    (r"attn\.out_proj", "self_attn.o_proj"),
    (r"fc11", "up_proj"),
    (r"fc12", "gate_proj"),
    (r"fc2", "down_proj"),
    (r"norm1", "post_attention_layernorm"),
    (r"norm2", "post_mlp_layernorm"),
)
# So are they here, and a gate and what it lets through.
_GTE: Renamings = (
    (r"encoder\.layer\.", "layers."),
    (r"attention\.o_proj", "self_attn.o_proj"),
    (r"attn_ln", "post_attention_layernorm"),
    (r"mlp_ln", "post_mlp_layernorm"),
    (r"lm_head\.norm", "lm_head.layer_norm"),
)
# What sees a picture stands beside the decoder in one model, below its head.
_SEEING: Renamings = (
    (r"^language_model\.lm_head\.", "lm_head."),
    (r"^language_model\.model\.", "model.language_model."),
    (r"^(vision_tower|multi_modal_projector|image_newline)", r"model.\1"),
    (r"^model\.vision_tower\.vision_model\.", "model.vision_tower."),
)
_QWEN_VL: Renamings = (
    (r"^model\.(?!language_model\.|visual\.)", "model.language_model."),
    (r"^visual\.", "model.visual."),
)
# Of every kind: what old files call the two parts of a LayerNorm.
_LEGACY: Renamings = ((r"LayerNorm\.gamma", "LayerNorm.weight"), (r"LayerNorm\.beta", "LayerNorm.bias"))
_GPT2 = r"(.*\.)?h\.\d+\.(attn|crossattention|mlp)\.(c_attn|q_attn|c_proj|c_fc)\.weight"
KINDS: Mapping[str, ModelKind] = {
    "vit": ModelKind(_VIT),
    "deit": ModelKind(_VIT),
    "beit": ModelKind(_BEIT),
    "dinov2": ModelKind(_HEADS),
    "dinov2_with_registers": ModelKind(_HEADS),
    "swin": ModelKind(_SWIN),
    # It has a ViT or a DeiT, and a GPT-2 or TrOCR, whose names are those of their files.
    "vision-encoder-decoder": ModelKind(_VIT, scope="encoder.", conv1d=_GPT2),
    "nomic_bert": ModelKind(_NOMIC),
    "gte": ModelKind(_GTE),
    **dict.fromkeys(("llava", "llava_onevision", "gemma3", "paligemma"), ModelKind(_SEEING)),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), ModelKind(_QWEN_VL)),
    "gpt2": ModelKind(conv1d=_GPT2),
    "gpt_neox": ModelKind(((r"^embed_out\.", "lm_head."),)),
}
"""By model_type, those that differ in anything. The renamings are those of transformers 5.23; tests hold them to it."""


class Modules:
    """The modules of a base, by the names of its stored weights."""

    def __init__(self, checkpoint: Path, stored: Collection[str]) -> None:
        """Read what kind of model it is. A checkpoint of ours has Linear modules, whose names are those of its file."""
        kind = ModelKind()
        if is_foreign(checkpoint):
            kind = KINDS.get(read_object(checkpoint / CONFIG_FILE)["model_type"], kind)
        self._conv1d = re.compile(kind.conv1d)
        self._kind = kind
        self._by_name = {renamed(name, kind): name for name in stored} | {name: name for name in stored}

    def stored(self, name: str) -> str | None:
        """Return what a file calls a parameter of the model. It may leave out, or add, what the path begins with."""
        for each in (name, renamed(name, self._kind)):
            if each in self._by_name:
                return self._by_name[each]
        known = {file for each, file in self._by_name.items() if each.endswith(f".{name}") or name.endswith(f".{each}")}
        return known.pop() if len(known) == 1 else None

    def is_turned(self, stored: str) -> bool:
        """Whether a weight is stored as [inputs, outputs]."""
        return self._conv1d.fullmatch(stored) is not None


def renamed(name: str, kind: ModelKind) -> str:
    """Return what a parameter of a file is called in the model in memory."""
    renamings = (*kind.renamings, *_LEGACY) if name.startswith(kind.scope) else _LEGACY
    for pattern, replacement in renamings:
        name = re.sub(pattern, replacement, name)
    return name
