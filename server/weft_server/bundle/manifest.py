"""What a manifest must say for its task, before any file but bundle.json is looked at."""

import math
from collections.abc import Sequence

from weft_proto.bundle_rules import (
    EXTRACT_LABELS,
    FLOAT_TYPE,
    HOST_PRECISIONS,
    MAX_GRID,
    MAX_READ_BYTES,
    MAX_TEMPLATE_BYTES,
    is_good_enough,
    label_text_fault,
    only_asked,
)
from weft_proto.ctc import ctc_fault, num_labels_of
from weft_proto.languages import check_languages
from weft_proto.paging import is_paged
from weft_proto.prompts import prompts_fault
from weft_proto.questions import begins_filled, encoder_asks, picture_places, question_fault
from weft_proto.resizing import resizing_fault
from weft_proto.sight import sees
from weft_proto.sound import audio_fault, window_samples
from weft_proto.tasks import TASKS, Task
from weft_proto.tiling import tiling_fault
from weft_proto.token_vectors import has_token_vectors, row_width, sides_fault, tokens_fault
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle.bidirectional import verify_bidirectional
from weft_server.bundle.state_tensors import verify_states
from weft_server.errors import BundleError, require

_SCORINGS = set(common_pb2.LabelScoring.values())
_POOLINGS = set(bundle_pb2.Pooling.values()) - {bundle_pb2.POOLING_UNSPECIFIED}
_RESAMPLES = set(bundle_pb2.Resample.values()) - {bundle_pb2.RESAMPLE_UNSPECIFIED}


def verify_manifest(manifest: bundle_pb2.BundleManifest) -> None:
    """Refuse a manifest whose parts don't fit its task or each other."""
    require(manifest.task in TASKS, f"task {manifest.task} is unknown")
    require(manifest.precision in FLOAT_TYPE, f"precision {manifest.precision} is unknown")
    task = TASKS[manifest.task]
    files = {file.path for file in manifest.files}

    _verify_roles(manifest, task)
    _verify_attention(manifest)
    _verify_sizes(manifest)

    require(not task.has_text or manifest.HasField("text"), "text is missing")
    seeing = sees(manifest)
    wanted = (task.takes_image or seeing) == manifest.HasField("image")
    require(wanted, "image is for tasks that take one and for bundles with an IMAGE_ENCODER graph, and needed there")
    wanted = task.takes_audio == manifest.HasField("audio")
    require(wanted, "audio is for tasks that take a recording, and needed there")
    _verify_tokenizers(manifest.text, files)

    _verify_sight(manifest, seeing=seeing)
    verify_bidirectional(manifest, seeing=seeing)
    if task.takes_image:
        _verify_image(manifest.image, task, may_lie_nowhere=encoder_asks(manifest.text))
        if task.takes_question:
            _verify_source(manifest.text, files, task)
            begun = picture_places(manifest.image) if begins_filled(manifest.states) else 0
            fault = question_fault(manifest.text, begun)
            require(fault is None, str(fault))
    if task.takes_audio:
        hears = task.labels_frames
        fault = ctc_fault(manifest.audio, len(manifest.labels)) if hears else audio_fault(manifest.audio, manifest.text)
        require(fault is None, str(fault))
    if task.takes_text:
        _verify_source(manifest.text, files, task)
    _verify_words(manifest.text, task)
    _verify_pairs(manifest, task)
    _verify_mask(manifest.text, task)
    _verify_asking(manifest.text, task)
    if manifest.text.HasField("chat"):
        require(task.takes_prompt, "text.chat is for generate")
        template = manifest.text.chat.template
        require(template in files, f"the template {template!r} of text.chat is not a file of the bundle")

    if task.writes_text:
        _verify_target(manifest, files, task)
    if task.has_labels:
        _verify_labels(manifest.labels)
    _verify_embedding(manifest, task)
    _verify_matching(manifest, task)
    verify_states(manifest)
    if manifest.HasField("adapters"):
        _verify_adapters(manifest)

    _verify_golden(manifest, files, task)
    if manifest.HasField("quality"):
        _verify_quality(manifest.quality)


