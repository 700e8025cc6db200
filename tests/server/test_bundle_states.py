"""The states of a manifest fit the task, the precision, the text and each other."""

import pytest

from drafts import (
    caption,
    classify_text,
    generate,
    generate_mixed,
    generate_paged,
    refused,
    tag,
    translate,
    translate_with_rnn,
)

STATES = [
    (generate, "m.states[0].shape[:] = [2**30, 16, 4]", "has 68,719,476,736 elements, over 4,294,967,296"),
    (caption, "m.image.grid_rows = 4", "holds 12 source positions; 16 are needed"),
    (caption, "m.image.num_class_tokens = 2", "holds 12 source positions; 14 are needed"),
    (translate, "m.text.max_source_tokens = 13", "holds 12 source positions; 13 are needed"),
    (generate, "m.text.max_total_tokens = 15", "holds 16 tokens; text.max_total_tokens is 15"),
    (generate, "del m.states[:]", "states are missing"),
    (classify_text, "m.states.add()", "states are for tasks that produce text"),
    (tag, "m.states.add()", "states are for tasks that produce text"),
    (generate, "m.states[0].past = ''", "a state has no past"),
    (generate, "m.states[0].present = ''", "has no present, and is no memory"),
    (translate_with_rnn, "m.states[0].present = ''", "has no present, and is no memory"),
    (translate, "m.states[1].past = m.states[0].past", "share a port"),
    (generate, "m.states[0].kind = 0", "unknown kind 0"),
    (generate, "m.states[0].shape[0] = 0", "zero or no sizes"),
    (generate, "m.states[0].length_axis = 3", "length_axis 3 outside its shape"),
    (
        generate,
        "m.states[0].length_axis = 2",
        "is a kv_cache and not [kv_heads, max_len, head_dim] with length_axis 1",
    ),
    (generate, "m.states[0].data_type = 2", "not of the bundle's precision"),
    (generate, "m.states[0].data_type = 6", "not of the bundle's precision"),
    (generate_mixed, "m.states[0].kind = 3", "a MIXED graph is not for a model with a recurrent state"),
    (translate_with_rnn, "m.precision = 4; m.states[0].data_type = 6", "not of the bundle's precision"),
    (generate, "m.precision = 8; m.states[0].data_type = 6", "not of the bundle's precision"),
    (translate, "m.states[0].encoder_output = 'x'", "not filled by an encoder"),
    (translate, "m.states[1].encoder_output = ''", "has no encoder_output"),
    (generate, "m.states[0].encoder_output = 'x'", "waits for an encoder"),
    (generate_paged, "m.states[0].kind = 1", "some states are of kind paged_cache and others are not"),
    (generate_paged, "m.states[0].shape[0] = 32", "blocks of two states have different numbers of tokens"),
    (
        generate_paged,
        "m.states[0].shape[0] = m.states[1].shape[0] = 24",
        "a block does not have a power of 2 of tokens, from 16 to 1024",
    ),
    (generate_paged, "m.states[0].data_type = 6", "blocks of two states have different data types"),
    (generate_paged, "m.states[0].length_axis = 1", "a paged_cache is not [block_tokens, kv_heads, head_dim]"),
    (generate_paged, "m.states[0].data_type = m.states[1].data_type = 1", "not of the bundle's precision"),
    (
        generate_paged,
        "m.precision = 1; m.states[0].data_type = m.states[1].data_type = 1",
        "a paged_cache is for fp16, bf16 and int4-fp16, not for fp32",
    ),
    (translate, "m.states[0].kind = 4", "a paged_cache is for generate"),
]


@pytest.mark.parametrize(("make", "change", "text"), STATES, ids=[f"{m.__name__}: {c}" for m, c, _ in STATES])
def test_states_that_do_not_fit_are_refused(tmp_path, make, change, text):
    """One has a shape, a type or a port that its kind does not have, or there are none or too many."""
    draft = make(tmp_path / "tiny" / "1")
    exec(change, {"m": draft.manifest})
    assert text in refused(draft.write())
