"""Certificates and tokens as files: what the start refuses, what it warns of, and what a rotation takes or keeps."""

import itertools
import os
import ssl
import time

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from intercepted import AUTHORITY, SERVER, credentials_of, look_twice
from weft_server.auth import credentials as credentials_module
from weft_server.auth import file_watch
from weft_server.checks.settings import look_at_credentials
from weft_server.config import ConfigError, ServerConfig
from weft_server.telemetry.metrics import Metrics
from weft_server.telemetry.metrics_page import MetricsPage

LINE = "alice call correct-horse-battery\n"


@pytest.fixture
def tls(tmp_path):
    """Settings of a server with a certificate."""
    cert, key = AUTHORITY.issue().write(tmp_path)
    return {"tls_cert": cert, "tls_key": key}


def counted(metrics, name):
    """The samples of a metric, as lines of text."""
    return [line for line in MetricsPage(metrics).render()[1].decode().splitlines() if line.startswith(f"weft_{name}")]


def tell(**files):
    """What is odd about settings."""
    return credentials_of(**files).oddities()


def test_without_settings_there_is_nothing():
    """Plain text, and nobody is asked."""
    credentials = credentials_of()

    assert (None, None) == (credentials.certificates, credentials.tokens)


def test_all_files_that_cannot_be_used_are_told_of_at_once(tmp_path):
    """Not one at each start: certificate, key, authorities and tokens."""
    (tmp_path / "empty").touch()
    files = {"tls_cert": "empty", "tls_key": "nothing", "tls_client_ca": "empty", "tokens": "empty"}
    with pytest.raises(ConfigError) as refused:
        credentials_of(**{field: tmp_path / name for field, name in files.items()})

    flags = ["--tls-cert", "--tls-key", "--tls-client-ca", "--tokens"]
    assert flags == [line.split()[0] for line in str(refused.value).splitlines()]


def test_good_files_are_taken_in_silence(tls, tmp_path):
    """Certificate, key, authorities, tokens; the metric says when the certificate ends."""
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.certificate)
    (tmp_path / "tokens").write_text(LINE)
    (tmp_path / "tokens").chmod(0o600)
    metrics = Metrics()
    with capture_logs() as logs:
        credentials = credentials_of(metrics, **tls, tls_client_ca=tmp_path / "ca.crt", tokens=tmp_path / "tokens")

    assert [] == logs
    assert credentials.shows_certificates
    assert counted(metrics, "certificate_expiry")
    assert credentials.certificates.expires == metrics.certificate_expiry
    assert 29 * 86400 < metrics.certificate_expiry - time.time() < 31 * 86400


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tls_cert", None, r"--tls-cert \(WEFT_TLS_CERT\): .*tls.crt: No such file or directory"),
        ("tls_key", None, r"--tls-key \(WEFT_TLS_KEY\): .*: No such file or directory"),
        ("tls_cert", b"", "--tls-cert .* holds no certificate as PEM"),
        ("tls_key", b"hello", "--tls-key .* holds no private key as PEM"),
        ("tls_key", AUTHORITY.key, "--tls-key .*: the key is not that of the certificate"),
        ("tls_key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "--tls-key .*: .*PEM"),
        (
            "tls_client_ca",
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "--tls-client-ca .*: ",
        ),
        ("tls_client_ca", b"nobody", "--tls-client-ca .*: it holds no certificate as PEM"),
        ("tls_client_ca", None, "--tls-client-ca .*: No such file"),
        ("tokens", None, "--tokens .*: No such file"),
        ("tokens", b"\xff\xfe", "--tokens .*: it is not UTF-8 text"),
        ("tokens", b"alice call short", "--tokens .*: line 1: a token must have at least 16"),
        ("tokens", b"", "--tokens .*: it names nobody"),
        ("tokens", b"# nobody\n\n", "--tokens .*: it names nobody"),
        ("tokens", LINE[:-3].encode(), "--tokens .*: it is not whole: its last line has no end"),
        (
            "tls_client_ca",
            AUTHORITY.certificate * 2 + AUTHORITY.certificate[:-40],
            "--tls-client-ca .*: it is not whole",
        ),
        ("tls_cert", SERVER.certificate + AUTHORITY.certificate[:200], "--tls-cert .*: it is not whole as PEM"),
        ("tokens", bytes(5 << 20), "--tokens .*: it has more than 4194304 bytes"),
    ],
)
def test_a_broken_file_is_an_error_of_configuration(tls, tmp_path, name, content, said):
    """It names flag, variable and file, and says what is wrong, in one line."""
    files = tls | {name: tls.get(name, tmp_path / name)}
    if content is None:
        files[name].unlink(missing_ok=True)
    else:
        files[name].write_bytes(content)

    with pytest.raises(ConfigError, match=said) as refused:
        credentials_of(**files)
    assert "\n" not in str(refused.value)