def _verify_roles(manifest: bundle_pb2.BundleManifest, task: Task) -> None:
    roles = [graph.role for graph in manifest.graphs]
    require(len(set(roles)) == len(roles), "a graph role is there twice")
    name = common_pb2.Task.Name(manifest.task)
    for role in task.needs - set(roles):
        raise BundleError(f"task {name} needs a {_role_name(role)} graph")
    half = manifest.precision not in HOST_PRECISIONS
    require(not half or bundle_pb2.GRAPH_ROLE_SCORE not in roles, "a SCORE graph is not for fp16, bf16 and int4-fp16")
    for role in set(roles) - task.needs - task.may_have - {bundle_pb2.GRAPH_ROLE_EXPLAIN}:
        raise BundleError(f"task {name} has no {_role_name(role)} graph")


def _role_name(role: int) -> str:
    # A file may hold any number.
    names: dict[int, str] = {value: name.removeprefix("GRAPH_ROLE_") for name, value in bundle_pb2.GraphRole.items()}
    return names.get(role, str(role))


def _verify_attention(manifest: bundle_pb2.BundleManifest) -> None:
    explains = any(graph.role == bundle_pb2.GRAPH_ROLE_EXPLAIN for graph in manifest.graphs)
    stated = manifest.HasField("attention")
    require(explains == stated, "attention is for bundles with an EXPLAIN graph, and needed there")
    heads = manifest.attention.heads
    require(not explains or heads, "attention.heads is empty")
    require(all(heads), "attention.heads has a layer without heads")
    default = manifest.attention.default_layer
    in_range = not manifest.attention.HasField("default_layer") or default < len(heads)
    require(in_range, f"attention.default_layer {default} is not one of {len(heads)} layers")


def _verify_adapters(manifest: bundle_pb2.BundleManifest) -> None:
    require(manifest.precision in HOST_PRECISIONS, "adapters are not for a precision of devices")
    recurs = any(state.kind == bundle_pb2.STATE_KIND_RECURRENT for state in manifest.states)
    require(not recurs, "adapters are not for a model with a recurrent state")
    names = [layer.name for layer in manifest.adapters.layers]
    require(names and all(names), "adapters.layers has no layer, or one without a name")
    require(len(set(names)) == len(names), "adapters.layers has a name twice")
    sized = all(layer.inputs and layer.outputs and layer.rank for layer in manifest.adapters.layers)
    require(sized, "adapters.layers has a layer without inputs, outputs or rank")


def _verify_sizes(manifest: bundle_pb2.BundleManifest) -> None:
    """Refuse a file that would be read as a whole and is too large for it."""
    text = manifest.text
    read = {graph.path for graph in manifest.graphs}
    read |= {text.source_tokenizer, text.target_tokenizer, manifest.golden.image_path, manifest.golden.audio_path}
    for file in manifest.files:
        fits = file.path not in read or file.size_bytes <= MAX_READ_BYTES
        require(fits, f"{file.path} has {file.size_bytes:,} bytes; of such a file at most {MAX_READ_BYTES:,} are read")
        fits = file.path != text.chat.template or file.size_bytes <= MAX_TEMPLATE_BYTES
        require(
            fits, f"{file.path} has {file.size_bytes:,} bytes; of a template at most {MAX_TEMPLATE_BYTES:,} are read"
        )


def _verify_tokenizers(text: bundle_pb2.TextSpec, files: set[str]) -> None:
    for which, path in (("source", text.source_tokenizer), ("target", text.target_tokenizer)):
        require(not path or path in files, f"{which} tokenizer {path!r} is not a file of the bundle")


def _verify_image(image: bundle_pb2.ImageSpec, task: Task, *, may_lie_nowhere: bool = False) -> None:
    require(image.channels in {1, 3}, f"image.channels is {image.channels}, not 1 or 3")
    require(image.height * image.width, "image.height and width are missing")
    require(image.resample in _RESAMPLES, f"image.resample {image.resample} is unknown")
    for name, values in (("mean", image.mean), ("std", image.std)):
        require(len(values) == image.channels, f"image.{name} has {len(values)} values for {image.channels} channels")
    grid = image.grid_rows * image.grid_columns
    lies_nowhere = may_lie_nowhere and image.num_class_tokens and not (image.grid_rows or image.grid_columns)
    require(grid or lies_nowhere, "image.grid_rows and grid_columns are missing")
    require(grid <= MAX_GRID, f"image.grid_rows times grid_columns is {grid:,}, over {MAX_GRID:,}")
    fault = resizing_fault(image)
    require(fault is None, str(fault))
    require(task.takes_prompt or not image.HasField("tiling"), "image.tiling is for generate")
    fault = tiling_fault(image) if image.HasField("tiling") else None
    require(fault is None, str(fault))
    fits = task.writes_text or not image.num_class_tokens
    require(fits, "image.num_class_tokens are of a memory, for caption and answer")


