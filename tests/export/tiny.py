"""Tiny random checkpoints, one for each family and more: real in every part, small enough to export in seconds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from tiny_answers import ANSWERING
from tiny_bert import tiny_bert, tiny_tags
from tiny_ctc import tiny_conformer, tiny_ctc
from tiny_decoder import tiny_decoder
from tiny_embed import EMBED
from tiny_extract import tiny_extract
from tiny_gpt import tiny_gpt, tiny_window
from tiny_hybrid import tiny_hybrid, tiny_mamba, tiny_rwkv, tiny_selective, tiny_state_space
from tiny_masks import tiny_masks
from tiny_parts import (
    END,
    PAD,
    SOURCE_WORDS,
    START,
    TARGET_WORDS,
    byte_tokenizer,
    image_spec,
    picture,
    randomised,
    word_tokenizer,
)
from tiny_recurrent import RECURRENT
from tiny_sight import (
    tiny_cells,
    tiny_deep,
    tiny_gemma3,
    tiny_llava,
    tiny_paligemma,
    tiny_queries,
    tiny_split,
    tiny_tiles,
)
from tiny_t5 import tiny_post_norm, tiny_t5
from tiny_vision import VISION

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.checkpoints.sound import wav_of
from weft_export.export import export_checkpoint
from weft_export.families.captioner import Captioner, CaptionerConfig
from weft_export.families.causal_lm import CausalLm, CausalLmConfig
from weft_export.families.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from weft_export.families.rnn_classifier import RnnClassifier, RnnClassifierConfig
from weft_export.families.speech import Speech, SpeechConfig
from weft_export.families.text_classifier import TextClassifier, TextClassifierConfig
from weft_export.families.vit import Vit, VitConfig
from weft_export.families.waveform_speech import WaveformSpeech, WaveformSpeechConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.positions import Rope
from weft_export.layers.style import Style
from weft_export.options import ExportOptions
from weft_proto.v1 import bundle_pb2


def tiny_translate() -> Checkpoint:
    """Return a translator of words."""
    source, target = len(SOURCE_WORDS) + 4, len(TARGET_WORDS) + 4
    config = EncoderDecoderConfig(
        source_vocab_size=source,
        target_vocab_size=target,
        max_source_tokens=20,
        max_target_tokens=24,
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_encoder_layers=2,
        num_decoder_layers=2,
    )
    return Checkpoint(
        family="encoder_decoder",
        description="A random translator for tests.",
        model=randomised(EncoderDecoder(config), 3.0),
        golden=bundle_pb2.Golden(text="the big dog eats"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="source.json",
            target_tokenizer="target.json",
            source_vocab_size=source,
            target_vocab_size=target,
            start_id=START,
            end_ids=[END],
            pad_id=PAD,
            max_source_tokens=20,
            max_total_tokens=24,
            max_new_tokens=24,
            source_languages=["en"],
            target_languages=["es"],
        ),
        max_new_tokens=16,
        attention_layer=1,
        files={
            "source.json": word_tokenizer(SOURCE_WORDS, ends=True),
            "target.json": word_tokenizer(TARGET_WORDS, ends=False),
        },
    )


def tiny_caption() -> Checkpoint:
    """Return a captioner of 24 x 16 colour pictures in 4 rows of 6 patches, with a class token in its memory."""
    target = len(TARGET_WORDS) + 4
    config = CaptionerConfig(
        target_vocab_size=target,
        max_target_tokens=24,
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
    # The memory has a place more than the grid. The longer side is cut.
    image = image_spec(3, 16, 24, 4)
    image.num_class_tokens, image.shortest_edge = 1, 25
    return Checkpoint(
        family="captioner",
        description="A random captioner for tests.",
        model=randomised(Captioner(config), 3.0),
        golden=bundle_pb2.Golden(image_path="golden.png"),
        text=bundle_pb2.TextSpec(
            target_tokenizer="target.json",
            target_vocab_size=target,
            start_id=START,
            end_ids=[END],
            pad_id=PAD,
            max_total_tokens=24,
            max_new_tokens=24,
        ),
        image=image,
        max_new_tokens=16,
        attention_layer=1,
        files={"target.json": word_tokenizer(TARGET_WORDS, ends=False), "golden.png": picture(30, 22)},
    )


def tiny_speech() -> Checkpoint:
    """Return a transcriber of two languages that hears 0.4 s at 4 kHz."""
    target = len(TARGET_WORDS) + 4
    config = SpeechConfig(
        target_vocab_size=target,
        max_target_tokens=24,
        num_mels=8,
        num_frames=40,
        d_model=32,
        num_encoder_heads=2,
        d_encoder_ff=48,
        num_encoder_layers=1,
        num_decoder_heads=2,
        d_decoder_ff=48,
        num_decoder_layers=2,
        embeddings=EmbeddingStyle(positions=True),
    )
    audio = bundle_pb2.AudioSpec(
        sample_rate=4000, num_mels=8, fft_size=64, hop_size=40, num_frames=40, num_positions=20
    )
    for tag, token_id in (("de", 5), ("en", 6)):
        audio.languages.add(tag=tag, token_id=token_id)
    audio.transcribe_id, audio.translate_id = 7, 8
    tone = torch.sin(torch.arange(1200) / 3) * torch.sin(torch.arange(1200) / 300)
    return Checkpoint(
        family="speech",
        description="A random transcriber for tests.",
        model=randomised(Speech(config), 3.0),
        golden=bundle_pb2.Golden(audio_path="golden.wav", source_language="en"),
        text=bundle_pb2.TextSpec(
            target_tokenizer="target.json",
            target_vocab_size=target,
            start_id=START,
            end_ids=[END],
            pad_id=PAD,
            max_total_tokens=24,
            max_new_tokens=22,
        ),
        audio=audio,
        max_new_tokens=16,
        attention_layer=1,
        files={"target.json": word_tokenizer(TARGET_WORDS, ends=False), "golden.wav": wav_of(tone, 4000)},
    )


def tiny_waveform() -> Checkpoint:
    """Return a transcriber that hears half a second at 10 kHz as samples."""
    target = len(TARGET_WORDS) + 4
    # Of a head of 16 numbers, 12 are turned.
    rotation = Rope((*(10000.0 ** (-pair / 6) for pair in range(6)), 0.0, 0.0))
    config = WaveformSpeechConfig(
        target_vocab_size=target,
        max_target_tokens=24,
        num_frames=13,
        d_model=32,
        num_heads=2,
        d_encoder_ff=48,
        num_encoder_layers=1,
        d_decoder_ff=48,
        num_decoder_layers=2,
        rotation=rotation,
        style=Style(gated=True, activation="silu"),
        embeddings=EmbeddingStyle(),
    )
    sizes = {"hop_size": config.hop_size, "min_samples": config.min_samples}
    audio = bundle_pb2.AudioSpec(sample_rate=10_000, num_frames=13, num_positions=13, **sizes)
    tone = torch.sin(torch.arange(3000) / 3) * torch.sin(torch.arange(3000) / 300)
    return replace(
        tiny_speech(),
        family="waveform_speech",
        description="A random transcriber of samples for tests.",
        model=randomised(WaveformSpeech(config), 3.0),
        golden=bundle_pb2.Golden(audio_path="golden.wav"),
        audio=audio,
        files={"target.json": word_tokenizer(TARGET_WORDS, ends=False), "golden.wav": wav_of(tone, 10_000)},
    )


def tiny_image() -> Checkpoint:
    """Return a classifier of 8 x 8 grey pictures into ten digits."""
    config = VitConfig(
        num_labels=10,
        channels=1,
        image_height=8,
        image_width=8,
        patch_size=2,
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_layers=2,
    )
    return Checkpoint(
        family="vit",
        description="A random image classifier for tests.",
        model=randomised(Vit(config)),
        golden=bundle_pb2.Golden(image_path="golden.png"),
        image=image_spec(1, 8, 8, 2),
        labels=tuple("0123456789"),
        files={"golden.png": picture(8, 8, "L")},
    )


def tiny_text() -> Checkpoint:
    """Return a classifier of words into four topics."""
    vocab_size = len(SOURCE_WORDS) + 4
    config = TextClassifierConfig(
        vocab_size=vocab_size, num_labels=4, max_tokens=32, d_model=32, num_heads=2, d_ff=48, num_layers=2
    )
    return Checkpoint(
        family="text_classifier",
        description="A random text classifier for tests.",
        model=randomised(TextClassifier(config)),
        golden=bundle_pb2.Golden(text="the cat eats and the dog finds"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json", source_vocab_size=vocab_size, pad_id=PAD, max_source_tokens=32
        ),
        labels=("animals", "colours", "houses", "people"),
        files={"tokenizer.json": word_tokenizer(SOURCE_WORDS, ends=True)},
    )


CHAT_TEMPLATE = """\
{%- for message in messages %}
    {%- if message.role not in ('user', 'assistant') %}
        {{- raise_exception('nobody is called ' ~ message.role) }}
    {%- endif %}
    {{- message.role[0] + ':' + message.content | trim + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'a:' }}{% endif %}