def test_http_trusts_the_authority_of_callers_if_there_is_one(tls, tmp_path):
    """Their certificate is verified if they show one. Without an authority nobody is asked for one."""
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.certificate)
    asking = credentials_of(**tls, tls_client_ca=tmp_path / "ca.crt").certificates.http
    assert (ssl.CERT_OPTIONAL, 1) == (asking.verify_mode, len(asking.get_ca_certs()))
    silent = credentials_of(**tls).certificates.http
    assert (ssl.CERT_NONE, []) == (silent.verify_mode, silent.get_ca_certs())


def test_a_pipe_is_no_file(tls, tmp_path):
    """Reading it would wait for ever."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ConfigError, match="it is no file"):
        credentials_of(**tls | {"tls_key": tmp_path / "pipe"})


def test_a_key_with_a_passphrase_is_refused(tls):
    """Nobody is there to type it."""
    tls["tls_key"].write_bytes(AUTHORITY.locked_key())

    with pytest.raises(ConfigError, match="it has a passphrase"):
        credentials_of(**tls)


def test_what_stands_before_a_key_and_looks_like_one_is_refused(tls):
    """OpenSSL passes over it. The kind of the key could not be seen."""
    tls["tls_key"].write_bytes(b"of a PRIVATE KEY-----\nAA\n" + tls["tls_key"].read_bytes())

    with pytest.raises(ConfigError, match="it holds something that is no PEM"):
        credentials_of(**tls)


def test_a_kind_of_key_that_grpc_does_not_take_is_refused(tmp_path):
    """GRPC would listen with it, and fail in each handshake. RSA is as good as ECDSA."""
    cert, key = AUTHORITY.issue(key=ed25519.Ed25519PrivateKey.generate()).write(tmp_path)
    with pytest.raises(ConfigError, match="gRPC takes no Ed25519 key; use RSA or ECDSA"):
        credentials_of(tls_cert=cert, tls_key=key)
    AUTHORITY.issue(key=rsa.generate_private_key(65537, 2048)).write(tmp_path)
    assert credentials_of(tls_cert=cert, tls_key=key).certificates


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["tls_cert", "tls_key", "tls_client_ca", "tokens"]),
    at=st.floats(0, 1),
    garbage=st.binary(max_size=40),
    cut=st.booleans(),
)
def test_any_damage_is_an_error_of_configuration(tmp_path_factory, name, at, garbage, cut):
    """Whatever bytes are overwritten, or cut off: credentials that can be used, or one line for the file."""
    folder = tmp_path_factory.mktemp("damaged")
    cert, key = SERVER.write(folder)
    (folder / "ca").write_bytes(AUTHORITY.certificate)
    (folder / "tokens").write_text(LINE)
    files = {"tls_cert": cert, "tls_key": key, "tls_client_ca": folder / "ca", "tokens": folder / "tokens"}
    data = files[name].read_bytes()
    where = int(at * len(data))
    files[name].write_bytes(data[:where] + garbage + (b"" if cut else data[where + len(garbage) :]))

    try:
        credentials_of(**files)
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either is right


def test_a_look_that_fails_in_another_way_is_no_end(tls, monkeypatch):
    """An exception that nobody thought of is logged and counted, and the next change is taken."""
    credentials = credentials_of(**tls)
    old = credentials.certificates
    with monkeypatch.context() as broken, capture_logs() as logs:
        broken.setattr("weft_server.auth.credentials.Certificates", None)
        AUTHORITY.issue().write(tls["tls_key"].parent)
        look_twice(credentials)
        assert old is credentials.certificates
    AUTHORITY.issue().write(tls["tls_key"].parent)
    look_twice(credentials)

    assert old is not credentials.certificates
    assert [("error", True)] == [(entry["log_level"], bool(entry["exc_info"])) for entry in logs]


def test_all_faults_are_told_at_once(tmp_path):
    """A line for each setting that is wrong."""
    with pytest.raises(ConfigError) as refused:
        credentials_of(tls_key=tmp_path / "key", tls_client_ca=tmp_path / "ca", tokens=tmp_path / "tokens")

    lines = str(refused.value).splitlines()
    assert ["--tls-key", "--tls-client-ca", "--tokens"] == [line.split()[0] for line in lines]
    assert all("needs --tls-cert (WEFT_TLS_CERT) too" in line for line in lines[:2])


def test_what_is_odd_is_a_warning(tls, tmp_path):
    """Files that everybody may read, tokens in plain text, and a certificate that has ended or not begun."""
    tokens = tmp_path / "tokens"
    tokens.write_text(LINE)
    tokens.chmod(0o644)
    (odd,) = tell(tokens=tokens)
    assert "--tokens" in odd
    assert "can be read by everybody" in odd
    tokens.chmod(0o640)
    (odd,) = tell(tokens=tokens, host="0.0.0.0")
    assert "travel in plain text" in odd
    assert [] == tell(tokens=tokens, host="0.0.0.0", **tls)
    tls["tls_key"].chmod(0o644)
    assert ["--tls-key"] == [odd.split()[0] for odd in tell(**tls)]
    AUTHORITY.issue(days=-2).write(tmp_path)
    assert f"{tls['tls_cert']} expired on " in tell(**tls)[0]


def test_a_rotation_is_taken_when_it_is_whole(tls, tmp_path):
    """Half of a pair is an error that is logged once and counted; the old pair is kept until the other half comes."""
    metrics = Metrics()
    credentials = credentials_of(metrics, **tls)
    old = credentials.certificates
    new = AUTHORITY.issue()
    with capture_logs() as logs:
        look_twice(credentials)
        tls["tls_cert"].write_bytes(new.certificate)
        look_twice(credentials)
        look_twice(credentials)
        assert old is credentials.certificates
        tls["tls_key"].unlink()
        look_twice(credentials)
        assert old is credentials.certificates
        tls["tls_key"].write_bytes(new.key)
        look_twice(credentials)

    assert old is not credentials.certificates
    assert ["kept the old credentials"] * 2 + ["took new credentials"] == [entry["event"] for entry in logs]
    assert "the key is not that of the certificate" in logs[0]["why"]
    counts = {
        'weft_credential_reloads_total{result="refused"} 2.0',
        'weft_credential_reloads_total{result="taken"} 1.0',
    }
    assert counts <= set(counted(metrics, "credential_reloads_total"))


def test_a_swap_of_links_is_a_rotation(tmp_path):
    """As Kubernetes does it: the folder behind a link is another one, and the links to the files stay."""
    for stem, line in (("one", LINE), ("two", LINE.replace("alice", "bob"))):
        (tmp_path / stem).mkdir()
        (tmp_path / stem / "tokens").write_text(line)
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "tokens").symlink_to("..data/tokens")
    credentials = credentials_of(tokens=tmp_path / "tokens")
    assert "alice" == credentials.tokens.of_token("correct-horse-battery").name

    (tmp_path / "..new").symlink_to("two")
    (tmp_path / "..new").rename(tmp_path / "..data")
    look_twice(credentials)

    assert "bob" == credentials.tokens.of_token("correct-horse-battery").name


def test_an_empty_file_of_tokens_locks_nobody_out(tmp_path):
    """A file that is being written is no rotation."""
    tokens = tmp_path / "tokens"
    tokens.write_text(LINE)
    credentials = credentials_of(tokens=tokens)
    tokens.write_text("")
    with capture_logs() as logs:
        look_twice(credentials)

    assert credentials.tokens.of_token("correct-horse-battery")
    assert ["error"] == [entry["log_level"] for entry in logs]


def test_a_check_says_what_is_spoken_and_asked(tls, tmp_path):
    """One line where all is well, a warning for what is odd, and an error for each file that cannot be used."""

    def look(**files):
        return [(state, says) for state, _, says, _ in look_at_credentials(ServerConfig(repository="m", **files))]

    tls["tls_key"].chmod(0o644)
    odd, ends, well = look(**tls)
    faults = look(**tls | {"tls_key": tmp_path / "nothing"}, tokens=tmp_path / "nothing")

    assert [("ok", "speaks plain text, asks callers for nothing")] == look()
    assert ("ok", "speaks TLS, asks callers for nothing") == well
    assert ("ok", True) == (ends[0], ends[1].startswith("the certificate ends on "))
    assert ("warning", True) == (odd[0], "can be read by everybody" in odd[1])
    assert ["error", "error"] == [state for state, _ in faults]


def test_a_file_of_which_a_half_has_come_changes_nothing(tmp_path):
    """Not in any look, though each half may be a whole file: what is taken has stood still for two looks."""
    tokens = tmp_path / "tokens"
    tokens.write_text(LINE)
    credentials = credentials_of(tokens=tokens)
    new = "".join(f"name-{number} call a-token-of-{number:04}-which-is-long\n" for number in range(30))
    with capture_logs() as logs:
        for end in range(0, len(new), 17):  # some pieces end with a line
            tokens.write_text(new[:end])
            credentials.refresh()
            assert credentials.tokens.of_token("correct-horse-battery")
        tokens.write_text(new)
        look_twice(credentials)

    assert "name-29" == credentials.tokens.of_token("a-token-of-0029-which-is-long").name
    assert ["took new credentials"] == [entry["event"] for entry in logs]


def test_a_file_that_is_changed_while_it_is_read_is_not_taken(tmp_path, monkeypatch):
    """What was read may be a half. The next looks take it."""
    tokens = tmp_path / "tokens"
    tokens.write_text(LINE)
    credentials = credentials_of(tokens=tokens)
    read = credentials_module.read_tokens
    tokens.write_text(LINE.replace("alice", "bob"))
    half = LINE.replace("alice", "eve")
    monkeypatch.setattr(credentials_module, "read_tokens", lambda path: (path.write_text(half), read(path))[1])
    look_twice(credentials)
    assert "alice" == credentials.tokens.of_token("correct-horse-battery").name

    monkeypatch.setattr(credentials_module, "read_tokens", read)
    tokens.write_text(LINE.replace("alice", "bob"))
    look_twice(credentials)
    assert "bob" == credentials.tokens.of_token("correct-horse-battery").name


def test_a_start_waits_until_files_stand_still(tmp_path, monkeypatch):
    """Who is still writing one is waited for. Who does not end is told of."""
    tokens = tmp_path / "tokens"
    tokens.write_text(LINE)
    looks = iter(["", LINE, LINE * 2, LINE + LINE.replace("alice", "bob").replace("horse", "mule")])

    def sleep(_):
        if (text := next(looks, None)) is not None:
            tokens.write_text(text)

    monkeypatch.setattr(file_watch, "STILL_S", 3600.0)
    monkeypatch.setattr(file_watch.time, "sleep", sleep)
    assert "bob" == credentials_of(tokens=tokens).tokens.of_token("correct-mule-battery").name

    looks = (f"{LINE}# {number}\n" for number in itertools.count())
    monkeypatch.setattr("weft_server.auth.credentials.START_S", 0.01)
    with pytest.raises(ConfigError, match=r"still changes after 0\.01 s"):
        credentials_of(tokens=tokens)


def test_a_file_that_has_stood_still_is_read_at_once(tmp_path, monkeypatch):
    """Most starts wait for nothing."""
    tokens = tmp_path / "tokens"
    tokens.write_text(LINE)
    monkeypatch.setattr(file_watch.time, "sleep", None)
    monkeypatch.setattr(file_watch.time, "time", lambda: tokens.stat().st_ctime + 1.5)
    monkeypatch.setattr(file_watch, "STILL_S", 1.0)
    assert credentials_of(tokens=tokens).tokens
