"""Every metric of the server: name, kind, help, labels, buckets. The documentation follows it."""

from typing import NamedTuple

PREFIX = "weft_"
MODEL_LABELS = ("model", "version", "task")
# Roughly geometric, and with the values that service objectives are often written in.
SECONDS = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.45, 0.5, 0.75,
    1, 1.5, 2, 3, 5, 10, 30, 60, 120,
)  # fmt: skip
# Why a lane or a worker fails.
FAILURES = ("STEP_FAILED", "LANE_STUCK", "EXPLAIN_FAILED", "WORKER_STUCK", "OUT_OF_MEMORY")
# How calls end where the server is at fault.
FAULTS = ("INTERNAL", "UNKNOWN")
# What a model shows at 0 before it happens, by the names of counters: an alert looks at what grew.
AT_ZERO = {"requests_total": FAULTS, "failures_total": FAILURES}
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Spec(NamedTuple):
    """One metric. Its name is without the prefix. Its label is one beside model, version and task.

    Where it is not `per_model`, it has no other labels than its own, which may be several: "tenant, model".
    """

    kind: str
    name: str
    help: str
    label: str = ""
    buckets: tuple[float, ...] = ()
    per_model: bool = True


TABLE = (
    Spec(
        "counter",
        "requests_total",
        "RPCs that ended, by gRPC status code. Without a model if none was found.",
        "code",
    ),
    Spec("counter", "rejected_total", "RPCs that were refused or given up, by the reason in ErrorInfo.", "reason"),
    Spec(
        "counter",
        "failures_total",
        f"Lanes and workers that failed, by the reason in ErrorInfo: {', '.join(FAILURES[:-1])} or {FAILURES[-1]}.",
        "reason",
    ),
    Spec(
        "counter",
        "cancelled_total",
        "Sequences whose caller went away, by stage: queued, prefill, decode or explain.",
        "stage",
    ),
    Spec("counter", "finished_total", "Finished answers, by reason: stop, stop_string or length.", "reason"),
    Spec("counter", "prompt_tokens_total", "Input tokens of admitted requests. For a picture, its patches."),
    Spec("counter", "generated_tokens_total", "Tokens produced, those of all rows of a request."),
    Spec(
        "counter",
        "spec_decode_draft_tokens_total",
        "Tokens that a row drafted from its own prompt or source, and its answer.",
    ),
    Spec(
        "counter",
        "spec_decode_accepted_tokens_total",
        "The part of weft_spec_decode_draft_tokens_total that was right. Each saved a step.",
    ),
    Spec("counter", "wasted_tokens_total", "Tokens produced for answers that were cancelled, failed or too late."),
    Spec(
        "counter",
        "computed_tokens_total",
        "Input positions computed by encoders, prefill and batches that write no text, padding included.",
    ),
    Spec("counter", "padding_tokens_total", "The part of weft_computed_tokens_total that was padding."),
    Spec(
        "counter",
        "rows_read_whole_total",
        "Rows of which all logits were weighed, because the best did not decide: draw, rules, alternatives or "
        "min_new_tokens.",
        "why",
    ),
    Spec(
        "counter",
        "prefix_cache_lookups_total",
        "Prompts and sources looked up in the prefix cache, by result: hit or miss.",
        "result",
    ),
    Spec("counter", "prefix_cache_tokens_total", "Input tokens that were not read: the prefix cache held them."),
    Spec(
        "counter",
        "prefix_cache_evictions_total",
        "Pieces of prompts, or sources, that the prefix cache dropped for others.",
    ),
    Spec(
        "counter",
        "label_cache_lookups_total",
        "Labels of requests whose vectors were looked up, by result: hit or miss.",
        "result",
    ),
    Spec("counter", "label_cache_evictions_total", "Vectors of labels that were dropped for others."),
    Spec(
        "counter",
        "picture_cache_lookups_total",
        "Pictures in prompts whose features were looked up, by result: hit or miss.",
        "result",
    ),
    Spec("counter", "picture_cache_evictions_total", "Features of pictures that were dropped for others."),
    Spec(
        "counter",
        "preemptions_total",
        "Sequences that gave up their blocks of a paged cache to older ones, and were read again later.",
    ),
    Spec("counter", "adapter_loads_total", "Adapters loaded, by result: ready or refused.", "result"),
    Spec("counter", "adapter_evictions_total", "Adapters that left the memory for others."),
    Spec(
        "counter",
        "tenant_requests_total",
        "Requests of each name of the tokens file, however they ended. Without a model if none was found.",
        "tenant, model",
        per_model=False,
    ),
    Spec(
        "counter",
        "tenant_input_tokens_total",
        "Input tokens of a name's requests that a model began. A request that makes several calls has those of all.",
        "tenant, model",
        per_model=False,
    ),
    Spec(
        "counter",
        "tenant_output_tokens_total",
        "Tokens produced for a name's requests, in all rows, however they ended.",
        "tenant, model",
        per_model=False,
    ),
    Spec("counter", "model_loads_total", "Bundles loaded, by result: ready or refused.", "result", per_model=False),
    Spec(
        "counter",
        "credential_reloads_total",
        "Changed certificates and tokens that were read again, by result: taken, or refused and the old ones kept.",
        "result",
        per_model=False,
    ),
    Spec(
        "counter",
        "log_events_dropped_total",
        "Events of the log that were lost: their reader stood still, or they could not be written.",
        per_model=False,
    ),
    Spec(
        "counter",
        "messages_given_up_total",
        "Messages that did not come whole in time, or that others needed the room of.",
        per_model=False,
    ),
    Spec(
        "counter",
        "connections_given_up_total",
        "Connections that the server closed: their callers did not read, or called least while places were scarce.",
        per_model=False,
    ),
    Spec("gauge", "model_ready", "1 when the model answers requests."),
    Spec("gauge", "requests_queued", "Requests that were accepted and wait for a slot or a batch."),
    Spec("gauge", "queued_tokens", "Input tokens of the requests that wait."),
    Spec(
        "gauge",
        "oldest_queued_seconds",
        "How long the oldest request has waited that waits, or whose pictures are on the way. 0 when there is none.",
    ),
    Spec("gauge", "requests_running", "Requests that hold a slot or are in a batch."),
    Spec("gauge", "requests_explaining", "Finished answers that wait for their explanation."),
    Spec("gauge", "requests_constraining", "Requests that wait for their constraint to be built."),
    Spec("gauge", "requests_adapting", "Requests that wait for an adapter that is not loaded yet."),
    Spec("gauge", "requests_seeing", "Requests whose pictures are on the way to the model, or wait for that."),
    Spec("gauge", "decode_slots_used", "Decode slots held by a sequence."),
    Spec("gauge", "decode_slots_max", "All decode slots of the model."),
    Spec(
        "gauge",
        "kv_cache_utilization",
        "Share of the cache entries that hold a token, from 0 to 1. Of a paged cache, the share of its blocks that are "
        "held.",
    ),
    Spec(
        "gauge",
        "restarts_left",
        "How many lanes and workers may still fail before the server ends. OUT_OF_MEMORY does not count.",
    ),
    Spec("gauge", "adapters_resident", "Adapters of the model that are in memory."),
    Spec("gauge", "label_cache_bytes", "Bytes of the vectors of labels that are kept, at most 32 MiB."),
    Spec("gauge", "picture_cache_bytes", "Bytes of the features of pictures that are kept, at most 256 MiB."),
    Spec("gauge", "prefix_cache_bytes", "Bytes of the prefix cache that hold something."),
    Spec("gauge", "prefix_cache_max_bytes", "Bytes that the prefix cache may hold. 0 where there is none."),
    Spec(
        "gauge",
        "scheduler_last_step_timestamp_seconds",
        "Unix time of the last sign of life of the slowest lane.",
    ),
    Spec(
        "gauge",
        "device_claimed_bytes",
        "Bytes of a CUDA device that the models placed there take, by their weights and slots.",
        "device",
        per_model=False,
    ),
    Spec("gauge", "connections", "Open connections to the ports of gRPC.", per_model=False),
    Spec(
        "gauge", "calls_open", "Calls of gRPC whose answers are not out yet, probes and watches too.", per_model=False
    ),
    Spec("gauge", "health_watches", "Open watches of the health service.", per_model=False),
    Spec("gauge", "messages_receiving", "Messages of gRPC that have not come whole.", per_model=False),
    Spec(
        "gauge",
        "held_bytes",
        "Bytes of the messages of gRPC that are held until their answers are made.",
        per_model=False,
    ),
    Spec("gauge", "answers_sending", "Answers and parts of answers that their callers have not read.", per_model=False),
    Spec("gauge", "answers_sending_bytes", "Bytes of those.", per_model=False),
    Spec("gauge", "draining", "1 once the server drains, 0 before.", per_model=False),
    Spec(
        "gauge",
        "certificate_expiry_timestamp_seconds",
        "Unix time at which the server's certificate ends. 0 without TLS.",
        per_model=False,
    ),
    Spec("gauge", "build_info", "Always 1. The label holds the server's version.", "build_version", per_model=False),
    Spec(
        "histogram",
        "request_duration_seconds",
        "From the arrival of an RPC to its end, however it ends.",
        buckets=SECONDS,
    ),
    Spec("histogram", "preprocess_seconds", "Time to tokenize a text or to decode a picture.", buckets=SECONDS),
    Spec("histogram", "constraint_build_seconds", "Time to build a constraint that was accepted.", buckets=SECONDS),
    Spec(
        "histogram",
        "queue_time_seconds",
        "From arrival to admission. For a request that was never admitted, to its end.",
        buckets=SECONDS,
    ),
    Spec("histogram", "prefill_seconds", "From admission to the first token.", buckets=SECONDS),
    Spec("histogram", "time_to_first_token_seconds", "From arrival to the first token.", buckets=SECONDS),
    Spec(
        "histogram",
        "inter_token_latency_seconds",
        "Between two tokens of one row. A request has several if it searches or has several outputs. "
        "While a row is parked without blocks, it waits for its next token. "
        "Tokens of one run of drafts share its time.",
        buckets=SECONDS,
    ),
    Spec("histogram", "decode_step_seconds", "One model run of a decode step.", buckets=SECONDS),
    Spec(
        "histogram",
        "session_run_seconds",
        "One model run of a batch that writes no text.",
        buckets=SECONDS,
    ),
    Spec(
        "histogram",
        "explain_seconds",
        "One model run for an explanation. Its count is the number of explanations.",
        buckets=SECONDS,
    ),
    Spec("histogram", "batch_size", "Requests, or pictures of prompts, in a batch that writes no text.", buckets=ROWS),
    Spec("histogram", "decode_batch_size", "Rows in a decode step.", buckets=ROWS),
    # They are not called prompt_tokens and output_tokens: in OpenMetrics a counter x_total and a histogram x are one
    # name.
    Spec("histogram", "request_prompt_tokens", "Input tokens of an admitted request.", buckets=TOKENS),
    Spec(
        "histogram",
        "request_output_tokens",
        "Tokens produced for a request in all its rows, however it ended.",
        buckets=TOKENS,
    ),
)
