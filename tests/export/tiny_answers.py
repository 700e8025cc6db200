"""Tiny random checkpoints that answer questions about pictures: with a picture as a memory, and before the words."""

from collections.abc import Callable

from tiny_parts import END, PAD, SOURCE_WORDS, START, image_spec, picture, randomised, word_tokenizer

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.captioner import Answerer, CaptionerConfig
from weft_export.families.git import Git, GitConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style
from weft_proto.v1 import bundle_pb2

VOCABULARY = len(SOURCE_WORDS) + 4
MAX_QUESTION, MAX_ANSWER = 24, 24


def tiny_answer() -> Checkpoint:
    """Return a model whose memory is a class token and a grid of 4 x 6 patches."""
    config = CaptionerConfig(
        target_vocab_size=VOCABULARY,
        max_target_tokens=MAX_QUESTION + MAX_ANSWER,
        channels=3,
        image_height=16,
        image_width=24,
        patch_size=4,
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_encoder_layers=1,
        num_decoder_layers=2,
        class_token=True,
    )
    return _answering("answerer", randomised(Answerer(config), 3.0), config.max_target_tokens)


def tiny_git() -> Checkpoint:
    """Return a model whose caches begin with a class token and a grid of 4 x 6 patches, in layers of BERT's kind."""
    config = GitConfig(
        target_vocab_size=VOCABULARY,
        max_target_tokens=25 + MAX_QUESTION + MAX_ANSWER,
        channels=3,
        image_height=16,
        image_width=24,
        patch_size=4,
        d_encoder=24,
        num_encoder_heads=3,
        d_encoder_ff=40,
        num_encoder_layers=1,
        d_model=32,
        num_decoder_heads=2,
        d_decoder_ff=48,
        num_decoder_layers=2,
        class_token=True,
        style=Style(residual="post"),
        embeddings=EmbeddingStyle(positions=True, norm=True, tied=False, bias=True),
    )
    return _answering("git", randomised(Git(config), 3.0), config.max_target_tokens)


def _answering(family: str, model: Answerer | Git, max_total_tokens: int) -> Checkpoint:
    image = image_spec(3, 16, 24, 4)
    image.num_class_tokens = 1
    return Checkpoint(
        family=family,
        description="A random model that answers, for tests.",
        model=model,
        golden=bundle_pb2.Golden(image_path="golden.png", question="the cat and the dog see a red house"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="words.json",
            target_tokenizer="words.json",
            source_vocab_size=VOCABULARY,
            target_vocab_size=VOCABULARY,
            start_id=START,
            end_ids=[END],
            pad_id=PAD,
            max_source_tokens=MAX_QUESTION,
            max_total_tokens=max_total_tokens,
            max_new_tokens=MAX_ANSWER,
        ),
        image=image,
        max_new_tokens=12,
        attention_layer=1,
        files={"words.json": word_tokenizer(SOURCE_WORDS, ends=True), "golden.png": picture(30, 22)},
    )


ANSWERING: dict[str, Callable[[], Checkpoint]] = {"tiny-answer": tiny_answer, "tiny-git": tiny_git}
