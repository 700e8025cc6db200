"""The file of tokens: who is known by what, what is refused, and what a look-up gives away."""

from hashlib import sha256

import pytest

from weft_server.auth import tokens
from weft_server.auth.tokens import Role, Tokens, TokensError

PLAIN = "correct-horse-battery"
HASHED = sha256(b"of-somebody-else").hexdigest()


def test_a_line_with_its_columns_swapped_tells_no_token():
    """The word in the place of the roles may be the token."""
    with pytest.raises(TokensError) as refused:
        Tokens("website 4f2c0e6b9d1a77c35b8e call")
    assert "4f2c" not in str(refused.value)
    assert "its second word is no role" in str(refused.value)


def test_a_line_says_who_may_do_what():
    """A plain token, a digest and a name in a certificate; comments, blank lines and more spaces are nothing."""
    known = Tokens(
        f"# who may call\n\nalice  call {PLAIN} # her first\nalice call,metrics sha256:{HASHED.upper()}\n"
        "\tops\tadmin,call cert:ops.example.com\n"
    )

    assert ("alice", {Role.CALL}) == known.of_token(PLAIN)[:2]
    assert ("alice", {Role.CALL, Role.METRICS}) == known.of_token("of-somebody-else")[:2]
    assert ("ops", {Role.CALL, Role.ADMIN}) == known.of_certificate(["other", "ops.example.com"])[:2]


def test_a_sign_within_a_token_is_no_comment():
    """What begins a comment stands behind a space, so no token is cut short."""
    known = Tokens("alice call hash#of#sixteen#signs")

    assert known.of_token("hash#of#sixteen#signs")
    assert known.of_token("hash") is None


@pytest.mark.parametrize(
    "token", ["", PLAIN[:-1], PLAIN + " ", PLAIN.upper(), HASHED, f"sha256:{HASHED}", "ümlaut", "cert:ops"]
)
def test_nobody_else_is_known(token):
    """A token is known whole and in its own letters; a digest is no token, and neither is a name."""
    known = Tokens(f"alice call {PLAIN}\nbob call sha256:{HASHED}\nops call cert:ops")

    assert known.of_token(token) is None
    assert known.of_certificate([token]) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names nobody"),
        ("# alice call x\n", "names nobody"),
        (f"alice {PLAIN}", "line 1: needs a name, roles and a token"),
        (f"# a comment\nalice call {PLAIN} more", "line 2: behind the token there may be"),
        (f"alice call, {PLAIN}", "line 1: there is no role ''; there are call, high, admin, metrics"),
        (f"alice root {PLAIN}", "there is no role 'root'"),
        (f"{'a' * 65} call {PLAIN}", "at most 64"),
        (f"älice call {PLAIN}", "printable ASCII"),
        ("alice call short", "at least 16 characters"),
        ("alice call übermäßig-langes-wort", "printable ASCII"),
        ("alice call sha256:abcd", "64 hexadecimal digits"),
        ("alice call cert:", "needs a name that no other line has"),
        ("alice call cert:a\nbob call cert:a", "line 2: cert: needs a name that no other line has"),
        (
            f"alice call {PLAIN}\nbob call sha256:{sha256(PLAIN.encode()).hexdigest()}",
            "line 2: another line has the same",
        ),
        ("alice call short\nbob nothing short", r"line 1: .*; line 2: "),
    ],
)
def test_what_is_wrong_is_said_by_line(text, said):
    """All lines at once, and no token is quoted."""
    with pytest.raises(TokensError, match=said) as refused:
        Tokens(text)
    assert not [word for word in text.split()[2:] if len(word) > 15 and word in str(refused.value)]


def test_every_token_costs_the_same_comparisons(monkeypatch):
    """A known token, one that differs in its last letter and an unknown one: one hash, one look-up, one comparison.

    Only digests are compared, and that in constant time. What was sent is hashed, and never compared itself.
    """

    class Sent(str):
        __slots__ = ()

        def __eq__(self, other):
            raise AssertionError("a token was compared")

        __hash__ = None

    done = []
    monkeypatch.setattr(tokens, "sha256", lambda data: done.append("hash") or sha256(data))
    known = Tokens(f"alice call {PLAIN}\nbob call sha256:{HASHED}")
    monkeypatch.setattr(tokens.hmac, "compare_digest", lambda a, b: done.append("compare") or a == b)
    steps = []
    for token in (PLAIN, PLAIN[:-1] + "x", "x" * 999, ""):
        done.clear()
        known.of_token(Sent(token))
        steps.append(list(done))

    assert [["hash", "compare"]] * 4 == steps
