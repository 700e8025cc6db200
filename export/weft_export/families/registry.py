"""Family name to model, sizes and task."""

from weft_export.errors import CheckpointError
from weft_export.families.answerer import Answerer
from weft_export.families.attention_resnet import AttentionResnet, AttentionResnetConfig
from weft_export.families.attention_rnn import AttentionRnn, AttentionRnnConfig
from weft_export.families.bart import Bart, BartConfig
from weft_export.families.beit import Beit, BeitConfig
from weft_export.families.bert import Bert
from weft_export.families.bert_body import BertConfig
from weft_export.families.bert_tagger import BertTagger
from weft_export.families.captioner import Captioner, CaptionerConfig
from weft_export.families.causal_lm import CausalLm, CausalLmConfig
from weft_export.families.clip import Clip, ClipConfig
from weft_export.families.clip_vision import ClipEmbedder, ClipEmbedderConfig, ClipVision, ClipVisionConfig
from weft_export.families.convnext import ConvNext, ConvNextConfig
from weft_export.families.decoder_embedder import DecoderEmbedder, DecoderEmbedderConfig
from weft_export.families.decoder_only import DecoderOnly, DecoderOnlyConfig
from weft_export.families.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from weft_export.families.encoder_only import EncoderOnly, EncoderOnlyConfig, EncoderOnlyTagger
from weft_export.families.family import Family
from weft_export.families.git import Git, GitConfig
from weft_export.families.gpt import Gpt, GptConfig
from weft_export.families.masked_lm import MaskedLm, MaskedLmConfig
from weft_export.families.plugged import plugged_family, plugged_names
from weft_export.families.resnet import Resnet, ResnetConfig
from weft_export.families.rnn import Rnn, RnnConfig
from weft_export.families.rnn_classifier import RnnClassifier, RnnClassifierConfig
from weft_export.families.show_attend_tell import ShowAttendTell, ShowAttendTellConfig
from weft_export.families.speech import Speech, SpeechConfig
from weft_export.families.swin import Swin, SwinConfig
from weft_export.families.swin_v2 import SwinV2
from weft_export.families.t5 import T5, T5Config
from weft_export.families.text_classifier import TextClassifier, TextClassifierConfig
from weft_export.families.text_embedder import TextEmbedder, TextEmbedderConfig
from weft_export.families.vision_encoder_decoder import VisionEncoderDecoder, VisionEncoderDecoderConfig
from weft_export.families.vit import Vit, VitConfig
from weft_export.families.vit_embedder import VitEmbedder, VitEmbedderConfig
from weft_proto.v1 import common_pb2

FAMILIES = {
    "rnn": Family(Rnn, RnnConfig, common_pb2.TASK_TRANSLATE),
    "rnn_classifier": Family(RnnClassifier, RnnClassifierConfig, common_pb2.TASK_CLASSIFY_TEXT),
    "attention_rnn": Family(AttentionRnn, AttentionRnnConfig, common_pb2.TASK_TRANSLATE),
    "show_attend_tell": Family(ShowAttendTell, ShowAttendTellConfig, common_pb2.TASK_CAPTION),
    "encoder_decoder": Family(EncoderDecoder, EncoderDecoderConfig, common_pb2.TASK_TRANSLATE),
    "bart": Family(Bart, BartConfig, common_pb2.TASK_TRANSLATE),
    "t5": Family(T5, T5Config, common_pb2.TASK_TRANSLATE),
    "captioner": Family(Captioner, CaptionerConfig, common_pb2.TASK_CAPTION),
    "vision_encoder_decoder": Family(VisionEncoderDecoder, VisionEncoderDecoderConfig, common_pb2.TASK_CAPTION),
    "answerer": Family(Answerer, CaptionerConfig, common_pb2.TASK_ANSWER),
    "git": Family(Git, GitConfig, common_pb2.TASK_ANSWER),
    "speech": Family(Speech, SpeechConfig, common_pb2.TASK_TRANSCRIBE),
    "text_classifier": Family(TextClassifier, TextClassifierConfig, common_pb2.TASK_CLASSIFY_TEXT),
    "vit": Family(Vit, VitConfig, common_pb2.TASK_CLASSIFY_IMAGE),
    "swin": Family(Swin, SwinConfig, common_pb2.TASK_CLASSIFY_IMAGE),
    "swin_v2": Family(SwinV2, SwinConfig, common_pb2.TASK_CLASSIFY_IMAGE),
    "beit": Family(Beit, BeitConfig, common_pb2.TASK_CLASSIFY_IMAGE),
    "clip_vision": Family(ClipVision, ClipVisionConfig, common_pb2.TASK_CLASSIFY_IMAGE),
    "clip": Family(Clip, ClipConfig, common_pb2.TASK_MATCH),
    "convnext": Family(ConvNext, ConvNextConfig, common_pb2.TASK_CLASSIFY_IMAGE),
    "resnet": Family(Resnet, ResnetConfig, common_pb2.TASK_CLASSIFY_IMAGE),
    "attention_resnet": Family(AttentionResnet, AttentionResnetConfig, common_pb2.TASK_CLASSIFY_IMAGE),
    "causal_lm": Family(CausalLm, CausalLmConfig, common_pb2.TASK_GENERATE),
    "decoder_only": Family(DecoderOnly, DecoderOnlyConfig, common_pb2.TASK_GENERATE),
    "gpt": Family(Gpt, GptConfig, common_pb2.TASK_GENERATE),
    "bert": Family(Bert, BertConfig, common_pb2.TASK_CLASSIFY_TEXT),
    "encoder_only": Family(EncoderOnly, EncoderOnlyConfig, common_pb2.TASK_CLASSIFY_TEXT),
    "encoder_only_tagger": Family(EncoderOnlyTagger, EncoderOnlyConfig, common_pb2.TASK_TAG),
    "encoder_only_extractor": Family(EncoderOnlyTagger, EncoderOnlyConfig, common_pb2.TASK_EXTRACT),
    "masked_lm": Family(MaskedLm, MaskedLmConfig, common_pb2.TASK_FILL_MASK),
    "text_embedder": Family(TextEmbedder, TextEmbedderConfig, common_pb2.TASK_EMBED_TEXT),
    "decoder_embedder": Family(DecoderEmbedder, DecoderEmbedderConfig, common_pb2.TASK_EMBED_TEXT),
    "vit_embedder": Family(VitEmbedder, VitEmbedderConfig, common_pb2.TASK_EMBED_IMAGE),
    "clip_embedder": Family(ClipEmbedder, ClipEmbedderConfig, common_pb2.TASK_EMBED_IMAGE),
    "bert_tagger": Family(BertTagger, BertConfig, common_pb2.TASK_TAG),
}


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
