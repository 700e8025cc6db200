"""Family name to model, sizes and task: of ours, and of other packages by the entry points `weft.families`.

The module of a family is imported when a checkpoint names it. Another package says in its pyproject.toml, for example:

    [project.entry-points."weft.families"]
    bag_of_words = "bag_of_words:FAMILY"
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

from weft_export.errors import CheckpointError, ExportError
from weft_export.families.classifier import Classifier
from weft_export.families.entries import family_entries
from weft_export.families.family import Family
from weft_export.families.writer import Writer
from weft_proto.tasks import TASKS
from weft_proto.v1 import common_pb2

# Of each family its module in this folder, the model and the config in it, and what it is for.
_TABLE = {
    "rnn": ("rnn", "Rnn", "RnnConfig", common_pb2.TASK_TRANSLATE),
    "rnn_classifier": ("rnn_classifier", "RnnClassifier", "RnnClassifierConfig", common_pb2.TASK_CLASSIFY_TEXT),
    "attention_rnn": ("attention_rnn", "AttentionRnn", "AttentionRnnConfig", common_pb2.TASK_TRANSLATE),
    "show_attend_tell": ("show_attend_tell", "ShowAttendTell", "ShowAttendTellConfig", common_pb2.TASK_CAPTION),
    "encoder_decoder": ("encoder_decoder", "EncoderDecoder", "EncoderDecoderConfig", common_pb2.TASK_TRANSLATE),
    "bart": ("bart", "Bart", "BartConfig", common_pb2.TASK_TRANSLATE),
    "t5": ("t5", "T5", "T5Config", common_pb2.TASK_TRANSLATE),
    "captioner": ("captioner", "Captioner", "CaptionerConfig", common_pb2.TASK_CAPTION),
    "vision_encoder_decoder": (
        "vision_encoder_decoder",
        "VisionEncoderDecoder",
        "VisionEncoderDecoderConfig",
        common_pb2.TASK_CAPTION,
    ),
    "answerer": ("captioner", "Answerer", "CaptionerConfig", common_pb2.TASK_ANSWER),
    "florence2": ("florence2", "Florence2", "Florence2Config", common_pb2.TASK_ANSWER),
    "blip2_t5": ("blip2_t5", "Blip2T5", "Blip2T5Config", common_pb2.TASK_ANSWER),
    "donut": ("donut", "Donut", "DonutConfig", common_pb2.TASK_ANSWER),
    "git": ("git", "Git", "GitConfig", common_pb2.TASK_ANSWER),
    "speech": ("speech", "Speech", "SpeechConfig", common_pb2.TASK_TRANSCRIBE),
    "waveform_speech": (
        "waveform_speech",
        "WaveformSpeech",
        "WaveformSpeechConfig",
        common_pb2.TASK_TRANSCRIBE,
    ),
    "ctc": ("ctc", "Ctc", "CtcConfig", common_pb2.TASK_TRANSCRIBE_CTC),
    "conformer_ctc": ("conformer_ctc", "ConformerCtc", "ConformerCtcConfig", common_pb2.TASK_TRANSCRIBE_CTC),
    "text_classifier": ("text_classifier", "TextClassifier", "TextClassifierConfig", common_pb2.TASK_CLASSIFY_TEXT),
    "vit": ("vit", "Vit", "VitConfig", common_pb2.TASK_CLASSIFY_IMAGE),
    "swin": ("swin", "Swin", "SwinConfig", common_pb2.TASK_CLASSIFY_IMAGE),
    "swin_v2": ("swin", "SwinV2", "SwinConfig", common_pb2.TASK_CLASSIFY_IMAGE),
    "beit": ("beit", "Beit", "BeitConfig", common_pb2.TASK_CLASSIFY_IMAGE),
    "clip_vision": ("clip_vision", "ClipVision", "ClipVisionConfig", common_pb2.TASK_CLASSIFY_IMAGE),
    "clip": ("clip", "Clip", "ClipConfig", common_pb2.TASK_MATCH),
    "siglip": ("siglip", "Siglip", "SiglipConfig", common_pb2.TASK_MATCH),
    "convnext": ("convnext", "ConvNext", "ConvNextConfig", common_pb2.TASK_CLASSIFY_IMAGE),
    "resnet": ("resnet", "Resnet", "ResnetConfig", common_pb2.TASK_CLASSIFY_IMAGE),
    "attention_resnet": (
        "attention_resnet",
        "AttentionResnet",
        "AttentionResnetConfig",
        common_pb2.TASK_CLASSIFY_IMAGE,
    ),
    "causal_lm": ("causal_lm", "CausalLm", "CausalLmConfig", common_pb2.TASK_GENERATE),
    "decoder_only": ("decoder_only", "DecoderOnly", "DecoderOnlyConfig", common_pb2.TASK_GENERATE),
    "hybrid": ("hybrid", "Hybrid", "HybridConfig", common_pb2.TASK_GENERATE),
    "state_spaces": ("state_spaces", "StateSpaces", "StateSpacesConfig", common_pb2.TASK_GENERATE),
    "rwkv7": ("rwkv7", "Rwkv7", "Rwkv7Config", common_pb2.TASK_GENERATE),
    "blip2": ("blip2", "Blip2", "Blip2Config", common_pb2.TASK_GENERATE),
    "idefics3": ("idefics3", "Idefics3", "Idefics3Config", common_pb2.TASK_GENERATE),
    "gemma3": ("gemma3", "Gemma3", "Gemma3Config", common_pb2.TASK_GENERATE),
    "paligemma": ("paligemma", "PaliGemma", "PaliGemmaConfig", common_pb2.TASK_GENERATE),
    "llava": ("llava", "Llava", "LlavaConfig", common_pb2.TASK_GENERATE),
    "llava_onevision": ("llava_onevision", "LlavaOnevision", "LlavaOnevisionConfig", common_pb2.TASK_GENERATE),
    "qwen_vl": ("qwen_vl", "QwenVl", "QwenVlConfig", common_pb2.TASK_GENERATE),
    "qwen3_vl": ("qwen3_vl", "Qwen3Vl", "Qwen3VlConfig", common_pb2.TASK_GENERATE),
    "gpt": ("gpt", "Gpt", "GptConfig", common_pb2.TASK_GENERATE),
    "bert": ("bert", "Bert", "BertConfig", common_pb2.TASK_CLASSIFY_TEXT),
    "encoder_only": ("encoder_only", "EncoderOnly", "EncoderOnlyConfig", common_pb2.TASK_CLASSIFY_TEXT),
    "encoder_only_tagger": ("encoder_only", "EncoderOnlyTagger", "EncoderOnlyConfig", common_pb2.TASK_TAG),
    "encoder_only_extractor": ("encoder_only", "EncoderOnlyTagger", "EncoderOnlyConfig", common_pb2.TASK_EXTRACT),
    "masked_lm": ("masked_lm", "MaskedLm", "MaskedLmConfig", common_pb2.TASK_FILL_MASK),
    "text_embedder": ("text_embedder", "TextEmbedder", "TextEmbedderConfig", common_pb2.TASK_EMBED_TEXT),
    "decoder_embedder": ("decoder_embedder", "DecoderEmbedder", "DecoderEmbedderConfig", common_pb2.TASK_EMBED_TEXT),
    "vit_embedder": ("vit", "VitEmbedder", "VitEmbedderConfig", common_pb2.TASK_EMBED_IMAGE),
    "clip_embedder": ("clip_vision", "ClipEmbedder", "ClipEmbedderConfig", common_pb2.TASK_EMBED_IMAGE),
    "siglip_vision": ("siglip", "SiglipVision", "SiglipVisionConfig", common_pb2.TASK_CLASSIFY_IMAGE),
    "siglip_embedder": ("siglip", "SiglipEmbedder", "SiglipEmbedderConfig", common_pb2.TASK_EMBED_IMAGE),
    "bert_tagger": ("bert", "BertTagger", "BertConfig", common_pb2.TASK_TAG),
}


class _Families(Mapping[str, Family]):
    """The families of the table, each made when it is asked for."""

    def __getitem__(self, name: str) -> Family:
        module, model, config, task = _TABLE[name]
        found = import_module(f"weft_export.families.{module}")
        return Family(getattr(found, model), getattr(found, config), task)

    def __iter__(self) -> Iterator[str]:
        return iter(_TABLE)

    def __len__(self) -> int:
        return len(_TABLE)


FAMILIES = _Families()


def family_of(name: object) -> Family:
    """Return the family of a name: one of ours, or one that another package brings.

    Raises:
        CheckpointError: there is none.
        ExportError: another package brings it, and does so wrongly.
    """
    if isinstance(name, str):
        plugged = plugged_family(name, is_ours=name in FAMILIES)
        family = plugged or FAMILIES.get(name)
        if family is not None:
            return family
    known = ", ".join(sorted(FAMILIES.keys() | plugged_names()))
    raise CheckpointError(f"unknown family {name!r:.60}; known are {known}")


def plugged_names() -> set[str]:
    """Return the names of the families that other packages bring."""
    return {entry.name for entry in family_entries()}


def plugged_family(name: str, *, is_ours: bool) -> Family | None:
    """Return the family that another package brings under a name, or None if none does.

    Raises:
        ExportError: Weft itself or a second package has the name, or what it names is no family.
    """
    entries = [entry for entry in family_entries() if entry.name == name]
    packages = " and ".join(sorted({_package(entry) for entry in entries}))
    if entries and is_ours:
        raise ExportError(f"the family {name!r} is one of Weft's own, and {packages} brings another: rename that one")
    if len(entries) > 1:
        raise ExportError(f"{packages} bring a family {name!r} each: rename or uninstall one")
    return _loaded(entries[0]) if entries else None


def _loaded(entry: EntryPoint) -> Family:
    what = f"the family {entry.name!r} of {_package(entry)}"
    try:
        family: Any = entry.load()
    except Exception as error:  # it is other people's code
        raise ExportError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(family, Family):
        raise ExportError(f"{what}: {entry.value} must be a Family of weft_export.families.family, not {family!r:.80}")
    if family.task not in TASKS:
        raise ExportError(f"{what}: its task {family.task!r:.40} is none of weft_proto.v1.common_pb2.Task")
    base = Writer if TASKS[family.task].writes_text else Classifier
    if not isinstance(family.model, type) or not issubclass(family.model, base):
        raise ExportError(
            f"{what}: for {TASKS[family.task].name} its model must be a class that derives {base.__name__}"
        )
    return family


def _package(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name}" if entry.dist is not None else f"the module {entry.module}"
