"""How many texts a directory's tokenizer reads otherwise in a bundle than in transformers, for each kind of directory.

    python tests/bench/tokenizer_rates.py [KIND ...]

The texts are made of hard words in a random order, and of random characters of many scripts; they are the same in each
run. Where the directory has a SentencePiece model, it also says how many texts transformers reads otherwise than that.
"""

import random
import sys
import tempfile
from pathlib import Path

# Run as a script: what the tests share lies above.
sys.path.insert(0, str(Path(__file__).parents[1] / "export"))

import sentencepiece
from tokenizer_directories import OLDER, config_of, hard_texts, reference, write
from tokenizers import Tokenizer

from weft_export.converters.text.side import read_text_side

NUM_TEXTS = 5000
SPACES = (*(" " * 8), "  ", "\n", "\t", "", "\u3000")
SCRIPTS = (*((0x20, 0x7F),) * 6, (0xA0, 0x250), (0x300, 0x1100), (0x3000, 0x9FFF), (0x1F300, 0x1F700))


def texts():
    """Half of the texts are words, half are characters."""
    draw = random.Random(2)
    words = [word for text in hard_texts() for word in text.split()]
    for index in range(NUM_TEXTS):
        if index % 2:
            yield "".join(draw.choice(words) + draw.choice(SPACES) for _ in range(draw.randint(1, 12)))
        else:
            yield "".join(chr(draw.randrange(*draw.choice(SCRIPTS))) for _ in range(draw.randint(1, 40)))


def rates(kind, given, root):
    """How many texts the bundle reads otherwise than transformers; and transformers, than SentencePiece, in words."""
    model_type, options, files = OLDER[kind]()
    directory = write(root / kind, model_type, options, files)
    side, theirs = read_text_side(directory, config_of(directory), 5000), reference(directory)
    code = getattr(theirs, "src_lang", None)
    language = next((each for each in side.languages if each.code == code), None)
    before, after = ([], []) if language is None else (language.source_before, language.source_after)
    ours = Tokenizer.from_buffer(side.files[side.source_tokenizer]).encode_batch(given)
    expected = theirs(given)["input_ids"]
    differ = sum(ids != [*before, *own.ids, *after] for ids, own in zip(expected, ours, strict=True))
    model = next((content for name, content in files.items() if name.endswith(".model")), None)
    return differ, "" if model is None else f"{itself(model, theirs, given)} otherwise than SentencePiece"


def itself(model, theirs, given):
    """How many texts transformers reads otherwise than a SentencePiece model. Unknown pieces are alike."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    differ = 0
    for text, ids in zip(given, theirs(given, add_special_tokens=False)["input_ids"], strict=True):
        pieces = processor.encode(text, out_type=str)
        known = [each if processor.piece_to_id(each) != processor.unk_id() else theirs.unk_token for each in pieces]
        differ += known != theirs.convert_ids_to_tokens(ids)
    return differ


def main():
    """Print a line for each kind of directory."""
    given = list(texts())
    with tempfile.TemporaryDirectory() as folder:
        for kind in sys.argv[1:] or OLDER:
            differ, other = rates(kind, given, Path(folder))
            print(f"{kind:16} {differ:5} of {len(given)} otherwise than transformers; {other}", flush=True)


if __name__ == "__main__":
    main()
