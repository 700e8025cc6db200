"""The file that says who may call: a line for each, `NAME ROLES TOKEN`, and behind that `models=` and `rate=`.

    # who     may do         and is known by
    website   call           sha256:9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab
    scraper   metrics        4f2c0e6b9d1a77c35b8e
    operator  call,admin     cert:operator.example.com
    team-a    call           7d1f0a52c0e94d6b8a11  models=en-es,pydocs:german rate=60000/min

A name may have several lines: one token for the change from another. They have one rate, and use it together.
"""

import hmac
import re
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from weft_server.models.account import TokenRate
from weft_server.models.allowed_models import ALL_MODELS, AllowedModels

MAX_NAME = 64
# A shorter token may be guessed.
MIN_TOKEN = 16
_HASHED = "sha256:"
_CERTIFICATE = "cert:"
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
# A token may hold the sign.
_COMMENT = re.compile(r"(^|\s)#.*")
# The words before models= and rate=.
_NUM_FIRST = 3
MAX_MODELS = 1000
MAX_RATE = 10**12
_SECONDS = {"s": 1, "min": 60, "h": 3600, "day": 86400}
_RATE = re.compile(rf"([0-9]{{1,13}})/({'|'.join(_SECONDS)})")
_MODEL = re.compile(r"[^:@,\s]+(:[^:@,\s]+)?")
# Of no token.
_NOBODY = (bytes(32), None)


class Role(StrEnum):
    """What somebody may do: ask models, ask them before others, change which there are, or read the metrics."""

    CALL = "call"
    HIGH = "high"
    ADMIN = "admin"
    METRICS = "metrics"


class Identity(NamedTuple):
    """Somebody who is known. The name is empty where nobody is asked."""

    name: str
    roles: frozenset[Role]
    models: AllowedModels = ALL_MODELS
    rate: TokenRate | None = None
    # Whether a line of the file says so. Else it is anyone, or anyone who is signed.
    is_listed: bool = False


ANYONE = Identity("", frozenset(Role))


class TokensError(Exception):
    """What is wrong with the file, a sentence for each line that is. No token is quoted."""


class Tokens:
    """Who is known, by the digest of a token or by a name in a certificate."""

    def __init__(self, text: str) -> None:
        """Read a tokens file. Raises TokensError."""
        self._by_digest: dict[bytes, tuple[bytes, Identity]] = {}
        self._by_name: dict[str, Identity] = {}
        # By the name, of each who has a line.
        self.rates: dict[str, TokenRate | None] = {}
        faults = []
        for number, line in enumerate(text.splitlines(), 1):
            words = _COMMENT.sub("", line).split()
            if words and (fault := self._add(words)):
                faults.append(f"line {number}: {fault}")
        if not (faults or self._by_digest or self._by_name):
            faults = ["it names nobody"]
        if faults:
            raise TokensError("; ".join(faults))

    @property
    def names_certificates(self) -> bool:
        """Whether somebody is known by a certificate."""
        return bool(self._by_name)

    def of_token(self, token: str) -> Identity | None:
        """Return whose token it is. How long that takes says nothing about the tokens that are known.

        Only digests are looked up and compared. Whoever tries tokens cannot choose what theirs are like.
        """
        digest = sha256(token.encode()).digest()
        known, identity = self._by_digest.get(digest, _NOBODY)
        return identity if hmac.compare_digest(known, digest) else None

    def of_certificate(self, names: Iterable[str]) -> Identity | None:
        """Return who is known by one of the names in a certificate."""
        return next((self._by_name[name] for name in names if name in self._by_name), None)

    def _add(self, words: list[str]) -> str:
        """Add a line. Returns what is wrong with it, or nothing."""
        if len(words) < _NUM_FIRST:
            return "needs a name, roles and a token, with spaces between them and none in them"
        name, roles, token, *more = words
        if len(name) > MAX_NAME or not (name.isascii() and name.isprintable()):
            return f"its name must be at most {MAX_NAME} printable ASCII characters"
        if unknown := sorted(set(roles.split(",")) - set(Role)):
            # Where the columns are in another order, this word is the token.
            what = f"there is no role {unknown[0]!r}" if len(unknown[0]) < MIN_TOKEN else "its second word is no role"
            return f"{what}; there are {', '.join(Role)}"
        try:
            models, rate = _grants_of(more)
        except _GrantError as error:
            return str(error)
        return self._add_identity(
            Identity(name, frozenset(map(Role, roles.split(","))), models, rate, is_listed=True), token
        )

    def _add_identity(self, identity: Identity, token: str) -> str:
        if self.rates.setdefault(identity.name, identity.rate) != identity.rate:
            return f"another line of {identity.name!r} has another rate, or none"
        if token.startswith(_CERTIFICATE):
            return self._add_certificate(token.removeprefix(_CERTIFICATE), identity)
        return self._add_token(token, identity)

    def _add_token(self, token: str, identity: Identity) -> str:
        if token.startswith(_HASHED):
            if not _DIGEST.fullmatch(token.removeprefix(_HASHED)):
                return f"{_HASHED} needs 64 hexadecimal digits"
            digest = bytes.fromhex(token.removeprefix(_HASHED))
        elif len(token) < MIN_TOKEN or not (token.isascii() and token.isprintable()):
            return f"a token must have at least {MIN_TOKEN} characters, all of them printable ASCII"
        else:
            digest = sha256(token.encode()).digest()
        if digest in self._by_digest:
            return "another line has the same token"
        self._by_digest[digest] = (digest, identity)
        return ""

    def _add_certificate(self, name: str, identity: Identity) -> str:
        if not name or name in self._by_name:
            return f"{_CERTIFICATE} needs a name that no other line has"
        self._by_name[name] = identity
        return ""


class _GrantError(Exception):
    """What is wrong with a word behind a token."""


def _grants_of(words: list[str]) -> tuple[AllowedModels, TokenRate | None]:
    """Return the models that the words behind a token open, and the rate. Raises _GrantError, which quotes no token."""
    given: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or key not in ("models", "rate"):
            raise _GrantError("behind the token there may be models=NAME,NAME and rate=TOKENS/UNIT, and nothing else")
        if key in given:
            raise _GrantError(f"it has {key}= twice")
        given[key] = value
    models = AllowedModels(_models(given["models"])) if "models" in given else ALL_MODELS
    return models, _rate(given["rate"]) if "rate" in given else None


def _models(value: str) -> list[str]:
    names = value.split(",")
    if len(names) > MAX_MODELS or not all(map(_MODEL.fullmatch, names)):
        text = f"models= needs 1 to {MAX_MODELS} names with commas between them, each NAME or NAME:ADAPTER"
        raise _GrantError(f"{text}, without a version")
    return names


def _rate(value: str) -> TokenRate:
    found = _RATE.fullmatch(value)
    if not found or not 1 <= int(found[1]) <= MAX_RATE:
        units = ", ".join(_SECONDS)
        raise _GrantError(f"rate= needs TOKENS/UNIT, such as 60000/min: 1 to {MAX_RATE} tokens, and a unit of {units}")
    return TokenRate(int(found[1]), _SECONDS[found[2]])
