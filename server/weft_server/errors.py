"""What can go wrong with a request or a bundle. transport/status.py says which status a caller gets."""


class RequestError(Exception):
    """A request that ends without an answer, and what its caller can do about it.

    Attributes:
        reason: ErrorInfo.reason, UPPER_SNAKE_CASE, stable for programs to switch on.
        message: one sentence for people.
        field: path of the offending request field, or empty.
        retry_after_s: seconds after which the same request may succeed, or None when retrying is pointless.
    """

    def __init__(self, reason: str, message: str, *, field: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field
        self.retry_after_s = retry_after_s


class InvalidRequest(RequestError):
    """The request itself is wrong. The same request will always be refused.

    `message` says what is wrong with the field and goes on from its name: "must be at least 1".
    """

    def __init__(self, field: str, message: str, reason: str = "INVALID_FIELD") -> None:
        super().__init__(reason, f"{field} {message}" if field else message, field=field)


class ModelNotFound(RequestError):
    """The repository has no such model or version."""

    def __init__(self, message: str) -> None:
        super().__init__("MODEL_NOT_FOUND", message, field="model")


class AdapterNotFound(RequestError):
    """There is no such adapter beside the model's bundle."""

    def __init__(self, message: str) -> None:
        super().__init__("ADAPTER_NOT_FOUND", message, field="model.adapter")


class ServiceNotFound(RequestError):
    """A health check names a service that there is not."""

    _THERE_ARE = "there are live, accepting, model/NAME, those of the contracts, and '' for the whole server"

    def __init__(self, service: str) -> None:
        super().__init__(
            "SERVICE_NOT_FOUND", f"there is no service {service[:64]!r}: {self._THERE_ARE}", field="service"
        )


class MethodNotFound(RequestError):
    """The server has no such method."""

    def __init__(self, method: str) -> None:
        hint = ": it is at the admin port" if method.startswith("/weft.v1.ModelAdminService/") else ""
        super().__init__("METHOD_NOT_FOUND", f"there is no method {method[:128]!r} here{hint}")


class CannotDecompress(RequestError):
    """A message by HTTP is compressed, and this server reads none that are."""

    def __init__(self) -> None:
        super().__init__("COMPRESSED", "messages are taken uncompressed: send them with the encoding `identity`")


class Unauthenticated(RequestError):
    """Nobody knows who calls. TOKEN_MISSING, TOKEN_UNKNOWN or CERTIFICATE_UNKNOWN."""


class PermissionDenied(RequestError):
    """Who calls is known, and may not call this."""

    def __init__(self, name: str, role: str, what: str = "this") -> None:
        self.name = name
        super().__init__("ROLE_MISSING", f"{name!r} lacks the role {role}, which {what} needs")


class ModelNotAllowed(RequestError):
    """Who calls is known, and may not ask this model. Nothing is said of whether there is one."""

    def __init__(self, model: str) -> None:
        text = f"the caller's token does not open model {model[:128]!r}"
        super().__init__("MODEL_NOT_ALLOWED", text, field="model")


class PageRefused(RequestError):
    """A browser sends this for a page of an origin that may not call. It may say no origin: then "" is given."""

    def __init__(self, origin: str) -> None:
        pages = origin[:128] or "other sites"
        super().__init__("ORIGIN_REFUSED", f"pages of {pages} may not call: see --cors-origins")


class HostRefused(RequestError):
    """A request of HTTP names a host that is not this machine, where only this machine may ask."""

    def __init__(self, host: str) -> None:
        super().__init__(
            "HOST_REFUSED",
            f"this server has no tokens and is not {host[:128]}: send `host: localhost`, or give it tokens",
        )


class Overloaded(RequestError):
    """A bound is reached. Each counts something, and has its reason.

    1. Requests that wait: QUEUE_FULL. Those of one tenant: TENANT_QUEUE_FULL.
       Tokens that a tenant may use in a time: TENANT_TOKEN_RATE.
    2. Tokens that wait: TOKEN_BUDGET. Bytes of messages that are held or on their way, of answers that a caller has
       not read, of constraints, of logits, or of inputs that wait: BYTE_BUDGET. Open calls: TOO_MANY_CALLS.
    3. The time until the caller's deadline, which the queue takes: DEADLINE_TOO_NEAR.
    4. The machine itself: MACHINE_BUSY.
    5. Adapters in memory that are all in use: ADAPTERS_IN_USE.
    """

    def __init__(self, reason: str, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(reason, message, retry_after_s=retry_after_s)


class MessageTooSlow(RequestError):
    """A message did not come whole in the time that it has."""

    def __init__(self) -> None:
        super().__init__("MESSAGE_TOO_SLOW", "the request's message did not come whole in time")


class CannotWatch(RequestError):
    """Too many watch, on one connection or in all. To a client of gRPC, UNIMPLEMENTED means: call without watching."""

    def __init__(self) -> None:
        super().__init__("TOO_MANY_WATCHES", "too many callers watch; ask by Check")


class ModelNotReady(RequestError):
    """The model is loading, or its bundle was refused (then there is no retry hint)."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__("MODEL_NOT_READY", message, retry_after_s=retry_after_s)


class BundleRefused(RequestError):
    """A bundle that shall be loaded is refused, or finds no room. Nothing has changed."""

    def __init__(self, message: str) -> None:
        super().__init__("BUNDLE_REFUSED", message)


class Draining(RequestError):
    """The server is going away. Another one may answer."""

    def __init__(self, message: str = "the server is draining and takes no new requests") -> None:
        super().__init__("DRAINING", message, retry_after_s=1.0)


class LaneFailed(RequestError):
    """What answered the request has failed: a step raised an error (STEP_FAILED) or did not end (LANE_STUCK).

    It may be this very request that made it fail. So there is no hint to try again.

    Attributes:
        error_id: under which the server's log has the failure, once for all who were in it.
        why: what went wrong, for the log. A caller does not see it.
    """

    def __init__(self, reason: str, message: str, *, error_id: str = "", why: str = "") -> None:
        super().__init__(reason, f"{message}; the server's log has it under {error_id}" if error_id else message)
        self.error_id = error_id
        self.why = why


class ModelFailed(RequestError):
    """The model's lanes failed again and again, so the server ends. Another one may answer."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        super().__init__("MODEL_FAILED", "the model has failed, and the server ends", retry_after_s=retry_after_s)


class DeadlineExpired(RequestError):
    """The caller's deadline passed before the answer was complete."""

    def __init__(self, message: str = "the deadline passed before the answer was complete") -> None:
        super().__init__("DEADLINE", message)


class CannotExplain(RequestError):
    """An alignment was asked of a model whose bundle has no EXPLAIN graph."""

    def __init__(self, model: str) -> None:
        super().__init__("CANNOT_EXPLAIN", f"model {model!r} cannot explain its answers", field="explain")


class CannotAdapt(RequestError):
    """An adapter was named, and the model's bundle takes none."""

    def __init__(self, model: str) -> None:
        super().__init__("CANNOT_ADAPT", f"model {model!r} takes no adapters", field="model.adapter")


class AdapterRefused(RequestError):
    """An adapter is not what it says, or not for this bundle."""

    def __init__(self, model: str, adapter: str, why: str) -> None:
        message = f"adapter {adapter!r} of model {model!r} is refused: {why}"
        super().__init__("ADAPTER_REFUSED", message, field="model.adapter")


class CannotConstrain(RequestError):
    """A constraint was asked for that cannot be followed: the server lacks an extra, or the tokenizer is not fit."""

    def __init__(self, why: str) -> None:
        super().__init__("CANNOT_CONSTRAIN", f"constraints cannot be followed: {why}", field="decoding.constraint")


class CannotScore(RequestError):
    """Scores were asked of a model whose bundle has no SCORE graph, or that runs on a device."""

    def __init__(self, model: str, field: str) -> None:
        super().__init__("CANNOT_SCORE", f"model {model!r} cannot score", field=field)


class BundleError(Exception):
    """A bundle is refused. One sentence on one line says what is wrong with it. It is never a caller's status.

    Attributes:
        task: what its manifest says that it is for, a common_pb2.Task. 0 when that could not be read.
    """

    def __init__(self, sentence: str, task: int = 0) -> None:
        # It may quote what is in the bundle, and that can be anything.
        super().__init__(" ".join(sentence.split()))
        self.task = task


def require(condition: object, sentence: str) -> None:
    """Refuse the bundle with one sentence unless the condition holds."""
    if not condition:
        raise BundleError(sentence)
