"""Who calls, by token or by certificate, and whether they may: asked for each call before its message is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1.methods import ADMIN_SERVICE
from weft_server.admission.early_admission import PRIORITY_KEY
from weft_server.auth.tokens import ANYONE, Identity, Role
from weft_server.errors import PermissionDenied, RequestError, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from weft_server.auth.credentials import Credentials
    from weft_server.auth.tokens import Tokens
    from weft_server.models.request_context import RequestContext

# By HTTP: the last refusals of all callers, and the page of metrics.
REFUSALS_PATH, METRICS_PATH = "/console/refusals.json", "/console/metrics"
_SCHEME = "bearer "
# What any certificate may do that an authority of ours has signed, where no file says more.
_SIGNED = frozenset({Role.CALL, Role.METRICS})


class Authorization:
    """Knows callers by the credentials of now."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    @property
    def asks(self) -> bool:
        """Whether callers have to say who they are."""
        return self._credentials.tokens is not None or self._credentials.shows_certificates

    def note(self, call: RequestContext, identity: Identity) -> None:
        """Note in a call who makes it, which models it may ask, and on whose account it goes."""
        call.tenant, call.allowed_models = identity.name, identity.models
        if identity.is_listed:
            call.account = self._credentials.accounts.of(identity)

    def of_metadata(self, method: str, metadata: Collection[tuple[str, str | bytes]]) -> Identity | None:
        """Return who calls a method of gRPC, or None when only their certificate says: then ask `of_peer`.

        Raises:
            Unauthenticated: nobody is known by what was sent.
            PermissionDenied: they lack the method's role, or that of the priority which they claim.
        """
        if not self.asks:
            return ANYONE
        given = [value for key, value in metadata if key == "authorization"]
        tokens = self._credentials.tokens
        if tokens is None or (not given and self._credentials.shows_certificates):
            return None
        return _for_call(_of_token(tokens, given), method, metadata)

    def of_peer(self, method: str, context: Any) -> Identity:
        """Return who calls a method of gRPC by their certificate. Raises as `of_metadata` does."""
        said = context.auth_context()
        names = said.get("x509_subject_alternative_name") or said.get("x509_common_name") or ()
        identity = self._of_names([name.decode(errors="replace") for name in names])
        return _for_call(identity, method, context.invocation_metadata() or ())

    def of_call(self, method: str, context: Any) -> Identity:
        """Return who calls a method of gRPC. Raises as `of_metadata` does."""
        return self.of_metadata(method, context.invocation_metadata() or ()) or self.of_peer(method, context)

    def of_headers(
        self, method: str, headers: Collection[tuple[str, str | bytes]], certificate: Mapping[str, Any] | None
    ) -> Identity:
        """Return who calls a method by HTTP, whose certificate is known with the headers. Raises as `of_metadata`."""
        known = self.of_metadata(method, headers)
        return known or _for_call(self._of_names(_names_in(certificate or {})), method, headers)

    def of_request(self, role: Role, authorization: Sequence[str], certificate: Mapping[str, Any] | None) -> Identity:
        """Return who sends a request of HTTP, by its headers and the certificate that was shown, if one was.

        Raises as `of_metadata` does.
        """
        if not self.asks:
            return ANYONE
        tokens = self._credentials.tokens
        if tokens is None or (not authorization and certificate):
            return _with_role(self._of_names(_names_in(certificate or {})), role)
        return _with_role(_of_token(tokens, authorization), role)

    def asks_token(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a token alone says who this is, who shows a certificate or none. Nobody is refused by it."""
        try:
            self.of_request(Role.CALL, (), certificate)
        except RequestError as error:
            return isinstance(error, Unauthenticated)
        return False

    def _of_names(self, names: list[str]) -> Identity:
        tokens = self._credentials.tokens
        if tokens is None and names:
            return Identity(names[0], _SIGNED)
        identity = tokens.of_certificate(names) if tokens else None
        if identity is None:
            text = "this server does not know the caller's certificate, and there is no token"
            raise Unauthenticated("CERTIFICATE_UNKNOWN", text)
        return identity


def role_of(method: str) -> Role:
    """Return the role that a method needs, by its full name. By HTTP a path is one."""
    is_admin = method.startswith(f"/{ADMIN_SERVICE}/") or method == REFUSALS_PATH
    return Role.ADMIN if is_admin else Role.METRICS if method == METRICS_PATH else Role.CALL


def _of_token(tokens: Tokens, given: Sequence[str | bytes]) -> Identity:
    if not given:
        text = "this server wants to know who calls: send `authorization: Bearer TOKEN`"
        raise Unauthenticated("TOKEN_MISSING", text)
    word = str(given[0])
    # Of several, a proxy may have checked another one.
    is_bearer = len(given) == 1 and word[: len(_SCHEME)].lower() == _SCHEME
    identity = tokens.of_token(word[len(_SCHEME) :].strip()) if is_bearer else None
    if identity is None:
        raise Unauthenticated("TOKEN_UNKNOWN", "this server does not know the token in `authorization`")
    return identity


def _for_call(identity: Identity, method: str, metadata: Collection[tuple[str, str | bytes]]) -> Identity:
    _with_role(identity, role_of(method))
    if Role.HIGH not in identity.roles and (PRIORITY_KEY, Role.HIGH) in metadata:
        raise PermissionDenied(identity.name, Role.HIGH, f"`{PRIORITY_KEY}: {Role.HIGH}`")
    return identity


def _with_role(identity: Identity, role: Role) -> Identity:
    if role not in identity.roles:
        raise PermissionDenied(identity.name, role)
    return identity


def _names_in(certificate: Mapping[str, Any]) -> list[str]:
    """The names in a certificate as `ssl` gives it: alternative names, or if it has none, the common name.

    gRPC counts the same ones.
    """
    # The name of a directory is no text.
    if alternative := [value for _, value in certificate.get("subjectAltName", ()) if isinstance(value, str)]:
        return alternative
    subject = [pair for relative in certificate.get("subject", ()) for pair in relative]
    return [value for key, value in subject if key == "commonName"]