def _verify_source(text: bundle_pb2.TextSpec, files: set[str], task: Task) -> None:
    require(text.source_tokenizer in files, f"source tokenizer {text.source_tokenizer!r} is not a file of the bundle")
    require(text.source_vocab_size > 0, "text.source_vocab_size is missing")
    require(text.pad_id < text.source_vocab_size, f"text.pad_id {text.pad_id} is outside the source vocabulary")
    require(task.takes_prompt or text.max_source_tokens > 0, "text.max_source_tokens is missing")


def _verify_pairs(manifest: bundle_pb2.BundleManifest, task: Task) -> None:
    divided = manifest.text.HasField("separator_id")
    require(task.takes_pair or not divided, "text.separator_id is for classify_text and extract")
    require(divided or not task.takes_context, "text.separator_id is missing")
    known = manifest.text.separator_id < max(1, manifest.text.source_vocab_size)
    require(known, f"text.separator_id {manifest.text.separator_id} is outside the source vocabulary")
    require(manifest.scoring in _SCORINGS, f"scoring {manifest.scoring} is unknown")
    scores = task.takes_pair or task.matches or manifest.task == common_pb2.TASK_CLASSIFY_IMAGE
    require(scores or not manifest.scoring, "scoring is for classify_text, classify_image, extract and match")
    if task.takes_context:
        is_identity = manifest.scoring == common_pb2.LABEL_SCORING_IDENTITY
        require(is_identity, "scoring must be LABEL_SCORING_IDENTITY for extract")
        require(tuple(manifest.labels) == EXTRACT_LABELS, f"labels must be {' and '.join(EXTRACT_LABELS)} for extract")


def _verify_mask(text: bundle_pb2.TextSpec, task: Task) -> None:
    require(text.HasField("mask_id") == task.fills_masks, "text.mask_id is for fill_mask, and needed there")
    known = text.mask_id < max(1, text.source_vocab_size)
    require(known, f"text.mask_id {text.mask_id} is outside the source vocabulary")


def _verify_sight(manifest: bundle_pb2.BundleManifest, *, seeing: bool) -> None:
    text = manifest.text
    stated = text.HasField("image_id")
    require(stated == seeing, "text.image_id is for bundles with an IMAGE_ENCODER graph, and needed there")
    if not seeing:
        return
    _verify_image(manifest.image, TASKS[manifest.task], may_lie_nowhere=True)
    require(text.image_id < text.source_vocab_size, f"text.image_id {text.image_id} is outside the source vocabulary")
    places = picture_places(manifest.image)
    fits = places + 1 < text.max_total_tokens
    require(fits, f"text.max_total_tokens is {text.max_total_tokens}; a picture alone has {places} places")
    roles = {graph.role for graph in manifest.graphs}
    for role in roles & {bundle_pb2.GRAPH_ROLE_MIXED, bundle_pb2.GRAPH_ROLE_SCORE}:
        raise BundleError(f"a bundle with an IMAGE_ENCODER graph has no {_role_name(role)} graph")
    require(not is_paged(manifest.states), "a bundle with an IMAGE_ENCODER graph has no caches in blocks")


def _verify_words(text: bundle_pb2.TextSpec, task: Task) -> None:
    prefixes = text.prefixes
    require(not prefixes or task.takes_prefix, "text.prefixes are for translate")
    require(all(prefixes), "text.prefixes has an empty one")
    require(len(set(prefixes)) == len(prefixes), "text.prefixes are not distinct")
    fault = prompts_fault(text, task)
    require(fault is None, str(fault))
    try:
        check_languages(text, task)
    except ValueError as error:
        raise BundleError(str(error)) from error


