"""A served masked language model answers as transformers' pipeline "fill-mask" does, from the same directory."""

import asyncio

import pytest
import transformers
from hf_models import made_encoder

from loaded import Loaded, ask
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest

# {} is the mask. A tokenizer may take in the space before one, and characters may have marks.
TEXTS = ("The house of a {} is here.", "{}", "a{}b e\u0301 {} and  {} cat", "print({})", "It is  {} , and {}.")


def saved(directory, name, files):
    """The pipeline of a masked language model that transformers saved. It has more rows than tokens, as padded ones."""
    made_encoder(getattr(transformers, f"{name}ForMaskedLM"), files, directory, seed=5, more_rows=3)
    return transformers.pipeline("fill-mask", model=str(directory), device="cpu")


def their_answer(pipeline, text, **options):
    """For each mask, tokens with their texts and scores; equal scores by id."""
    rows = pipeline(text, **options)
    rows = rows if isinstance(rows[0], list) else [rows]
    return [[(each["token"], each["token_str"], each["score"]) for each in row] for row in rows]


# A tokenizer that knows words, one of bytes, and one of SentencePiece.
SERVED = [
    ("Bert", "bert"),
    ("Roberta", "roberta"),
    pytest.param("XLMRoberta", "xlm-roberta", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("name", "files"), SERVED)
def test_fillings_are_those_of_the_pipeline(name, files, tmp_path):
    """Tokens, their texts and scores are theirs for each option, and the same bits come alone and together.

    Places are those of the mask token in the text.
    """
    theirs = saved(tmp_path / "saved", name, files)
    mask = theirs.tokenizer.mask_token
    targets = [token for token in theirs.tokenizer.get_vocab() if token.isalnum()][:7]
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(tmp_path / "saved", bundle, ExportOptions(no_explain=name != "Bert"))

    async def run():
        async with Loaded(bundle) as model:
            for options in ({}, {"top_k": 40}, {"targets": targets}, {"targets": targets[:2], "top_k": 9}):
                texts = [text.replace("{}", mask) for text in TEXTS]
                together = await asyncio.gather(*(ask(model, text=text, **options) for text in texts))
                for text, answer in zip(texts, together, strict=True):
                    assert answer.masks == (await ask(model, text=text, **options)).masks
                    expected = their_answer(theirs, text, **options)
                    found = [[(each.token_id, each.text) for each in row.fillings] for row in answer.masks]
                    assert [[each[:2] for each in row] for row in expected] == found
                    for row, their_row in zip(answer.masks, expected, strict=True):
                        scores = [each.score for each in row.fillings]
                        assert pytest.approx([each[2] for each in their_row], rel=1e-3) == scores
                        assert mask == text[row.start : row.end]
            await check_refusals(model, mask)
            if name == "Bert":
                text = f"a {mask} b {mask}"
                explained = await ask(model, text=text, explain=common_pb2.Explain())
                alignment = explained.alignment
                assert [mask, mask] == list(alignment.target_tokens)
                assert (2, explained.usage.input_tokens) == (len(alignment.source_mass), len(alignment.source_tokens))

    asyncio.run(run())


async def check_refusals(model, mask):
    """What a request may not be: each is refused by its field."""
    text = f"a {mask}"
    for wrong, field, why in (
        ({"text": "a house"}, "text", f"has no mask; the model's mask token is {mask}"),
        ({"text": " "}, "text", "must not be empty"),
        ({"text": f"{mask} " * 17}, "text", "has 17 masks; at most 16 are taken"),
        ({"text": f"{mask} a b" * 60}, "text", "the model takes"),
        ({"top_k": 0}, "top_k", "must be 1..100, not 0"),
        ({"top_k": 101}, "top_k", "must be 1..100, not 101"),
        ({"targets": ["a", ""]}, "targets[1]", "must not be empty"),
        ({"targets": ["a", "houses of cats"]}, "targets[1]", "'houses of cats' is not one token of the"),
        ({"targets": ["\u6f22\u5b57\u30cb"]}, "targets[0]", "is not one token of the"),
        ({"targets": ["a" * 257]}, "targets[0]", "is 257 characters long; at most 256 are taken"),
        ({"targets": ["a"] * 1025}, "targets", "are 1025; at most 1024 are taken"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            await ask(model, **{"text": text} | wrong)
        assert field == refused.value.field
        assert why in str(refused.value)
