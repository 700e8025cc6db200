"""What a manifest must say for its task, before any file but bundle.json is looked at."""

import math

from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle_limits import MAX_GRID, MAX_READ_BYTES, MAX_STATE_ELEMENTS
from weft_server.decoding import resolve_decoding
from weft_server.errors import BundleError, InvalidRequest

_ROLES = {
    common_pb2.TASK_TRANSLATE: {bundle_pb2.GRAPH_ROLE_ENCODER, bundle_pb2.GRAPH_ROLE_DECODER},
    common_pb2.TASK_CAPTION: {bundle_pb2.GRAPH_ROLE_ENCODER, bundle_pb2.GRAPH_ROLE_DECODER},
    common_pb2.TASK_GENERATE: {bundle_pb2.GRAPH_ROLE_DECODER},
    common_pb2.TASK_CLASSIFY_TEXT: {bundle_pb2.GRAPH_ROLE_CLASSIFIER},
    common_pb2.TASK_CLASSIFY_IMAGE: {bundle_pb2.GRAPH_ROLE_CLASSIFIER},
    common_pb2.TASK_TAG: {bundle_pb2.GRAPH_ROLE_TAGGER},
}
TAKES_IMAGE = {common_pb2.TASK_CAPTION, common_pb2.TASK_CLASSIFY_IMAGE}
PRODUCES_TEXT = {common_pb2.TASK_TRANSLATE, common_pb2.TASK_CAPTION, common_pb2.TASK_GENERATE}

STATE_DATA_TYPE = {
    bundle_pb2.PRECISION_FP32: bundle_pb2.DATA_TYPE_FLOAT32,
    bundle_pb2.PRECISION_FP16: bundle_pb2.DATA_TYPE_FLOAT16,
    bundle_pb2.PRECISION_BF16: bundle_pb2.DATA_TYPE_BFLOAT16,
    bundle_pb2.PRECISION_INT8: bundle_pb2.DATA_TYPE_FLOAT32,
}


def require(condition: object, sentence: str) -> None:
    """Refuse the bundle with one sentence unless the condition holds."""
    if not condition:
        raise BundleError(sentence)


def verify_manifest(manifest: bundle_pb2.BundleManifest) -> None:
    """Refuse a manifest whose parts don't fit its task or each other."""
    require(manifest.task in _ROLES, f"task {manifest.task} is unknown")
    require(manifest.precision in STATE_DATA_TYPE, f"precision {manifest.precision} is unknown")
    _verify_roles(manifest)
    _verify_attention(manifest)
    task, files = manifest.task, {file.path for file in manifest.files}
    _verify_sizes(manifest)
    require(task == common_pb2.TASK_CLASSIFY_IMAGE or manifest.HasField("text"), "text is missing")
    require((task in TAKES_IMAGE) == manifest.HasField("image"), "image is for tasks that take one, and needed there")
    for which, path in (("source", manifest.text.source_tokenizer), ("target", manifest.text.target_tokenizer)):
        require(not path or path in files, f"{which} tokenizer {path!r} is not a file of the bundle")
    if task in TAKES_IMAGE:
        _verify_image(manifest.image)
    else:
        _verify_source(manifest.text, files, needs_limit=task != common_pb2.TASK_GENERATE)
    _verify_words(manifest)
    if task in PRODUCES_TEXT:
        _verify_target(manifest, files)
        _verify_states(manifest)
    else:
        require(manifest.labels, "labels are missing")
        require(len(set(manifest.labels)) == len(manifest.labels), "labels are not distinct")
        require(not manifest.states, "states are for tasks that produce text")
    _verify_golden(manifest, files)
    if manifest.HasField("quality"):
        _verify_quality(manifest.quality)


def _verify_sizes(manifest: bundle_pb2.BundleManifest) -> None:
    """Refuse a file that would be read as a whole and is too large for it."""
    text = manifest.text
    read = {graph.path for graph in manifest.graphs}
    read |= {text.source_tokenizer, text.target_tokenizer, manifest.golden.image_path}
    for file in manifest.files:
        fits = file.path not in read or file.size_bytes <= MAX_READ_BYTES
        require(fits, f"{file.path} has {file.size_bytes:,} bytes; of such a file at most {MAX_READ_BYTES:,} are read")


def _verify_roles(manifest: bundle_pb2.BundleManifest) -> None:
    roles = [graph.role for graph in manifest.graphs]
    require(len(set(roles)) == len(roles), "a graph role is there twice")
    needed = _ROLES[manifest.task]
    for role in needed - set(roles):
        raise BundleError(f"task {common_pb2.Task.Name(manifest.task)} needs a {_role_name(role)} graph")
    allowed = needed | {bundle_pb2.GRAPH_ROLE_EXPLAIN}
    if manifest.task == common_pb2.TASK_GENERATE:
        allowed.add(bundle_pb2.GRAPH_ROLE_MIXED)
    for role in set(roles) - allowed:
        raise BundleError(f"task {common_pb2.Task.Name(manifest.task)} has no {_role_name(role)} graph")


