"""Adapters that PEFT saved of models that extract and that fill masks, as they are served: answers are PEFT's own."""

import asyncio

import pytest
import torch
import transformers
from adapted import RANK, adapted
from hf_models import made_encoder
from test_extractors import ASKED, LONG, their_answers
from tokenizer_directories import reference

from loaded import Loaded, ask
from weft_export.adapters.export_adapter import export_adapter
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions

CLOSE = 1e-5
PRODUCTS = r".*attention\.self\.(query|value)|.*layer\.\d+\.(intermediate|output)\.dense"


def exported(model_class, tmp_path, golden=None, **config):
    """Save a model with transformers and an adapter with PEFT, export both, and return the bundle and PEFT's model."""
    model = made_encoder(model_class, "bert", tmp_path / "saved", seed=3, more_rows=0)
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(tmp_path / "saved", bundle, ExportOptions(adapters=RANK))
    theirs = adapted(model, tmp_path / "formal", size=0.4, target_modules=PRODUCTS, **config)
    export_adapter(tmp_path / "formal", bundle, tmp_path / "saved", golden=golden)
    return bundle, theirs.base_model.model


async def both(model, **request):
    """Answers to one request with the adapter and without, asked together; with it, it has the same bits alone."""
    named = {"model": {"name": model.name, "adapter": "formal"}}
    with_it, without = await asyncio.gather(ask(model, **named, **request), ask(model, **request))
    return with_it, without, await ask(model, **named, **request)


@pytest.mark.long
@pytest.mark.parametrize("golden", [None, "a cat and a house"])
def test_an_adapter_of_an_extractor(golden, tmp_path):
    """Spans, places and scores are those of PEFT's model, in one window or several, and not the base's."""
    bundle, theirs = exported(transformers.BertForQuestionAnswering, tmp_path, golden, task_type="QUESTION_ANS")
    tokenizer = reference(tmp_path / "saved")

    async def run():
        async with Loaded(bundle) as model:
            for question, context in (*ASKED, (ASKED[0][0], LONG)):
                windows = {"max_length": 40, "stride": 20} if context is LONG else {}
                more = {"max_seq_len": 40} if windows else {}
                found, base, again = await both(model, question=question, context=context, top_k=5, **more)
                expected = their_answers(theirs, tokenizer, question, context, top_k=5, **windows)
                assert [each[1:] for each in expected] == [(each.text, each.start, each.end) for each in found.answers]
                assert pytest.approx([each[0] for each in expected], abs=CLOSE) == [
                    each.score for each in found.answers
                ]
                assert found.answers == again.answers != base.answers

    asyncio.run(run())


@pytest.mark.long
def test_an_adapter_of_a_model_that_fills_masks(tmp_path):
    """Fillings and scores are those of PEFT's model, for one mask or several, and not the base's."""
    bundle, theirs = exported(transformers.BertForMaskedLM, tmp_path)
    tokenizer = reference(tmp_path / "saved")

    async def run():
        async with Loaded(bundle) as model:
            for text in ("The house of a {} is here.", "{}", "a {} and {} cat"):
                masked = text.replace("{}", tokenizer.mask_token)
                found, base, again = await both(model, text=masked, top_k=4)
                ids = tokenizer(masked, return_tensors="pt")["input_ids"]
                with torch.inference_mode():
                    logits = theirs(input_ids=ids).logits[0][ids[0] == tokenizer.mask_token_id]
                best = logits.softmax(dim=-1).topk(4)
                assert best.indices.tolist() == [[each.token_id for each in mask.fillings] for mask in found.masks]
                scores = [[each.score for each in mask.fillings] for mask in found.masks]
                torch.testing.assert_close(torch.tensor(scores), best.values, atol=CLOSE, rtol=0)
                assert found.masks == again.masks != base.masks

    asyncio.run(run())
