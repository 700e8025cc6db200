"""`weft wrap` of what sentence-transformers saved with an ONNX file: its files say what is done with texts first."""

import json

import numpy as np
import onnx
from onnx import TensorProto, helper
from test_wrap_others import model_of, reader, wrap_alone
from tiny_parts import byte_tokenizer

from weft_server.bundle.load import load_bundle


def sentence_directory(folder, prompts, pooling):
    """A directory as sentence-transformers saves it with an ONNX backend, of a tiny body."""
    (folder / "1_Pooling").mkdir(parents=True)
    onnx.save(reader(), folder / "model.onnx")
    (folder / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    kinds = (("Transformer", ""), ("Pooling", "1_Pooling"))
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "tokenizer.json").write_bytes(byte_tokenizer())
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True} | pooling))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


def test_prompts_beside_an_embedder_are_wrapped_with_it(tmp_path):
    """The default one stands before the golden text too; a prompt that is not pooled is refused, and so are its kin."""
    vectors = []
    for name, default in (("plain", None), ("asking", "query")):
        given = {"prompts": {"query": "ask: "}, "default_prompt_name": default}
        folder = sentence_directory(tmp_path / name, given, {})
        assert (0, "") == wrap_alone(folder, tmp_path / "of" / name / "1", "--quiet", "--golden", "a house")
        manifest = load_bundle(tmp_path / "of" / name / "1").manifest
        assert {"query": "ask: ", "document": ""} == {each.name: each.text for each in manifest.text.prompts}
        assert (default or "") == manifest.text.default_prompt_name
        vectors.append(list(manifest.golden.embedding))
    assert vectors[0] != vectors[1]
    # The last token is the same without a prompt.
    folder = sentence_directory(tmp_path / "last", {"prompts": {"query": "ask: "}}, {"include_prompt": False})
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken", "include_prompt": false}')
    assert (0, "") == wrap_alone(folder, tmp_path / "of" / "last" / "1", "--quiet")
    # What the refusal advises is taken.
    folder = sentence_directory(tmp_path / "said", {"prompts": {"query": "ask: "}}, {"include_prompt": False})
    assert (0, "") == wrap_alone(folder, tmp_path / "of" / "said" / "1", "--quiet", "--pooling", "mean")
    for name, prompts, pooling, why in (
        ("left", {"prompts": {"query": "ask: "}}, {"include_prompt": False}, "include_prompt is false"),
        ("none", {"default_prompt_name": "passage"}, {}, "default_prompt_name is 'passage'"),
    ):
        folder = sentence_directory(tmp_path / name, prompts, pooling)
        code, said = wrap_alone(folder, tmp_path / "of" / name / "1", "--quiet")
        assert (1, True) == (code, why in said), said


def test_texts_are_wrapped_in_lower_case_where_the_directory_says_so(tmp_path):
    """The tokenizer of the bundle does it: the vector of a text in capitals is that of the text in small letters."""
    folder = sentence_directory(tmp_path / "given", {}, {})
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    vectors = []
    for version, text in (("1", "A House"), ("2", "a house")):
        assert (0, "") == wrap_alone(folder, tmp_path / "wrapped" / version, "--quiet", "--golden", text)
        vectors.append(list(load_bundle(tmp_path / "wrapped" / version).manifest.golden.embedding))
    assert vectors[0] == vectors[1]


def test_keys_of_modules_json_that_are_not_known_are_told(tmp_path):
    """As an export tells them: a newer sentence-transformers may mean something by them."""
    folder = sentence_directory(tmp_path / "given", {}, {})
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["new_of_version_9"] = 3
    (folder / "modules.json").write_text(json.dumps(modules))
    code, said = wrap_alone(folder, tmp_path / "wrapped" / "1", "--quiet")
    assert (0, True) == (code, "note: modules.json has keys that are not known here" in said), said
    assert "new_of_version_9" in said


def cross_encoder(folder, num_labels):
    """A directory of a CrossEncoder with an ONNX file: logits of a text's first token. It lower-cases texts."""
    folder.mkdir()
    table = np.random.default_rng(4).standard_normal((300, num_labels)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Gather", ["rows", "first"], ["logits"], axis=1),
    ]
    ports = [(name, TensorProto.INT64, ["batch", "seq"]) for name in ("input_ids", "attention_mask")]
    weights = [("table", table), ("first", np.array(0, np.int64))]
    logits = ("logits", TensorProto.FLOAT, ["batch", num_labels])
    onnx.save(model_of(nodes, ports, [logits], weights), folder / "model.onnx")
    labels = {str(index): f"label {index}" for index in range(num_labels)}
    files = {
        "config.json": {"architectures": ["BertForSequenceClassification"], "id2label": labels},
        "modules.json": [{"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}],
        "config_sentence_transformers.json": {"model_type": "CrossEncoder", "new_of_version_9": 3},
        "sentence_bert_config.json": {"do_lower_case": True},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "tokenizer.json").write_bytes(byte_tokenizer())
    return folder


def test_a_wrapped_cross_encoder_reads_texts_as_its_directory_says(tmp_path):
    """In lower case, and what is not followed is told: that it is asked for one text, and by which scores."""
    folder, answers = cross_encoder(tmp_path / "given", 3), []
    for version, text in (("1", "A House"), ("2", "a house")):
        code, said = wrap_alone(folder, tmp_path / "wrapped" / version, "--quiet", "--golden", text)
        assert (0, True, True) == (code, "new_of_version_9" in said, "a CrossEncoder judges two texts" in said), said
        answers.append(list(load_bundle(tmp_path / "wrapped" / version).manifest.golden.probabilities))
    assert answers[0] == answers[1]


def test_one_logit_is_refused(tmp_path):
    """Its softmax would be 1 whatever is asked: a cross-encoder of one label is no such classifier."""
    code, said = wrap_alone(cross_encoder(tmp_path / "given", 1), tmp_path / "wrapped" / "1", "--quiet")
    assert (1, True) == (code, "one logit, whose softmax is always 1" in said), said
    assert not (tmp_path / "wrapped" / "1").exists()
