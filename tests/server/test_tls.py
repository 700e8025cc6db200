"""TLS on the port of gRPC: who is let in, and certificates that change under running calls."""

from certificates import Authority
from intercepted import AUTHORITY, HEALTH, LIST_MODELS, ask, look_twice, open_channel, run, served


def test_who_is_not_signed_does_not_come_in(tmp_path):
    """No certificate, one of another authority, one that has ended, and plain text: no connection."""

    async def scenario():
        async with served(tmp_path, mutual=True, tokens="") as (target, metrics, _):
            strangers = [None, Authority().issue("x"), AUTHORITY.issue("x", days=-2)]
            channels = [open_channel(target, authority=AUTHORITY.certificate, pair=pair) for pair in strangers]
            for channel in [*channels, open_channel(target)]:
                async with channel:
                    assert ("UNAVAILABLE", "") == await ask(channel, LIST_MODELS)
            assert not [counter for counter in metrics.for_model("", "", "").counters.values() if counter.value]

    run(scenario())


def test_certificates_rotate_under_a_running_stream(tmp_path):
    """A stream goes on over its connection. New connections get the new certificate, of another authority."""

    async def scenario():
        first = AUTHORITY.certificate
        serving = served(tmp_path, tls=True, tokens="")
        async with serving as (target, _, credentials), open_channel(target, authority=first) as old:
            watch = old.unary_stream(HEALTH.replace("Check", "Watch"))(b"\x0a\x04live", timeout=30)
            assert b"\x08\x01" == await watch.read()
            other = Authority("another")
            other.issue().write(tmp_path)
            look_twice(credentials)
            async with open_channel(target, authority=other.certificate) as new:
                assert ("OK", "") == await ask(new, LIST_MODELS)
            async with open_channel(target, authority=first) as late:
                assert "UNAVAILABLE" == (await ask(late, LIST_MODELS))[0]
            (tmp_path / "tls.key").write_bytes(b"broken")
            look_twice(credentials)
            async with open_channel(target, authority=other.certificate) as new:
                assert ("OK", "") == await ask(new, LIST_MODELS)
            assert ("OK", "") == await ask(old, LIST_MODELS)
            assert not watch.done()

    run(scenario())
