"""TLS, certificates and tokens in the SDK and the command, against a real server that asks for them."""

import asyncio
import os
import subprocess
import sys

import grpc
import pytest

import weft
from certificates import Authority
from intercepted import AUTHORITY, run, served
from weft._channel import CallSettings
from weft_command import running

TOKEN = "token-of-the-caller"
TRUST = grpc.ssl_channel_credentials(AUTHORITY.certificate)


@pytest.fixture
def files(tmp_path):
    """Files of a caller: authority, certificate and key, token."""
    folder = tmp_path / "caller"
    folder.mkdir()
    (folder / "ca.crt").write_bytes(AUTHORITY.certificate)
    AUTHORITY.issue("caller", hosts=()).write(folder, "caller")
    (folder / "token").write_text(f"{TOKEN}\n")
    return folder


@pytest.fixture(autouse=True)
def _no_credentials_from_outside(monkeypatch):
    for name in ("TLS", "CA", "CERT", "KEY", "TOKEN", "TOKEN_FILE", "TARGET"):
        monkeypatch.delenv(f"WEFT_{name}", raising=False)


@pytest.fixture
def ask(capsys):
    """Run `weft models` in a thread; returns exit code and what it said on stderr."""

    async def run_command(target, *argv):
        arguments = ["models", "--json", "--timeout", "5", "--target", target, *map(str, argv)]
        code = await asyncio.to_thread(running.run, arguments)
        return code, capsys.readouterr().err

    return run_command


def test_a_client_sends_its_token(tmp_path):
    """Over TLS, by both clients. Without it, or with another, AccessDenied says why."""

    async def scenario():
        async with served(tmp_path, tls=True) as (target, _, _):

            def blocking(token):
                with weft.Client(target, credentials=TRUST, token=token, timeout=10) as client:
                    return client.list_models()

            assert () == await asyncio.to_thread(blocking, TOKEN)
            async with weft.AsyncClient(target, credentials=TRUST, token=TOKEN, timeout=10) as client:
                assert () == await client.list_models()
                assert weft.Health.NOT_SERVING is await client.health()
            for token, reason in ((None, "TOKEN_MISSING"), ("token-of-nobody", "TOKEN_UNKNOWN")):
                with pytest.raises(weft.AccessDenied) as denied:
                    await asyncio.to_thread(blocking, token)
                assert (reason, False) == (denied.value.reason, "token-of" in str(denied.value))

    run(scenario())


def test_a_token_keeps_the_watch_of_health():
    """The watch carries no token, and a server of ours answers it without. Metadata are for who stands between."""
    assert CallSettings.of("localhost:1", 1.0, token=TOKEN).watch_health
    assert not CallSettings.of("localhost:1", 1.0, {"authorization": f"Bearer {TOKEN}"}).watch_health


@pytest.mark.parametrize(
    "target",
    [
        "localhost:1",
        "LOCALHOST:1",
        "127.0.0.1:1",
        "127.9.9.9:1",
        "[::1]:1",
        "unix:/tmp/a",
        "dns:///localhost:1",
        "ipv4:127.0.0.1:1,127.0.0.2:1",
        "ipv6:[::1]:1",
    ],
)
def test_a_token_may_go_in_plain_text_to_this_machine(target):
    """It crosses no network."""
    assert (("authorization", f"Bearer {TOKEN}"),) == CallSettings.of(target, 1.0, token=TOKEN).metadata


@pytest.mark.parametrize(
    "target",
    [
        "weft:7070",
        "10.0.0.1:1",
        "localhost.evil:1",
        "[2001:db8::1]:1",
        "0.0.0.0:1",
        "dns:///weft:1",
        "xds:///weft",
        "ipv4:127.0.0.1:1,10.0.0.1:1",
        "dns://127.0.0.1/weft:1",
    ],
)
def test_a_token_does_not_cross_a_network_in_plain_text(target):
    """Refused before anything is sent, with what to do; over TLS, or as a header of one's own, it goes."""
    with pytest.raises(weft.InvalidRequest, match="in plain text: give credentials=") as refused:
        weft.Client(target, token=TOKEN)
    assert TOKEN not in str(refused.value)
    weft.Client(target, token=TOKEN, credentials=TRUST).close()
    weft.Client(target, metadata={"authorization": f"Bearer {TOKEN}"}).close()


@pytest.mark.parametrize("token", ["", "two words", "ümlaut-" * 3, "line\nbreak", 7, b"bytes"])
def test_what_is_no_token_is_refused_without_it(token):
    """One that no header can hold. The message does not quote it."""
    with pytest.raises(weft.InvalidRequest, match="token: must be printable ASCII without spaces"):
        weft.Client("localhost:1", token=token)


def test_a_token_is_given_once():
    """Not beside a header that says the same."""
    with pytest.raises(weft.InvalidRequest, match="token: metadata has an authorization already"):
        weft.Client("localhost:1", token=TOKEN, metadata={"Authorization": "Bearer x"})


def test_no_repr_shows_a_token():
    """Of settings, or of a client: they end in logs."""
    with weft.Client("localhost:1", token=TOKEN, metadata={"x-key": "secret-key"}) as client:
        shown = f"{client!r} {client._settings!r}"
    assert "token-of" not in shown
    assert "secret-key" not in shown


