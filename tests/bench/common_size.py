"""Random models of one common size, one for each family that writes text: only the architecture differs."""

from tiny_parts import END, PAD, START, randomised, word_tokenizer

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.families.attention_rnn import AttentionRnnConfig
from weft_export.families.causal_lm import CausalLmConfig
from weft_export.families.encoder_decoder import EncoderDecoderConfig
from weft_export.families.gpt import GptConfig
from weft_export.families.hybrid import HybridConfig
from weft_export.families.registry import FAMILIES
from weft_export.families.rnn import RnnConfig
from weft_export.families.rwkv7 import Rwkv7Config
from weft_export.families.state_spaces import StateSpacesConfig
from weft_export.families.t5 import T5Config
from weft_export.layers.selective_state_space import SelectiveSizes
from weft_export.layers.state_space import StateSpaceSizes
from weft_export.layers.style import Style
from weft_export.layers.time_mix import TimeMixSizes
from weft_proto.v1 import bundle_pb2, common_pb2

CAPACITY, VOCAB, WIDTH, HEADS, LAYERS = 512, 1024, 256, 8, 2
_TRANSLATES = {
    "source_vocab_size": VOCAB,
    "target_vocab_size": VOCAB,
    "max_source_tokens": CAPACITY,
    "max_target_tokens": CAPACITY,
}
_BLOCKS = {"d_model": WIDTH, "num_heads": HEADS, "d_ff": 4 * WIDTH}
_BOTH_SIDES = {"num_encoder_layers": LAYERS, "num_decoder_layers": LAYERS}
_GENERATES = {"vocab_size": VOCAB, "max_tokens": CAPACITY, "num_layers": LAYERS}
# One of the two layers attends, with heads of Llama style.
_LLAMA = Style(rms_norm=True, activation="silu", gated=True, bias=False)
_HYBRID = {**_GENERATES, **_BLOCKS, "num_kv_heads": 2, "style": _LLAMA, "attends": (0, 1)}
_STATE_SPACE = StateSpaceSizes(num_state_heads=HEADS, d_state_head=2 * WIDTH // HEADS, d_state=64)
# Without networks between them two layers have the weights of one that attends.
_ALONE = {**_GENERATES, "d_model": WIDTH, "num_layers": 2 * LAYERS}
COMMON = {
    "rnn": RnnConfig(**_TRANSLATES, cell="lstm", d_embedding=WIDTH, d_hidden=WIDTH, num_layers=LAYERS),
    "attention_rnn": AttentionRnnConfig(
        **_TRANSLATES, d_embedding=WIDTH, d_hidden=WIDTH, d_attention=WIDTH, d_maxout=WIDTH
    ),
    "encoder_decoder": EncoderDecoderConfig(**_TRANSLATES, **_BLOCKS, **_BOTH_SIDES),
    "t5": T5Config(
        vocab_size=VOCAB,
        max_source_tokens=CAPACITY,
        max_target_tokens=CAPACITY,
        head_dim=WIDTH // HEADS,
        **_BLOCKS,
        **_BOTH_SIDES,
    ),
    "gpt": GptConfig(**_GENERATES, **_BLOCKS),
    "causal_lm": CausalLmConfig(**_GENERATES, **_BLOCKS, num_kv_heads=2),
    "hybrid": HybridConfig(**_HYBRID),
    "state_space": HybridConfig(**_HYBRID, state_space=_STATE_SPACE),
    "mamba": StateSpacesConfig(
        **_ALONE, selective=SelectiveSizes(d_inner=2 * WIDTH, d_state=16, step_rank=WIDTH // 16)
    ),
    "mamba2": StateSpacesConfig(**_ALONE, state_space=_STATE_SPACE),
    "rwkv7": Rwkv7Config(
        **_GENERATES,
        d_model=WIDTH,
        d_ff=4 * WIDTH,
        time_mix=TimeMixSizes(
            num_state_heads=4, d_state_head=64, decay_rank=32, rate_rank=32, value_rank=32, gate_rank=64
        ),
    ),
}
_FAMILY = {"state_space": "hybrid", "mamba": "state_spaces", "mamba2": "state_spaces"}


def common_bundle(repository, name):
    """The bundle <repository>/<name>/1, exported once."""
    bundle = repository / name.replace("_", "-") / "1"
    if not bundle.is_dir():
        checkpoint = repository.parent / "checkpoints" / name
        save_checkpoint(checkpoint, _checkpoint(name))
        export_checkpoint(checkpoint, bundle)
    return bundle


def _checkpoint(name):
    family_name = _FAMILY.get(name, name)
    family = FAMILIES[family_name]
    # Lively enough for the golden request to have a clear first token; what a step costs does not depend on it.
    model = randomised(family.model(COMMON[name]), 0.7)
    generates = family.task == common_pb2.TASK_GENERATE
    words = [f"w{index}" for index in range(VOCAB - 4)]
    text = bundle_pb2.TextSpec(
        source_tokenizer="source.json",
        target_tokenizer="target.json",
        source_vocab_size=VOCAB,
        target_vocab_size=VOCAB,
        end_ids=[END],
        pad_id=PAD,
        max_total_tokens=CAPACITY,
        max_new_tokens=CAPACITY - 1,
    )
    if not generates:
        text.start_id, text.max_source_tokens = START, CAPACITY
    return Checkpoint(
        family=family_name,
        description="Random weights of a common size, for benchmarks.",
        model=model,
        golden=bundle_pb2.Golden(text="w1 w2 w3"),
        text=text,
        max_new_tokens=16,
        attention_layer=0 if model.attention_heads else None,
        files={
            "source.json": word_tokenizer(words, ends=not generates),
            "target.json": word_tokenizer(words, ends=False),
        },
    )
