"""All kinds of checkpoints of others that become ours."""

from weft_export.converters.albert import ALBERT
from weft_export.converters.bart import BART, M2M_100, MARIAN, MBART, PEGASUS
from weft_export.converters.beit import BEIT
from weft_export.converters.bert import BERT, CAMEMBERT, ROBERTA, XLM_ROBERTA
from weft_export.converters.blip import BLIP
from weft_export.converters.clip import CLIP
from weft_export.converters.converter import Converter
from weft_export.converters.convnext import CONVNEXT
from weft_export.converters.distilbert import DISTILBERT
from weft_export.converters.electra import ELECTRA
from weft_export.converters.llama import LLAMA
from weft_export.converters.modernbert import MODERNBERT
from weft_export.converters.mpnet import MPNET
from weft_export.converters.resnet import RESNET
from weft_export.converters.swin import SWIN, SWIN_V2
from weft_export.converters.t5 import MT5, T5
from weft_export.converters.vision_encoder_decoder import VISION_ENCODER_DECODER
from weft_export.converters.vit import DEIT, DEIT_ALONE, VIT

CONVERTERS: tuple[Converter, ...] = (
    LLAMA,
    MARIAN,
    BART,
    MBART,
    M2M_100,
    PEGASUS,
    T5,
    MT5,
    VISION_ENCODER_DECODER,
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
    *BERT,
    *ROBERTA,
    *XLM_ROBERTA,
    *CAMEMBERT,
    *DISTILBERT,
    *ELECTRA,
    *ALBERT,
    *MPNET,
    *MODERNBERT,
)
