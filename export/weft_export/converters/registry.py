"""All kinds of checkpoints of others that become ours."""

from weft_export.converters.bart import BART, M2M_100, MARIAN, MBART, PEGASUS
from weft_export.converters.converter import Converter
from weft_export.converters.llama import LLAMA
from weft_export.converters.t5 import MT5, T5

CONVERTERS: tuple[Converter, ...] = (
    LLAMA,
    MARIAN,
    BART,
    MBART,
    M2M_100,
    PEGASUS,
    T5,
    MT5,
)
