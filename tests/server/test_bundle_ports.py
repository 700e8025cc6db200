"""Each graph has the ports of its role, in the shapes that the manifest demands."""

import pytest

from drafts import (
    answer,
    caption,
    classify_image,
    generate,
    generate_mixed,
    generate_paged,
    generate_scored,
    refused,
    tag,
    translate,
    translate_with_rnn,
)

PORTS = [
    (generate, "m.graphs[0].outputs[3].shape[1] = 'vocab'", "'logits' has shape ['batch', 'vocab']"),
    (generate, "m.graphs[0].inputs[4].shape[2] = 'length'", "has shape ['batch', '2', 'length', '4']"),
    (translate_with_rnn, "m.states[1].present = 'other'", "decoder.onnx has no output 'other'"),
    (translate_with_rnn, "m.states[0].encoder_output = ''", "encoder.onnx has an output 'recurrent_out.0'"),
    (generate_mixed, "m.graphs[1].inputs[2].name = 'ids'", "mixed.onnx has no input 'prompt_ids'"),
    (generate_mixed, "m.graphs[1].inputs[-1].shape[0] = '2'", "mixed.onnx: 'prompt.past_key_values.0.key' has shape"),
    (
        generate_mixed,
        "m.graphs[1].outputs[0].shape[1] = m.graphs[1].outputs[1].shape[1] = '6'",
        "the MIXED or BIDIRECTIONAL graph has another number of candidates",
    ),
    (generate_mixed, "del m.graphs[1].inputs[-3]", "only one has an input 'reads_all'"),
    (generate_mixed, "m.graphs[0].inputs[4].data_type = 4", "'reads_all' has the wrong data_type"),
    (generate_mixed, "m.graphs[0].inputs[4].shape[0] = '2'", "'reads_all' has shape"),
    (generate_paged, "del m.graphs[0].inputs[4]", "decoder.onnx has no input 'block_table'"),
    (generate_paged, "m.graphs[0].inputs[6].shape[0] = '2'", "'attention_bounds' has shape ['2']"),
    (generate_paged, "m.graphs[0].inputs[0].shape.append('seq')", "'input_ids' has shape ['tokens', 'seq']"),
    (generate_paged, "m.graphs[0].inputs[8].shape[1] = '32'", "'past_key_values.0.key' has shape"),
    (
        generate_paged,
        "m.graphs[0].inputs.add(name='total_length')",
        "has an input 'total_length' that its role does not",
    ),
    (generate_scored, "del m.graphs[1].inputs[1]", "score.onnx has no input 'places'"),
    (generate_scored, "m.graphs[1].inputs.add(name='lengths')", "has an input 'lengths' that its role does not know"),
    (generate_scored, "m.graphs[1].inputs[2].data_type = 3", "'scored_ids' has the wrong data_type"),
    (generate_scored, "m.graphs[1].outputs[1].shape[2] = '19'", "'topk_ids' has shape ['runs', 'size', '19']"),
    (generate_scored, "m.graphs[1].outputs[0].shape.append('k')", "'log_probs' has shape"),
    (translate, "del m.graphs[2].inputs[0]", "decoder.onnx has no input 'input_ids'"),
    (translate, "m.graphs[2].inputs.add(name='more')", "decoder.onnx has an input 'more'"),
    (translate, "m.graphs[2].inputs.append(m.graphs[2].inputs[0])", "decoder.onnx has an input twice"),
    (translate, "m.graphs[2].outputs[0].data_type = 2", "'topk_logits' has the wrong data_type"),
    (translate, "m.graphs[2].outputs[3].shape[1] = '21'", "'logits' has shape ['batch', '21']"),
    (translate, "m.graphs[2].outputs[0].shape[1] = '6'", "not of one fixed width"),
    (translate, "m.graphs[2].outputs[0].shape[1] = m.graphs[2].outputs[1].shape[1] = 'k'", "not of one fixed width"),
    (translate, "m.graphs[0].outputs[0].shape.append('x')", "'memory_out.0.key' has shape"),
    (translate, "m.states[1].encoder_output = 'other'", "encoder.onnx has no output 'other'"),
    (translate, "del m.graphs[1].inputs[2]", "explain.onnx has no input 'target_ids'"),
    (classify_image, "m.graphs[1].inputs.add(name='target_ids')", "has an input 'target_ids' that its role does not"),
    (tag, "del m.graphs[1].inputs[3]", "explain.onnx has no input 'head'"),
    (tag, "m.graphs[1].inputs[2].data_type = 3", "'layer' has the wrong data_type"),
    (tag, "m.graphs[1].inputs[0].shape[0] = '2'", "'input_ids' has shape ['2', 'seq']"),
    (tag, "del m.graphs[1].outputs[1]", "explain.onnx has no output 'source_mass'"),
    (caption, "m.graphs[1].outputs[0].shape[1] = '11'", "'weights' has shape ['target', '11']"),
    (classify_image, "m.graphs[1].outputs[1].shape[0] = '2'", "'source_mass' has shape ['2']"),
    (answer, "del m.graphs[1].outputs[1]", "explain.onnx has no output 'source_mass'"),
    (answer, "m.graphs[1].outputs[2].data_type = 2", "'target_weights' has the wrong data_type"),
    (answer, "del m.graphs[1].outputs[2].shape[1]", "'target_weights' has shape ['target'], which does not fit"),
    (
        caption,
        "m.graphs[1].outputs.add(name='target_weights')",
        "has an output 'target_weights' that its role does not",
    ),
    (tag, "m.graphs[0].outputs[0].shape[2] = '4'", "'probabilities' has shape ['batch', 'seq', '4']"),
]


@pytest.mark.parametrize(("make", "change", "text"), PORTS, ids=[f"{m.__name__}: {c}" for m, c, _ in PORTS])
def test_ports_that_do_not_fit_the_role_are_refused(tmp_path, make, change, text):
    """One is missing, too many, or of another type or shape."""
    draft = make(tmp_path / "tiny" / "1")
    exec(change, {"m": draft.manifest})
    assert text in refused(draft.write())
