"""What com.microsoft::PagedAttention computes, in operators that a CPU has: it stands in for it in proofs.

It is written from the operator's description (get_all_operator_schema of ONNX Runtime 1.31), and not for speed. What
lies in places that hold no token of a row may be NaN.
"""

from collections.abc import Sequence

import onnx
from onnx import helper, inliner, parser

_DOMAIN = "weft.paged"
_OPSET = 21
# The operator's inputs that our graphs have, by what they are called below.
_PLACES = {
    "qkv": 0,
    "keys": 3,
    "values": 4,
    "ends": 5,
    "past": 6,
    "table": 7,
    "cos": 8,
    "sin": 9,
    "slots": 10,
    "query_gain": 12,
    "key_gain": 13,
    "key_scale": 14,
    "value_scale": 15,
}

_FUNCTION = """
<domain: "{domain}", opset_import: ["": {opset}]>
{name} ({inputs}) => (out, keys_out, values_out)
{{
    zero = Constant <value_int = 0> ()
    one = Constant <value_int = 1> ()
    firsts = Constant <value_ints = [0]> ()
    seconds = Constant <value_ints = [1]> ()
    lasts = Constant <value_ints = [-1]> ()
    far = Constant <value_ints = [9223372036854775807]> ()

    # Queries, keys and values of each token, in float32: [tokens, heads, head_dim].
    split = Constant <value_ints = [0, {all_heads}, {head_dim}]> ()
    sizes = Constant <value_ints = [{heads}, {kv_heads}, {kv_heads}]> ()
    projected = Reshape (qkv, split)
    wide = Cast <to = 1> (projected)
    query_0, key_0, value_0 = Split <axis = 1> (wide, sizes)

    # Of each row where its tokens begin and how many it has; of each token its row and its place: int64.
    limits = Cast <to = 7> (ends)
    before = Cast <to = 7> (past)
    starts = Slice (limits, firsts, lasts)
    stops = Slice (limits, seconds, far)
    lengths = Sub (stops, starts)
    total = Add (before, lengths)
    num_tokens = Shape <start = 0, end = 1> (qkv)
    num_tokens_0 = Squeeze (num_tokens)
    index = Range (zero, num_tokens_0, one)
    index_1 = Unsqueeze (index, seconds)
    ended = LessOrEqual (stops, index_1)
    ended_int = Cast <to = 7> (ended)
    row_or_none = ReduceSum <keepdims = 0> (ended_int, seconds)
    num_rows = Size (past)
    last_row = Sub (num_rows, one)
    row = Min (row_or_none, last_row)
    start_of_token = Gather (starts, row)
    within = Sub (index, start_of_token)
    before_token = Gather (before, row)
    place = Add (within, before_token)
{prologue}
    # Keys and values go where slots say.
    slots_int = Cast <to = 7> (slots)
    is_kept = GreaterOrEqual (slots_int, zero)
    kept = Compress <axis = 0> (slots_int, is_kept)
    block_tokens = Shape <start = 1, end = 2> (keys)
    block = Div (kept, block_tokens)
    offset = Mod (kept, block_tokens)
    block_1 = Unsqueeze (block, seconds)
    offset_1 = Unsqueeze (offset, seconds)
    target = Concat <axis = 1> (block_1, offset_1)
    key_kept = Compress <axis = 0> (key, is_kept)
{key_kept}
    keys_out = ScatterND (keys, target, key_cast)
    value_kept = Compress <axis = 0> (value_0, is_kept)
{value_kept}
    values_out = ScatterND (values, target, value_cast)

    # Each row's keys and values, zeros behind its last: [rows, kv_heads, places, head_dim].
    table_int = Cast <to = 7> (table)
    joined = Constant <value_ints = [0, -1, {kv_heads}, {head_dim}]> ()
    behind = Constant <value_ints = [2, 3]> ()
    nothing = Constant <value_float = 0.0> ()
    some_keys = Gather (keys_out, table_int)
    some_values = Gather (values_out, table_int)
    all_keys = Reshape (some_keys, joined)
    all_values = Reshape (some_values, joined)
    num_places = Shape <start = 1, end = 2> (all_keys)
    num_places_0 = Squeeze (num_places)
    spot = Range (zero, num_places_0, one)
    total_1 = Unsqueeze (total, seconds)
    is_real = Less (spot, total_1)
    is_real_2 = Unsqueeze (is_real, behind)
    nothing_like = CastLike (nothing, keys)
    real_keys = Where (is_real_2, all_keys, nothing_like)
    real_values = Where (is_real_2, all_values, nothing_like)
{keys_read}{values_read}
    row_keys = Transpose <perm = [0, 2, 3, 1]> (wide_keys)
    row_values = Transpose <perm = [0, 2, 1, 3]> (wide_values)

    # Each row's queries, as many as the row with most has: [rows, kv_heads, group * steps, head_dim].
    most = ReduceMax <keepdims = 0> (lengths)
    steps = Max (most, one)
    step = Range (zero, steps, one)
    start_1 = Unsqueeze (starts, seconds)
    from_any = Add (start_1, step)
    last_token = Sub (num_tokens_0, one)
    from_token = Min (from_any, last_token)
    row_query = Gather (query, from_token)
    grouped = Constant <value_ints = [0, 0, {kv_heads}, {group}, {head_dim}]> ()
    query_5 = Reshape (row_query, grouped)
    query_t = Transpose <perm = [0, 2, 3, 1, 4]> (query_5)
    merged = Constant <value_ints = [0, {kv_heads}, -1, {head_dim}]> ()
    query_4 = Reshape (query_t, merged)

    # A token sees what is not behind it.
    scale = Constant <value_float = {scale}> ()
    product = MatMul (query_4, row_keys)
    scores_4 = Mul (product, scale)
    steps_1 = Unsqueeze (steps, firsts)
    fixed = Constant <value_ints = [0, {kv_heads}, {group}]> ()
    shape_5 = Concat <axis = 0> (fixed, steps_1, num_places)
    scores_5 = Reshape (scores_4, shape_5)
{cap}
    before_1 = Unsqueeze (before, seconds)
    query_place = Add (before_1, step)
    query_place_2 = Unsqueeze (query_place, lasts)
    is_before = LessOrEqual (spot, query_place_2)
{window}
    middle = Constant <value_ints = [1, 2]> ()
    is_seen_5 = Unsqueeze (is_seen, middle)
    unseen = Constant <value_float = -1e30> ()
    seen_scores = Where (is_seen_5, scores, unseen)
    weights_5 = Softmax <axis = -1> (seen_scores)
    flat = Constant <value_ints = [0, {kv_heads}, -1]> ()
    shape_4 = Concat <axis = 0> (flat, num_places)
    weights = Reshape (weights_5, shape_4)
    mixed_4 = MatMul (weights, row_values)
    tail = Constant <value_ints = [{head_dim}]> ()
    shape_out = Concat <axis = 0> (fixed, steps_1, tail)
    mixed_5 = Reshape (mixed_4, shape_out)
    mixed_t = Transpose <perm = [0, 3, 1, 2, 4]> (mixed_5)

    # Back to the tokens as they were packed.
    packed = Constant <value_ints = [-1, {width}]> ()
    mixed = Reshape (mixed_t, packed)
    first_of_row = Mul (row, steps)
    last_step = Sub (steps, one)
    within_row = Min (within, last_step)
    source = Add (first_of_row, within_row)
    attended = Gather (mixed, source)
    out = CastLike (attended, qkv)
}}
"""
_KEPT = "    {name}_cast = CastLike ({name}_kept, {name}s)\n"
_READ = "    wide_{name}s = Cast <to = 1> (real_{name}s)\n"
# Levels of 8 bits, with a scale for each channel: [kv_heads, 1, head_dim].
_ROUNDED = """
    {name}_channels = Squeeze ({name}_scale, seconds)
    {name}_steps = Div ({name}_kept, {name}_channels)
    {name}_level = Round ({name}_steps)
    {name}_least = Constant <value_float = -128.0> ()
    {name}_most = Constant <value_float = 127.0> ()
    {name}_clipped = Clip ({name}_level, {name}_least, {name}_most)
    {name}_cast = CastLike ({name}_clipped, {name}s)
"""
_WIDENED = """
    {name}_levels = Cast <to = 1> (real_{name}s)
    wide_{name}s = Mul ({name}_levels, {name}_channels)
"""
_NORM = """
    {name}_eps = Constant <value_float = {eps}> ()
    {name}_square = Mul ({given}, {given})
    {name}_mean = ReduceMean <keepdims = 1> ({name}_square, lasts)
    {name}_more = Add ({name}_mean, {name}_eps)
    {name}_root = Sqrt ({name}_more)
    {name}_even = Div ({given}, {name}_root)
    {name}_gain_wide = Cast <to = 1> ({name}_gain)
    {name}_normed = Mul ({name}_even, {name}_gain_wide)
"""
_TURN = """
    cos_wide = Cast <to = 1> (cos)
    sin_wide = Cast <to = 1> (sin)
    num_angles = Shape <start = 0, end = 1> (cos)
    last_angle = Sub (num_angles, one)
    angle = Min (place, last_angle)
    cos_token = Gather (cos_wide, angle)
    sin_token = Gather (sin_wide, angle)
    cos_head = Unsqueeze (cos_token, seconds)
    sin_head = Unsqueeze (sin_token, seconds)
"""
_TURNED = """
    {name}_first, {name}_second = Split <axis = -1, num_outputs = 2> ({given})
    {name}_a = Mul ({name}_first, cos_head)
    {name}_b = Mul ({name}_second, sin_head)
    {name}_c = Mul ({name}_second, cos_head)
    {name}_d = Mul ({name}_first, sin_head)
    {name}_left = Sub ({name}_a, {name}_b)
    {name}_right = Add ({name}_c, {name}_d)
    {name}_turned = Concat <axis = -1> ({name}_left, {name}_right)
"""
_CAP = """
    softcap = Constant <value_float = {softcap}> ()
    scores_small = Div (scores_5, softcap)
    scores_bent = Tanh (scores_small)
    scores = Mul (scores_bent, softcap)
"""
_WINDOW = """
    window = Constant <value_int = {window}> ()
    first_out = Sub (query_place_2, window)
    is_near = Greater (spot, first_out)
    is_seen = And (is_before, is_near)
"""