def _verify_target(manifest: bundle_pb2.BundleManifest, files: set[str], task: Task) -> None:
    text = manifest.text
    vocab = text.target_vocab_size
    require(text.target_tokenizer in files, f"target tokenizer {text.target_tokenizer!r} is not a file of the bundle")
    require(vocab > 0, "text.target_vocab_size is missing")
    require(text.pad_id < vocab, f"text.pad_id {text.pad_id} is outside the target vocabulary")

    stated = text.HasField("start_id")
    require(task.has_start == stated, "text.start_id is for tasks with an encoder, and needed there")
    require(text.start_id < vocab, f"text.start_id {text.start_id} is outside the target vocabulary")
    require(text.end_ids, "text.end_ids is empty")
    require(all(end < vocab for end in text.end_ids), "text.end_ids has an id outside the target vocabulary")

    require(0 < text.max_new_tokens <= text.max_total_tokens, "text.max_new_tokens is not in [1, max_total_tokens]")
    room = not task.takes_prompt or text.max_total_tokens > 1
    require(room, "text.max_total_tokens is 1, which leaves a prompt no room for a new token")

    default = manifest.decoding
    fits = 0 < default.max_new_tokens <= text.max_new_tokens
    require(fits, "decoding.max_new_tokens is not in [1, text.max_new_tokens]")
    fits = default.min_new_tokens <= default.max_new_tokens
    require(fits, "decoding.min_new_tokens is more than decoding.max_new_tokens")
    asked = only_asked(default)
    require(not asked, f"decoding has {asked}, which is a request's to ask for")


def _verify_labels(labels: Sequence[str]) -> None:
    require(labels, "labels are missing")
    require(len(set(labels)) == len(labels), "labels are not distinct")


def _verify_embedding(manifest: bundle_pb2.BundleManifest, task: Task) -> None:
    require(task.embeds == manifest.HasField("embedding"), "embedding is for tasks that embed, and needed there")
    spec = manifest.embedding
    require(not task.embeds or spec.dimensions, "embedding.dimensions is missing")
    require(not task.embeds or spec.pooling in _POOLINGS, f"embedding.pooling {spec.pooling} is unknown")
    fault = tokens_fault(spec, task) or sides_fault(manifest.text, task, has_rows=has_token_vectors(manifest))
    require(fault is None, str(fault))


def _verify_asking(text: bundle_pb2.TextSpec, task: Task) -> None:
    asks = encoder_asks(text) or text.may_ask_nothing
    require(task.takes_question or not asks, "text.question is for answer, and so is text.may_ask_nothing")


def _verify_matching(manifest: bundle_pb2.BundleManifest, task: Task) -> None:
    require(task.matches == manifest.HasField("matching"), "matching is for match, and needed there")
    require(not (task.matches and manifest.HasField("adapters")), "adapters are not for match")
    if task.matches:
        require(manifest.embedding.normalized, "embedding.normalized is false, and match compares by the cosine")
        require(manifest.matching.scale > 0, "matching.scale is missing")
        is_identity = manifest.scoring == common_pb2.LABEL_SCORING_IDENTITY
        require(not is_identity, "scoring must be LABEL_SCORING_SIGMOID for match, or unspecified")
        fault = label_text_fault(manifest.matching.label_text)
        require(fault is None, f"matching.label_text {fault}")


def _verify_golden(manifest: bundle_pb2.BundleManifest, files: set[str], task: Task) -> None:
    require(manifest.HasField("golden"), "golden is missing")
    golden = manifest.golden
    seeing = sees(manifest)
    if task.takes_image or seeing:
        require(golden.image_path in files, f"golden image {golden.image_path!r} is not a file of the bundle")
    elif task.takes_audio:
        require(golden.audio_path in files, f"golden recording {golden.audio_path!r} is not a file of the bundle")
    else:
        require(golden.text, "golden.text is missing")
    asks = task.takes_question or seeing
    require(asks == bool(golden.question), "golden.question is for who is asked about pictures, and needed there")
    speaks = golden.source_language or golden.target_language
    require(task.takes_language or task.takes_audio or not speaks, "golden has a language, which is for translate")
    require((task.embeds and not task.matches) or not golden.embedding, "golden.embedding is for tasks that embed")
    scored = task.has_labels or task.fills_masks or task.labels_frames
    require(scored or not golden.scores, "golden.scores are for tasks that classify, fill masks or label moments")
    has_labels = task.has_labels or task.matches
    require(has_labels or not golden.probabilities, "golden.probabilities are for tasks that classify, tag or match")
    require(task.matches or not golden.labels, "golden.labels are for match")
    gives_tokens = task.writes_text or task.fills_masks
    require(gives_tokens or not golden.token_ids, "golden.token_ids are for tasks that produce text or fill masks")
    if task.writes_text:
        _verify_tokens(golden, manifest.text)
    elif task.matches:
        _verify_matched(manifest)
    elif task.fills_masks:
        _verify_fillings(golden, manifest.text)
    elif task.labels_frames:
        fits = 0 < len(golden.scores) <= num_labels_of(manifest.audio, window_samples(manifest.audio))
        require(fits, "golden.scores are missing, or more than a window has moments")
    elif task.embeds:
        if has_token_vectors(manifest):
            _verify_rows(golden.embedding, manifest)
        else:
            _verify_vector(golden.embedding, manifest.embedding)
    else:
        _verify_distributions(manifest, task)