"""


def tiny_generate() -> Checkpoint:
    """Return a generator of bytes with four query heads over two key and value heads, which takes messages."""
    config = CausalLmConfig(
        vocab_size=300, max_tokens=64, d_model=64, num_heads=4, num_kv_heads=2, d_ff=96, num_layers=2
    )
    return Checkpoint(
        family="causal_lm",
        description="A random generator for tests.",
        model=randomised(CausalLm(config)),
        golden=bundle_pb2.Golden(text="the cat in the house"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json",
            target_tokenizer="tokenizer.json",
            source_vocab_size=300,
            target_vocab_size=300,
            end_ids=[1],
            pad_id=0,
            max_total_tokens=64,
            max_new_tokens=63,
            chat=bundle_pb2.ChatSpec(template="chat_template.jinja", eos_token="<end>"),
        ),
        max_new_tokens=24,
        attention_layer=1,
        files={"tokenizer.json": byte_tokenizer(), "chat_template.jinja": CHAT_TEMPLATE.encode()},
    )


def with_outliers():
    """The tiny generator, computing the same with some channels a hundred times as large: what large models have."""
    checkpoint = tiny_generate()
    with torch.no_grad():
        for layer in checkpoint.model.layers:
            layer.attention_norm.weight[7] *= 100
            layer.attention.qkv.weight[:, 7] /= 100
            layer.feed_forward.up_proj.weight[11] *= 100
            layer.feed_forward.down_proj.weight[:, 11] /= 100
    return checkpoint


def tiny_rnn_text() -> Checkpoint:
    """Return the classifier of words into four topics, by a GRU that attends."""
    config = RnnClassifierConfig(
        vocab_size=len(SOURCE_WORDS) + 4,
        num_labels=4,
        max_tokens=32,
        cell="gru",
        d_embedding=16,
        d_hidden=12,
        d_attention=8,
    )
    model = randomised(RnnClassifier(config))
    return replace(tiny_text(), family="rnn_classifier", model=model, attention_layer=0)


CHECKPOINTS: dict[str, Callable[[], Checkpoint]] = {
    "tiny-translate": tiny_translate,
    "tiny-caption": tiny_caption,
    "tiny-speech": tiny_speech,
    "tiny-waveform": tiny_waveform,
    "tiny-ctc": tiny_ctc,
    "tiny-conformer": tiny_conformer,
    **ANSWERING,
    "tiny-image": tiny_image,
    "tiny-text": tiny_text,
    "tiny-generate": tiny_generate,
    "tiny-gpt": tiny_gpt,
    "tiny-window": tiny_window,
    "tiny-decoder": tiny_decoder,
    "tiny-hybrid": tiny_hybrid,
    "tiny-state-space": tiny_state_space,
    "tiny-mamba": tiny_mamba,
    "tiny-selective": tiny_selective,
    "tiny-rwkv": tiny_rwkv,
    "tiny-llava": tiny_llava,
    "tiny-tiles": tiny_tiles,
    "tiny-split": tiny_split,
    "tiny-cells": tiny_cells,
    "tiny-deep": tiny_deep,
    "tiny-gemma3": tiny_gemma3,
    "tiny-paligemma": tiny_paligemma,
    "tiny-queries": tiny_queries,
    "tiny-bert": tiny_bert,
    "tiny-tags": tiny_tags,
    "tiny-extract": tiny_extract,
    "tiny-masks": tiny_masks,
    "tiny-t5": tiny_t5,
    "tiny-post-norm": tiny_post_norm,
    **RECURRENT,
    "tiny-rnn-text": tiny_rnn_text,
    **VISION,
    **EMBED,
}

INT8 = [
    "tiny-translate",
    "tiny-generate",
    "tiny-decoder",
    "tiny-hybrid",
    "tiny-state-space",
    "tiny-selective",
    "tiny-rwkv",
    "tiny-tags",
    "tiny-t5",
    "tiny-attention-rnn",
    "tiny-swin",
    "tiny-bert",
    "tiny-embed",
    "tiny-git",
    "tiny-cells",
    "tiny-deep",
    "tiny-gemma3",
    "tiny-queries",
]
"""Of CHECKPOINTS, those that are exported at int8 too, under the name with -int8: each kind of product is in one."""

INT4 = ["tiny-generate"]
"""Those that are exported at int4 too: few, since `make test-precisions` has all of INT8 at each precision."""

MIXED = {"fp32": {"tiny-gpt", "tiny-window", "tiny-decoder"}, "int8": {"tiny-generate"}}
"""Those that are exported with a graph for mixed runs."""


def save_tiny(name: str, directory: Path) -> Path:
    """Write one of CHECKPOINTS into a directory and return it."""
    save_checkpoint(directory, CHECKPOINTS[name]())
    return directory


def export_tiny(checkpoints: Path, repository: Path, name: str, precision: str = "fp32") -> None:
    """Export one of CHECKPOINTS to <repository>/<name>/1, at another precision than fp32 to <name>-<precision>/1."""
    torch.set_num_threads(1)  # a second one gains nothing on tiny tensors
    bundle = name if precision == "fp32" else f"{name}-{precision}"
    mixed_runs = name in MIXED.get(precision, ())
    checkpoint = save_tiny(name, checkpoints / bundle)
    export_checkpoint(checkpoint, repository / bundle / "1", ExportOptions(precision=precision, mixed_runs=mixed_runs))
