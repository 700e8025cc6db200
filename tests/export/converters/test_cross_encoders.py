"""A cross-encoder that sentence-transformers saved, exported by the command, ranks by HTTP as its own library does."""

import asyncio
import json

import pytest
from hf_models import LOGITS, made
from test_pairs import JUDGES, OTHER, joining
from typer.testing import CliRunner

from late import Late
from openai_calls import serving
from weft_export.__main__ import export_app

st = Late("sentence_transformers")

QUERY = "a cat"
DOCUMENTS = ["the house of a cat", "x", "def f(x): return x + 1", "a cat"]
BERT = next(kind for kind in JUDGES if kind.architecture == "BertForSequenceClassification")


@pytest.mark.parametrize("activation", ["activation.Sigmoid", "linear.Identity"])
def test_it_ranks_and_scores_as_its_library_does(activation, tmp_path):
    """The scores of `predict`, behind the activation that its config names, and the order of `rank`."""
    made(BERT, 1, tmp_path / "body")
    joining(tmp_path / "body", separator=OTHER)
    path = tmp_path / "body" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": "<pad>"}))
    st.CrossEncoder(str(tmp_path / "body"), device="cpu", max_length=32).save_pretrained(str(tmp_path / "saved"))
    path = tmp_path / "saved" / "config.json"
    path.write_text(path.read_text().replace("activation.Sigmoid", activation))
    theirs = st.CrossEncoder(str(tmp_path / "saved"), device="cpu")
    done = CliRunner().invoke(export_app, [str(tmp_path / "saved"), str(tmp_path / "bundles" / "judge" / "1")])
    assert 0 == done.exit_code, done.output

    async def talk():
        async with serving(tmp_path / "bundles", "judge") as client:
            ranked = await client.post("/v1/rerank", model="judge", query=QUERY, documents=DOCUMENTS)
            return ranked, await client.post("/v1/score", model="judge", text_1=QUERY, text_2=DOCUMENTS)

    ranked, scored = asyncio.run(talk())
    expected = theirs.predict([(QUERY, each) for each in DOCUMENTS]).tolist()
    assert max(expected) - min(expected) > 100 * LOGITS, "scores that differ"
    assert [each["score"] for each in scored["data"]] == pytest.approx(expected, abs=LOGITS)
    assert [each["corpus_id"] for each in theirs.rank(QUERY, DOCUMENTS)] == [
        each["index"] for each in ranked["results"]
    ]
    assert all(
        expected[each["index"]] == pytest.approx(each["relevance_score"], abs=LOGITS) for each in ranked["results"]
    )