def call_stand_ins(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Make each of these nodes a call of a function of the model, in place. `inline` puts its nodes there.

    They are all nodes of the operator.
    """
    shapes = {port.name: [axis.dim_value for axis in port.type.tensor_type.shape.dim] for port in model.graph.input}
    for index, node in enumerate(nodes):
        given = {name: node.input[at] for name, at in _PLACES.items() if at < len(node.input) and node.input[at]}
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        name = f"paged_attention_{index}"
        text = _text(name, list(given), attributes, head_dim=shapes[given["keys"]][-1])
        model.functions.append(parser.parse_function(text))
        node.CopyFrom(helper.make_node(name, list(given.values()), list(node.output), node.name, domain=_DOMAIN))
    model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the nodes of its functions in the place of their calls."""
    inlined: onnx.ModelProto = inliner.inline_local_functions(model)
    return inlined


def _text(name: str, inputs: list[str], attributes: dict[str, float], head_dim: int) -> str:
    heads, kv_heads = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
    prologue, query, key = "", "query_0", "key_0"
    is_rounded = "key_scale" in inputs
    if "query_gain" in inputs:
        eps = attributes["qk_norm_epsilon"]
        prologue += _NORM.format(name="query", given=query, eps=eps) + _NORM.format(name="key", given=key, eps=eps)
        query, key = "query_normed", "key_normed"
    if attributes.get("do_rotary"):
        prologue += _TURN + _TURNED.format(name="query", given=query) + _TURNED.format(name="key", given=key)
        query, key = "query_turned", "key_turned"
    prologue += f"\n    query = Identity ({query})\n    key = Identity ({key})\n"
    softcap, window = attributes.get("softcap", 0.0), attributes.get("local_window_size", -1)
    return _FUNCTION.format(
        domain=_DOMAIN,
        opset=_OPSET,
        name=name,
        inputs=", ".join(inputs),
        all_heads=heads + 2 * kv_heads,
        heads=heads,
        kv_heads=kv_heads,
        group=heads // kv_heads,
        head_dim=head_dim,
        width=heads * head_dim,
        scale=attributes.get("scale") or head_dim**-0.5,
        prologue=prologue,
        key_kept=(_ROUNDED if is_rounded else _KEPT).format(name="key"),
        value_kept=(_ROUNDED if is_rounded else _KEPT).format(name="value"),
        keys_read=(_WIDENED if is_rounded else _READ).format(name="key"),
        values_read=(_WIDENED if is_rounded else _READ).format(name="value"),
        cap=_CAP.format(softcap=softcap) if softcap else "\n    scores = Identity (scores_5)\n",
        window=_WINDOW.format(window=window) if window > 0 else "\n    is_seen = Identity (is_before)\n",
    )
