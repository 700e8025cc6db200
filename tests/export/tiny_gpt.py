"""Tiny random generators: one with GPT's layers, one with Llama's and a sliding window."""

from tiny_parts import byte_tokenizer, randomised

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.causal_lm import CausalLm, CausalLmConfig
from weft_export.families.gpt import Gpt, GptConfig
from weft_proto.v1 import bundle_pb2

MAX_TOKENS, WINDOW = 64, 6


def tiny_gpt() -> Checkpoint:
    """Return a generator of bytes in the manner of GPT-2."""
    config = GptConfig(vocab_size=300, max_tokens=MAX_TOKENS, d_model=48, num_heads=2, d_ff=96, num_layers=2)
    return _generator("gpt", randomised(Gpt(config)))


def tiny_window() -> Checkpoint:
    """Return a generator of bytes that sees WINDOW positions."""
    config = CausalLmConfig(
        vocab_size=300,
        max_tokens=MAX_TOKENS,
        d_model=64,
        num_heads=4,
        num_kv_heads=2,
        d_ff=96,
        num_layers=2,
        sliding_window=WINDOW,
    )
    return _generator("causal_lm", randomised(CausalLm(config)))


def _generator(family: str, model: Gpt | CausalLm) -> Checkpoint:
    return Checkpoint(
        family=family,
        description="A random generator for tests.",
        model=model,
        golden=bundle_pb2.Golden(text="a small café"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json",
            target_tokenizer="tokenizer.json",
            source_vocab_size=300,
            target_vocab_size=300,
            end_ids=[1],
            pad_id=0,
            max_total_tokens=MAX_TOKENS,
            max_new_tokens=MAX_TOKENS - 1,
        ),
        max_new_tokens=24,
        attention_layer=1,
        files={"tokenizer.json": byte_tokenizer()},
    )
