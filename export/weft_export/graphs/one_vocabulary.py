"""Whether an answer can be made of its source's ids: both sides have one vocabulary."""

from weft_export.checkpoints.tokenizer import Spoken, read_tokenizer
from weft_export.converters.text.spm_text import MARK


def has_one_vocabulary(checkpoint: Spoken) -> bool:
    """Whether each id of an answer stands for the same token in a source.

    Marian has a tokenizer for each side, over one vocabulary. Its pieces of the other side stand between marks.
    """
    text = checkpoint.text_spec
    if text.source_tokenizer == text.target_tokenizer:
        return True
    if text.target_vocab_size > text.source_vocab_size:
        return False
    source, target = (read_tokenizer(checkpoint, name) for name in (text.source_tokenizer, text.target_tokenizer))
    return all(
        (source.id_to_token(id_) or "").strip(MARK) == (target.id_to_token(id_) or "").strip(MARK)
        for id_ in range(text.target_vocab_size)
    )
