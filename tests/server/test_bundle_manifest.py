"""A manifest fits its task, and its parts fit each other."""

import pytest

from drafts import caption, classify_image, classify_text, generate, refused, tag, translate

MANIFESTS = [
    (translate, "m.task = 99", "task 99 is unknown"),
    (translate, "m.precision = 0", "precision 0 is unknown"),
    (translate, "del m.graphs[0]", "needs a ENCODER graph"),
    (translate, "m.graphs.append(m.graphs[0])", "a graph role is there twice"),
    (generate, "m.graphs.add(role=1)", "has no ENCODER graph"),
    (tag, "m.graphs[0].role = 3", "needs a TAGGER graph"),
    (classify_text, "m.graphs.add(role=4)", "attention is for bundles with an EXPLAIN graph"),
    (classify_text, "m.attention.heads.append(2)", "attention is for bundles with an EXPLAIN graph"),
    (tag, "m.ClearField('attention')", "attention is for bundles with an EXPLAIN graph"),
    (tag, "del m.attention.heads[:]", "attention.heads is empty"),
    (tag, "m.attention.heads.append(0)", "attention.heads has a layer without heads"),
    (tag, "m.attention.default_layer = 2", "attention.default_layer 2 is not one of 2 layers"),
    (generate, "m.text.prefixes.append('x')", "text.prefixes are for translate"),
    (tag, "m.text.prefixes.append('x')", "text.prefixes are for translate"),
    (translate, "m.text.prefixes.append('')", "text.prefixes has an empty one"),
    (translate, "m.text.prefixes.extend(['x', 'x'])", "text.prefixes are not distinct"),
    (
        translate,
        "m.text.target_languages.extend(['es', 'es'])",
        "text.target_languages has an empty one, or one twice",
    ),
    (translate, "m.text.source_languages.append('')", "text.source_languages has an empty one, or one twice"),
    (translate, "m.ClearField('text')", "text is missing"),
    (translate, "m.image.height = 3", "image is for tasks that take one"),
    (caption, "m.ClearField('image')", "image is for tasks that take one"),
    (translate, "m.text.source_tokenizer = 'other.json'", "source tokenizer 'other.json'"),
    (caption, "m.text.target_tokenizer = '../tokenizer.json'", "target tokenizer '../tokenizer.json'"),
    (classify_text, "m.text.source_vocab_size = 0", "source_vocab_size"),
    (classify_text, "m.text.pad_id = 20", "pad_id 20 is outside"),
    (classify_text, "m.text.max_source_tokens = 0", "max_source_tokens is missing"),
    (translate, "m.text.ClearField('start_id')", "start_id is for translate and caption"),
    (generate, "m.text.start_id = 0", "start_id is for translate and caption"),
    (translate, "m.text.start_id = 20", "start_id 20 is outside"),
    (generate, "m.text.end_ids.append(20)", "end_ids has an id outside"),
    (generate, "m.text.max_new_tokens = 17", "max_new_tokens is not in [1, max_total_tokens]"),
    (generate, "m.decoding.max_new_tokens = 11", "decoding.max_new_tokens is not in"),
    (generate, "m.text.max_total_tokens = m.text.max_new_tokens = 1", "leaves a prompt no room"),
    (generate, "m.ClearField('decoding')", "decoding.max_new_tokens is not in"),
    (caption, "m.image.channels = 2", "channels is 2"),
    (caption, "m.image.width = 5000", "image.width is 5000; it must be from 1 to 4,096"),
    (caption, "m.image.width = 0", "image.height and width are missing"),
    (caption, "m.image.resample = 0", "resample 0 is unknown"),
    (caption, "m.image.mean.append(0.5)", "image.mean has 2 values for 1 channels"),
    (caption, "m.image.mean[0] = float('nan')", "image.mean[0] is nan"),
    (caption, "m.image.std[0] = 0", "image.std[0] is 0.0"),
    (caption, "m.image.grid_rows = 0", "grid_rows and grid_columns are missing"),
    (caption, "m.image.grid_rows = m.image.grid_columns = 4096", "grid_rows times grid_columns is 16,777,216"),
    (translate, "m.graphs[1].role = 6", "TASK_TRANSLATE has no MIXED graph"),
    (classify_image, "del m.labels[:]", "labels are missing"),
    (classify_image, "m.labels[1] = 'good'", "labels are not distinct"),
    (tag, "m.quality.num_examples = 0", "quality.metric and num_examples are missing"),
    (tag, "m.quality.score = 1.5", "quality.score is 1.5"),
    (tag, "m.quality.score = 0.98", "less than its min_share"),
    (generate, "m.ClearField('golden')", "golden is missing"),
    (generate, "m.golden.text = ''", "golden.text is missing"),
    (caption, "m.golden.image_path = 'other.png'", "golden image 'other.png'"),
    (generate, "del m.golden.token_ids[:]", "golden.token_ids are missing"),
    (generate, "m.golden.token_ids.append(20)", "id outside the target vocabulary"),
    (generate, "m.golden.token_ids.extend(range(10))", "more than text.max_new_tokens"),
    (classify_text, "m.golden.probabilities.append(0)", "4 probabilities for 3 labels"),
    (classify_text, "m.golden.probabilities[0] = 1", "no distribution"),
    (classify_text, "m.golden.probabilities[:] = [float('inf'), -float('inf'), 1]", "golden.probabilities[0] is inf"),
    (classify_text, "m.golden.probabilities[0] = float('nan')", "golden.probabilities[0] is nan"),
    (tag, "m.golden.probabilities.append(0)", "7 probabilities, which are no rows of 3 labels"),
    (tag, "del m.golden.probabilities[:]", "0 probabilities, which are no rows of 3 labels"),
    (tag, "m.golden.probabilities.extend([1, 0, 0] * 11)", "more tokens than text.max_source_tokens"),
    (tag, "m.golden.probabilities[5] = 1", "no distribution"),
    (tag, "del m.labels[:]", "labels are missing"),
    (generate, "m.golden.probabilities.append(1)", "golden.probabilities are for tasks that classify"),
    (classify_text, "m.golden.token_ids.append(1)", "golden.token_ids are for tasks that produce text"),
    (caption, "m.text.source_tokenizer = '../other.json'", "tokenizer '../other.json' is not a file of the bundle"),
    (classify_text, "m.text.target_tokenizer = '/dev/zero'", "tokenizer '/dev/zero' is not a file of the bundle"),
]


@pytest.mark.parametrize(("make", "change", "text"), MANIFESTS, ids=[f"{m.__name__}: {c}" for m, c, _ in MANIFESTS])
def test_a_manifest_that_contradicts_itself_is_refused(tmp_path, make, change, text):
    """It does not fit its task, or one part of it does not fit another."""
    draft = make(tmp_path / "tiny" / "1")
    exec(change, {"m": draft.manifest})
    assert text in refused(draft.write())
