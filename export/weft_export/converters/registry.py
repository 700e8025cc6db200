"""All kinds of checkpoints of others that become ours."""

from weft_export.converters.converter import Converter
from weft_export.converters.llama import LLAMA

CONVERTERS: tuple[Converter, ...] = (LLAMA,)