def _role_name(role: int) -> str:
    names = dict(bundle_pb2.GraphRole.items())
    return next((name.removeprefix("GRAPH_ROLE_") for name, value in names.items() if value == role), str(role))


def _verify_attention(manifest: bundle_pb2.BundleManifest) -> None:
    explains = any(graph.role == bundle_pb2.GRAPH_ROLE_EXPLAIN for graph in manifest.graphs)
    stated = manifest.HasField("attention")
    require(explains == stated, "attention is for bundles with an EXPLAIN graph, and needed there")
    heads, default = manifest.attention.heads, manifest.attention.default_layer
    require(not explains or heads, "attention.heads is empty")
    require(all(heads), "attention.heads has a layer without heads")
    in_range = not manifest.attention.HasField("default_layer") or default < len(heads)
    require(in_range, f"attention.default_layer {default} is not one of {len(heads)} layers")


def _verify_words(manifest: bundle_pb2.BundleManifest) -> None:
    prefixes = manifest.text.prefixes
    require(not prefixes or manifest.task == common_pb2.TASK_TRANSLATE, "text.prefixes are for translate")
    require(all(prefixes), "text.prefixes has an empty one")
    require(len(set(prefixes)) == len(prefixes), "text.prefixes are not distinct")
    for name, tags in (("source", manifest.text.source_languages), ("target", manifest.text.target_languages)):
        require(all(tags) and len(set(tags)) == len(tags), f"text.{name}_languages has an empty one, or one twice")


def _verify_source(text: bundle_pb2.TextSpec, files: set[str], *, needs_limit: bool) -> None:
    require(text.source_tokenizer in files, f"source tokenizer {text.source_tokenizer!r} is not a file of the bundle")
    require(text.source_vocab_size > 0, "text.source_vocab_size is missing")
    require(text.pad_id < text.source_vocab_size, f"text.pad_id {text.pad_id} is outside the source vocabulary")
    require(not needs_limit or text.max_source_tokens > 0, "text.max_source_tokens is missing")


def _verify_target(manifest: bundle_pb2.BundleManifest, files: set[str]) -> None:
    text = manifest.text
    vocab = text.target_vocab_size
    require(text.target_tokenizer in files, f"target tokenizer {text.target_tokenizer!r} is not a file of the bundle")
    require(vocab > 0, "text.target_vocab_size is missing")
    require(text.pad_id < vocab, f"text.pad_id {text.pad_id} is outside the target vocabulary")
    starts = manifest.task != common_pb2.TASK_GENERATE
    require(starts == text.HasField("start_id"), "text.start_id is for translate and caption, and needed there")
    require(text.start_id < vocab, f"text.start_id {text.start_id} is outside the target vocabulary")
    require(all(end < vocab for end in text.end_ids), "text.end_ids has an id outside the target vocabulary")
    require(0 < text.max_new_tokens <= text.max_total_tokens, "text.max_new_tokens is not in [1, max_total_tokens]")
    room = starts or text.max_total_tokens > 1
    require(room, "text.max_total_tokens is 1, which leaves a prompt no room for a new token")
    default = manifest.decoding.max_new_tokens
    require(0 < default <= text.max_new_tokens, "decoding.max_new_tokens is not in [1, text.max_new_tokens]")
    more = manifest.decoding.min_new_tokens or manifest.decoding.stop
    require(not more, "decoding has min_new_tokens or stop, which are a request's to ask for")
    try:
        resolve_decoding(common_pb2.Decoding(), manifest, 0)
    except InvalidRequest as error:
        raise BundleError(error.message) from error


def _verify_image(image: bundle_pb2.ImageSpec) -> None:
    require(image.channels in {1, 3}, f"image.channels is {image.channels}, not 1 or 3")
    require(image.height * image.width, "image.height and width are missing")
    known = set(bundle_pb2.Resample.values()) - {bundle_pb2.RESAMPLE_UNSPECIFIED}
    require(image.resample in known, f"image.resample {image.resample} is unknown")
    for name, values in (("mean", image.mean), ("std", image.std)):
        require(len(values) == image.channels, f"image.{name} has {len(values)} values for {image.channels} channels")
    grid = image.grid_rows * image.grid_columns
    require(grid, "image.grid_rows and grid_columns are missing")
    require(grid <= MAX_GRID, f"image.grid_rows times grid_columns is {grid:,}, over {MAX_GRID:,}")


def _verify_states(manifest: bundle_pb2.BundleManifest) -> None:
    require(manifest.states, "states are missing")
    ports = [name for state in manifest.states for name in (state.past, state.present) if name]
    require(len(set(ports)) == len(ports), "two states share a port")
    for state in manifest.states:
        _verify_state(state, manifest)
    recurrent = any(state.kind == bundle_pb2.STATE_KIND_RECURRENT for state in manifest.states)
    mixes = any(graph.role == bundle_pb2.GRAPH_ROLE_MIXED for graph in manifest.graphs)
    require(not (recurrent and mixes), "a MIXED graph is not for a model with a recurrent state")


