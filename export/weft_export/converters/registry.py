"""All kinds of checkpoints of others that become ours."""

from weft_export.converters.bart import BART, M2M_100, MARIAN, MBART, PEGASUS
from weft_export.converters.beit import BEIT
from weft_export.converters.bert import ALBERT, BERT, CAMEMBERT, DISTILBERT, ELECTRA, MPNET, ROBERTA, XLM_ROBERTA
from weft_export.converters.blip import BLIP
from weft_export.converters.bloom import BLOOM
from weft_export.converters.clip import CLIP, CLIP_EMBEDDER, CLIP_PAIR, CLIP_TEXTS, CLIP_WHOLE
from weft_export.converters.converter import Converter
from weft_export.converters.convnext import CONVNEXT
from weft_export.converters.deberta import DEBERTA
from weft_export.converters.dinov2 import DINOV2
from weft_export.converters.falcon import FALCON
from weft_export.converters.gemma import GEMMA, GEMMA2, GEMMA3
from weft_export.converters.gpt2 import GPT2
from weft_export.converters.gpt_neox import GPT_NEOX
from weft_export.converters.llama import (
    DECODER_BODIES,
    LLAMA,
    MISTRAL,
    OLMO,
    QWEN2,
    QWEN3,
    SMOLLM3,
    STABLELM,
    STARCODER2,
)
from weft_export.converters.modernbert import MODERNBERT
from weft_export.converters.opt import OPT
from weft_export.converters.phi import PHI, PHI3
from weft_export.converters.resnet import RESNET
from weft_export.converters.swin import SWIN, SWIN_V2
from weft_export.converters.t5 import MT5, T5
from weft_export.converters.vision_encoder_decoder import VISION_ENCODER_DECODER
from weft_export.converters.vit import DEIT, DEIT_ALONE, VIT, VIT_BODY
from weft_export.converters.whisper import WHISPER

CONVERTERS: tuple[Converter, ...] = (
    LLAMA,
    GPT2,
    MISTRAL,
    QWEN2,
    QWEN3,
    GEMMA,
    GEMMA2,
    GEMMA3,
    PHI,
    PHI3,
    SMOLLM3,
    STABLELM,
    GPT_NEOX,
    OPT,
    BLOOM,
    FALCON,
    STARCODER2,
    OLMO,
    MARIAN,
    BART,
    MBART,
    M2M_100,
    PEGASUS,
    T5,
    MT5,
    VISION_ENCODER_DECODER,
    WHISPER,
    BLIP,
    VIT,
    DEIT,
    DEIT_ALONE,
    BEIT,
    SWIN,
    SWIN_V2,
    CONVNEXT,
    RESNET,
    CLIP,
    CLIP_PAIR,
    CLIP_WHOLE,
    CLIP_EMBEDDER,
    CLIP_TEXTS,
    VIT_BODY,
    DINOV2,
    *BERT,
    *ROBERTA,
    *XLM_ROBERTA,
    *CAMEMBERT,
    *DISTILBERT,
    *ELECTRA,
    *ALBERT,
    *MPNET,
    *MODERNBERT,
    *DEBERTA,
    *DECODER_BODIES,
)