def _verify_tokens(golden: bundle_pb2.Golden, text: bundle_pb2.TextSpec) -> None:
    require(golden.token_ids, "golden.token_ids are missing")
    fits = len(golden.token_ids) <= text.max_new_tokens
    require(fits, "golden.token_ids are more than text.max_new_tokens")
    in_vocab = all(token < text.target_vocab_size for token in golden.token_ids)
    require(in_vocab, "golden.token_ids has an id outside the target vocabulary")


def _verify_fillings(golden: bundle_pb2.Golden, text: bundle_pb2.TextSpec) -> None:
    require(golden.token_ids, "golden.token_ids are missing")
    in_vocab = all(token < text.source_vocab_size for token in golden.token_ids)
    require(in_vocab, "golden.token_ids has an id outside the source vocabulary")
    count, wanted = len(golden.scores), len(golden.token_ids)
    require(count == wanted, f"golden has {count} scores for {wanted} token_ids")
    require(all(score <= 0 for score in golden.scores), "golden.scores are no log-probabilities")


def _verify_distributions(manifest: bundle_pb2.BundleManifest, task: Task) -> None:
    is_score = manifest.scoring == common_pb2.LABEL_SCORING_IDENTITY
    require(is_score or not manifest.golden.scores, "golden.scores are for LABEL_SCORING_IDENTITY")
    require(not (is_score and manifest.golden.probabilities), "golden.probabilities are not for LABEL_SCORING_IDENTITY")
    values = list(manifest.golden.scores if is_score else manifest.golden.probabilities)
    what, width = "scores" if is_score else "probabilities", len(manifest.labels)
    if task.labels_tokens:
        whole = values and len(values) % width == 0
        require(whole, f"golden has {len(values)} {what}, which are no rows of {width} labels")
        fits = len(values) // width <= manifest.text.max_source_tokens
        require(fits, f"golden has {what} of more tokens than text.max_source_tokens")
    else:
        require(len(values) == width, f"golden has {len(values)} {what} for {width} labels")
    if not is_score:
        for start in range(0, len(values), width):
            _verify_sum(values[start : start + width], manifest)


def _verify_sum(values: Sequence[float], manifest: bundle_pb2.BundleManifest) -> None:
    one_each = manifest.scoring == common_pb2.LABEL_SCORING_SIGMOID
    require(one_each or math.isclose(math.fsum(values), 1, abs_tol=1e-2), "golden.probabilities are no distribution")


def _verify_matched(manifest: bundle_pb2.BundleManifest) -> None:
    labels, values = manifest.golden.labels, manifest.golden.probabilities
    _verify_labels(labels)
    require(all(labels), "golden.labels has an empty one")
    require(len(labels) > 1, "golden has one label alone, which any model would give")
    require(len(values) == len(labels), f"golden has {len(values)} probabilities for {len(labels)} labels")
    _verify_sum(values, manifest)


def _verify_rows(values: Sequence[float], manifest: bundle_pb2.BundleManifest) -> None:
    width = row_width(manifest.embedding)
    whole = values and len(values) % width == 0
    require(whole, f"golden.embedding has {len(values)} numbers, which are no rows of {width}")
    fits = len(values) // width <= manifest.text.max_source_tokens
    require(fits, "golden.embedding is of more tokens than text.max_source_tokens")
    for start in range(0, len(values), width):
        _verify_vector(values[start : start + manifest.embedding.dimensions], manifest.embedding)


def _verify_vector(values: Sequence[float], spec: bundle_pb2.EmbeddingSpec) -> None:
    require(len(values) == spec.dimensions, f"golden.embedding has {len(values)} of {spec.dimensions} dimensions")
    length = math.hypot(*values)
    require(length, "golden.embedding is zero")
    fits = not spec.normalized or math.isclose(length, 1, abs_tol=1e-2)
    require(fits, f"golden.embedding has the length {length:.3g}, and embedding.normalized says 1")


def _verify_quality(quality: bundle_pb2.Quality) -> None:
    require(quality.metric and quality.num_examples, "quality.metric and num_examples are missing")
    enough = is_good_enough(quality.score, quality.fp32_score, quality.min_share)
    require(enough, f"quality.score {quality.score:g} is less than its min_share of fp32_score")
