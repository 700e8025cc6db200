"""Questions that an encoder reads behind a picture: words that stand for a sentence, and what an answer keeps."""

import json
from typing import Any

from weft_export.checkpoints.tokenizer import tokenizer_of
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.picture_prompts import framing, named_token
from weft_export.converters.processor_keys import PROCESSOR_FILE, read_processor
from weft_export.converters.sight import GOLDEN_QUESTION, image_token
from weft_export.converters.text.json_file import read_object_if_there
from weft_export.errors import CheckpointError
from weft_proto.v1 import bundle_pb2

# Of Florence2Processor: no file says it. A test holds it to the class.
FORMS = {
    "<OCR>": "What is the text in the image?",
    "<OCR_WITH_REGION>": "What is the text in the image, with regions?",
    "<CAPTION>": "What does the image describe?",
    "<DETAILED_CAPTION>": "Describe in detail what is shown in the image.",
    "<MORE_DETAILED_CAPTION>": "Describe with a paragraph what is shown in the image.",
    "<OD>": "Locate the objects with category name in the image.",
    "<DENSE_REGION_CAPTION>": "Locate the objects in the image, with their descriptions.",
    "<REGION_PROPOSAL>": "Locate the region proposals in the image.",
    "<CAPTION_TO_PHRASE_GROUNDING>": "Locate the phrases in the caption: {input}",
    "<REFERRING_EXPRESSION_SEGMENTATION>": "Locate {input} in the image with mask",
    "<REGION_TO_SEGMENTATION>": "What is the polygon mask of region {input}",
    "<OPEN_VOCABULARY_DETECTION>": "Locate {input} in the image.",
    "<REGION_TO_CATEGORY>": "What is the region {input}?",
    "<REGION_TO_DESCRIPTION>": "What does the region {input} describe?",
    "<REGION_TO_OCR>": "What text is in the region {input}?",
}
# Tokens that are no text of an answer, by their names, and what BART's class takes where no file names one. All others
# are text: places on a picture, for example.
_NO_TEXT = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}


def put_question(text: bundle_pb2.TextSpec, hf: HfCheckpoint, sight: Any, files: dict[str, bytes]) -> str:
    """Say in `text` how a question is read, and return one to try. Tokenizers among `files` may change.

    sight: what makes places of a source. None: the decoder reads a question, behind its start token alone.

    Raises:
        CheckpointError: config, processor and tokenizer contradict each other: transformers fails then.
    """
    if sight is None:
        text.may_ask_nothing = True
        files[text.source_tokenizer] = _alone(files[text.source_tokenizer])
        if hf.fields.word("model_type") == "vision-encoder-decoder":
            # A Donut's tasks, questions and fields are marked by tokens that are special there.
            _keep_text(text, hf, files)
        return GOLDEN_QUESTION
    tokenizer = tokenizer_of(text.source_tokenizer, files[text.source_tokenizer])
    text.question.image_id, token = image_token(hf, tokenizer)
    if hf.fields.word("model_type") != "florence2":
        given = read_object_if_there(hf.directory / PROCESSOR_FILE)
        _check_count(PROCESSOR_FILE, "num_query_tokens", given, sight)
        return GOLDEN_QUESTION
    place, given = read_processor(hf, "image_processor")
    _check_count(place, "image_seq_length", given, sight)
    around = tuple(named_token(hf, name, _NO_TEXT[name]) for name in ("bos_token", "eos_token"))
    if framing(tokenizer) != around:
        raise CheckpointError(f"the tokenizer puts {framing(tokenizer)} around a text, and Florence2Processor {around}")
    for form, sentence in FORMS.items():
        text.question.forms.add(token=form, text=sentence)
    _keep_text(text, hf, files, token)
    return "<CAPTION>"


def _keep_text(text: bundle_pb2.TextSpec, hf: HfCheckpoint, files: dict[str, bytes], *more: str) -> None:
    """Make all special tokens text but those that have a name, and more."""
    named = {named_token(hf, name, usual) for name, usual in _NO_TEXT.items()}
    for file in {text.source_tokenizer, text.target_tokenizer}:
        files[file] = _with_text(files[file], {*named, *more})


def _alone(tokenizer: bytes) -> bytes:
    """Return a tokenizer.json that puts nothing around a text."""
    return json.dumps(json.loads(tokenizer) | {"post_processor": None}, ensure_ascii=False).encode()


def _check_count(place: str, name: str, given: dict[str, Any], sight: Any) -> None:
    if given.get(name) != sight.num_places:
        raise CheckpointError(
            f"{place}: {name} is {given.get(name)!r:.60}, and config.json makes {sight.num_places} places of a picture"
        )


def _with_text(tokenizer: bytes, special: set[str]) -> bytes:
    """Return a tokenizer.json in which no added tokens but these are special, so that the others are text."""
    content = json.loads(tokenizer)
    for token in content.get("added_tokens", ()):
        token["special"] &= token["content"] in special
    return json.dumps(content, ensure_ascii=False).encode()