def test_the_command_shows_what_it_is_given(tmp_path, files, ask, monkeypatch):
    """Flags and variables; a file of a token wins over WEFT_TOKEN."""

    async def scenario():
        async with served(tmp_path, mutual=True) as (target, _, _):
            shown = ["--ca", files / "ca.crt", "--cert", files / "caller.crt", "--key", files / "caller.key"]
            assert (0, "") == await ask(target, *shown, "--token-file", files / "token")
            monkeypatch.setenv("WEFT_TOKEN", TOKEN)
            assert (0, "") == await ask(target, *shown)
            monkeypatch.setenv("WEFT_TOKEN", "token-of-nobody")
            code, said = await ask(target, *shown)
            assert (1, True) == (code, "does not know the token" in said)
            for name, value in zip(("CA", "CERT", "KEY"), shown[1::2], strict=True):
                monkeypatch.setenv(f"WEFT_{name}", str(value))
            monkeypatch.setenv("WEFT_TOKEN_FILE", str(files / "token"))
            assert (0, "") == await ask(target)

    run(scenario())


def test_an_empty_token_is_a_mistake(ask, monkeypatch):
    """A variable that was to be filled. Nobody is asked without it."""
    monkeypatch.setenv("WEFT_TOKEN", "")
    code, said = asyncio.run(ask("localhost:1"))
    assert (2, True) == (code, "WEFT_TOKEN: is set and empty; unset it to send none" in said)


def test_the_command_says_why_there_is_no_connection(tmp_path, files, ask):
    """Other authority, plain to TLS, TLS to plain text, no certificate or a stranger's: plain words, and a way."""
    other = tmp_path / "other.crt"
    stranger = Authority()
    other.write_bytes(stranger.certificate)
    stranger.issue("stranger", hosts=()).write(files, "stranger")

    async def scenario():
        async with served(tmp_path) as (target, _, _):
            assert "send `authorization: Bearer TOKEN`. --token-file FILE sends one" in (await ask(target))[1]
        async with served(tmp_path, tls=True, tokens="") as (target, _, _):
            assert "the server speaks TLS: --tls, or --ca FILE" in (await ask(target))[1]
            assert "--ca FILE names the authority to trust" in (await ask(target, "--ca", other))[1]
        async with served(tmp_path, mutual=True, tokens="") as (target, _, _):
            assert "it may want a certificate: --cert FILE" in (await ask(target, "--ca", files / "ca.crt"))[1]
            shown = ["--cert", files / "stranger.crt", "--key", files / "stranger.key"]
            said = (await ask(target, "--ca", files / "ca.crt", *shown))[1]
            assert "it may not trust the authority of --cert" in said
        async with served(tmp_path, tokens="") as (target, _, _):
            assert "does not speak TLS: leave out --tls" in (await ask(target, "--ca", files / "ca.crt"))[1]
        assert "Is a server there?" in (await ask(target))[1]

    run(scenario())


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--cert", "caller.crt"], "--cert needs --key"),
        (["--key", "caller.key"], "--key needs --cert"),
        (["--ca", "nothing"], "--ca: 'nothing': No such file or directory"),
        (["--ca", "token"], "--ca: 'token' holds no certificate as PEM"),
        (["--cert", "caller.crt", "--key", "token"], "'caller.crt' and 'token' are no certificate and key as PEM"),
        (["--cert", "ca.crt", "--key", "caller.key"], "'ca.crt' and 'caller.key' do not belong together"),
        (["--cert", "ca.crt", "--key", "locked.key"], "--key: has a passphrase"),
        (["--token-file", "nothing"], "--token-file: 'nothing': No such file or directory"),
        (["--token-file", "/dev/zero"], "--token-file: '/dev/zero': it has more than 4194304 bytes"),
        (["--ca", "/dev/zero"], "--ca: '/dev/zero': it has more than 4194304 bytes"),
        (["--token-file", "caller.key"], "--token-file: 'caller.key' must hold one token"),
        (
            ["--token-file", "token", "--target", "weft.example:7070"],
            "token: is not sent to weft.example:7070 in plain",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(files, monkeypatch, capsys, argv, said):
    """It names the flag and what is wrong, with exit code 2, and quotes no secret."""
    monkeypatch.chdir(files)
    (files / "locked.key").write_bytes(AUTHORITY.locked_key())
    assert 2 == running.run(["models", *argv])

    line = capsys.readouterr().err
    assert said in line
    assert TOKEN not in line


def test_no_command_shows_a_token(files):
    """Neither its arguments, which `ps` shows, nor its help have a place for one."""
    weft_command = [sys.executable, "-m", "weft_command"]
    environment = {"PATH": os.environ["PATH"], "WEFT_TOKEN": TOKEN, "COLUMNS": "200"}
    for command in ("models", "bench"):
        asked = [*weft_command, command, "--help"]
        shown = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout
        assert (command, True, False) == (command, "--token-file" in shown, TOKEN in shown)
        assert not [word for word in shown.split() if word == "--token"]