def _verify_state(state: bundle_pb2.StateTensor, manifest: bundle_pb2.BundleManifest) -> None:
    name = f"state {state.past!r}"
    kinds = set(bundle_pb2.StateKind.values()) - {bundle_pb2.STATE_KIND_UNSPECIFIED}
    require(state.kind in kinds, f"{name} is of unknown kind {state.kind}")
    allowed = {STATE_DATA_TYPE[manifest.precision]}
    if manifest.precision == bundle_pb2.PRECISION_INT8 and state.kind != bundle_pb2.STATE_KIND_RECURRENT:
        allowed.add(bundle_pb2.DATA_TYPE_INT8)
    require(state.data_type in allowed, f"{name} is not of the bundle's precision")
    require(state.past, "a state has no past")
    returned = state.present or state.kind == bundle_pb2.STATE_KIND_MEMORY
    require(returned, f"{name} has no present, and is no memory")
    require(state.shape and all(state.shape), f"{name} has a zero or no sizes in its shape")
    elements = math.prod(state.shape)
    require(elements <= MAX_STATE_ELEMENTS, f"{name} has {elements:,} elements, over {MAX_STATE_ELEMENTS:,}")
    has_encoder = manifest.task != common_pb2.TASK_GENERATE
    require(has_encoder or not state.encoder_output, f"{name} waits for an encoder that is not there")
    if state.kind == bundle_pb2.STATE_KIND_RECURRENT:
        return
    require(state.length_axis < len(state.shape), f"{name} has length_axis {state.length_axis} outside its shape")
    capacity = state.shape[state.length_axis]
    if state.kind == bundle_pb2.STATE_KIND_KV_CACHE:
        total = manifest.text.max_total_tokens
        require(not state.encoder_output, f"{name} is a kv_cache and is not filled by an encoder")
        shaped = len(state.shape) == 3 and state.length_axis == 1
        require(shaped, f"{name} is a kv_cache and not [kv_heads, max_len, head_dim] with length_axis 1")
        require(capacity == total, f"{name} holds {capacity} tokens; text.max_total_tokens is {total}")
    else:
        grid = manifest.image.grid_rows * manifest.image.grid_columns
        source = grid if manifest.task == common_pb2.TASK_CAPTION else manifest.text.max_source_tokens
        require(state.encoder_output, f"{name} is a memory and has no encoder_output")
        require(capacity >= source, f"{name} holds {capacity} source positions; {source} are needed")


def _verify_golden(manifest: bundle_pb2.BundleManifest, files: set[str]) -> None:
    require(manifest.HasField("golden"), "golden is missing")
    golden, task = manifest.golden, manifest.task
    if task in TAKES_IMAGE:
        require(golden.image_path in files, f"golden image {golden.image_path!r} is not a file of the bundle")
    else:
        require(golden.text, "golden.text is missing")
    if task in PRODUCES_TEXT:
        require(golden.token_ids, "golden.token_ids are missing")
        require(not golden.probabilities, "golden.probabilities are for tasks that classify or tag")
        fits = len(golden.token_ids) <= manifest.text.max_new_tokens
        require(fits, "golden.token_ids are more than text.max_new_tokens")
        in_vocab = all(token < manifest.text.target_vocab_size for token in golden.token_ids)
        require(in_vocab, "golden.token_ids has an id outside the target vocabulary")
    else:
        require(not golden.token_ids, "golden.token_ids are for tasks that produce text")
        _verify_distributions(manifest)


def _verify_distributions(manifest: bundle_pb2.BundleManifest) -> None:
    values, width = list(manifest.golden.probabilities), len(manifest.labels)
    if manifest.task == common_pb2.TASK_TAG:
        whole = values and len(values) % width == 0
        require(whole, f"golden has {len(values)} probabilities, which are no rows of {width} labels")
        fits = len(values) // width <= manifest.text.max_source_tokens
        require(fits, "golden has probabilities of more tokens than text.max_source_tokens")
    else:
        require(len(values) == width, f"golden has {len(values)} probabilities for {width} labels")
    for start in range(0, len(values), width):
        row = values[start : start + width]
        sums = math.isclose(math.fsum(row), 1, abs_tol=1e-2)
        require(sums and min(row) >= 0, "golden.probabilities are no distribution")


def _verify_quality(quality: bundle_pb2.Quality) -> None:
    require(quality.metric and quality.num_examples, "quality.metric and num_examples are missing")
    # The exporter's rule too: exactly the share is enough, whatever the product is rounded to.
    enough = quality.score >= quality.min_share * quality.fp32_score - 1e-9
    require(enough, f"quality.score {quality.score:g} is less than its min_share of fp32_score")
