"""The console tells what was refused, in a real Chromium: to all its own calls, and to an admin those of others."""

import json
import re
import subprocess

import pytest

from console_form import given, judged
from driven_page import WHY_NOT
from process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
TOKENS = """web call,metrics token-of-the-caller
ops call,metrics,admin token-of-the-operator
team-a call token-of-the-team
"""
HOSTILE = "<img src=x onerror='document.title=1'>"
OWN = "[...document.querySelectorAll('.words')].map((each) => each.firstChild.textContent)"
ALL = "[...document.querySelectorAll('details tbody tr')].map((each) => [...each.children].map((at) => at.textContent))"


@pytest.fixture(scope="module")
def server(demo_repository, tmp_path_factory):
    """A model whose callers have names."""
    home = tmp_path_factory.mktemp("named")
    (home / "models").mkdir()
    (home / "models" / "en-es").symlink_to(demo_repository / "en-es")
    (home / "tokens").write_text(TOKENS)
    (home / "tokens").chmod(0o600)
    settings = {"api_port": 0, "console": "true", "admin": "true", "admin_port": 0, "tokens": home / "tokens"}
    with ServerProcess(home / "models", **settings) as server:
        server.api = server.wait_for("listening")["api"]
        server.wait_for("ready")
        yield server


def known(page, server, token, address="", **more):
    """The page is of a caller."""
    page.open(url=f"http://{server.api}/#{address}", **more)
    page.until("document.querySelector('dialog').open")
    page.write(on="#token", text=token)
    page.press(key="Enter")
    page.until("!document.querySelector('dialog').open")


def asked(server, token, text):
    """Somebody else asks for a translation."""
    headers = ["-H", "content-type: application/json", "-H", f"authorization: Bearer {token}"]
    url = f"http://{server.api}/weft.v1.TranslationService/Translate"
    subprocess.run(["curl", "-s", "-o", "/dev/null", *headers, "-d", json.dumps({"text": text}), url], check=True)


def refused(page, server, text):
    """The form is asked a text that is refused, and the state is shown."""
    page.see(what="location.hash = '/en-es@1/translate'")
    page.until("document.querySelector('form.ask')")
    given(page, None, {"text": text})
    page.click(on="button.main")
    page.until("document.querySelector('.answer [role=alert]')")
    words = page.see(what="document.querySelector('.answer [role=alert]').childNodes[2].textContent")
    page.see(what="location.hash = '/state'")
    page.until("document.querySelector('table.state')")
    return words


def test_the_page_s_own_refusals_have_their_words(server, page):
    """The last one first, with the call, the reason and the field. What comes again stands once. A reload forgets."""
    known(page, server, "token-of-the-caller", "/state")
    page.until("document.querySelector('table.state')")
    assert [] == page.see(what=OWN)
    long = refused(page, server, HOSTILE * 40)
    longer = refused(page, server, HOSTILE * 50)
    assert longer == refused(page, server, HOSTILE * 50)

    assert [longer, long] == page.see(what=OWN)
    assert "the model takes 64" in long
    assert page.text(".words small").endswith(" StreamTranslate · INPUT_TOO_LONG · text")
    assert None is page.text("details:has(tbody)")
    page.reload()
    page.until("document.querySelector('table.state')")
    assert [] == page.see(what=OWN)


def test_whoever_opens_the_page_is_refused_nothing(server, page):
    """It learns that there are tokens, and asks for one, before it calls. A wrong one counts."""
    sent = ["-H", "authorization: Bearer token-of-the-caller", f"http://{server.api}/console/metrics"]

    def refused():
        told = subprocess.run(["curl", "-s", *sent], check=True, capture_output=True, text=True).stdout
        return {line for line in told.splitlines() if line.startswith("weft_rejected_total") and "TOKEN" in line}

    before = refused()
    page.open(url=f"http://{server.api}/")
    page.until("document.querySelector('dialog').open")
    assert (before, True) == (refused(), page.see(what="document.querySelector('dialog .error').hidden"))
    page.write(on="#token", text="not-the-token-of-anybody")
    page.press(key="Enter")
    page.until("!document.querySelector('dialog .error').hidden")
    assert ["TOKEN_UNKNOWN"] == [re.search(r'reason="(\w+)"', line)[1] for line in refused() - before]


def test_the_page_keeps_a_few(server, page):
    """Twenty: the oldest goes."""
    known(page, server, "token-of-the-caller", "/state")
    page.until("document.querySelector('table.state')")
    page.see(
        what="""import('/console/refusals.js').then(({ noteRefusal }) => {
        for (let number = 0; number < 25; number++) noteRefusal({ asked: 'Classify', message: `number ${number}` });
    })"""
    )
    assert [f"number {number}" for number in range(24, 4, -1)] == page.see(what=OWN)


def test_an_admin_sees_whose_calls_were_refused(server, page):
    """By name, call, model and reason, once it is opened. It goes on by itself, and has no word of a request."""
    asked(server, "token-of-the-team", f"{HOSTILE} secret " * 40)
    known(page, server, "token-of-the-operator", "/state")
    page.until("document.querySelector('table.state')")
    assert [] == page.see(what=ALL)
    page.click(on="details summary")
    page.until(f"{ALL}.length")
    rows = page.see(what=ALL)
    (row,) = [each for each in rows if each[1] == "team-a"]
    assert ["team-a", "Translate", "en-es 1", "INPUT_TOO_LONG", "INVALID_ARGUMENT", "1"] == row[1:]
    assert "secret" not in page.text("main")
    asked(server, "token-of-the-team", "")
    page.until(f"{ALL}[0][4] === 'EMPTY_INPUT'")
    judged(page, server)


def test_who_is_no_admin_is_told_so_once(server, page):
    """It is asked for when it is opened, and not again and again. Another token shows it."""
    number = "[...document.querySelectorAll('.outputs li')].find((each) => each.textContent.startsWith('ROLE_MISSING'))"
    known(page, server, "token-of-the-caller", "/state")
    page.until("document.querySelector('table.state')")
    assert None is page.see(what=f"{number}?.textContent ?? null")
    page.click(on="details summary")
    page.until("document.querySelector('details [role=alert]')")
    assert "'web' lacks the role admin, which this needs" == page.text("details [role=alert]")
    page.until(f"{number}")
    page.see(what="new Promise((done) => setTimeout(done, 5000))")
    assert "ROLE_MISSING1" == page.see(what=f"{number}.textContent")
    page.click(on="header button")
    page.write(on="#token", text="token-of-the-operator")
    page.press(key="Enter")
    page.until("!document.querySelector('details [role=alert]') && document.querySelector('table.state')")
    page.click(on="details summary")
    page.until(f"{ALL}.length")
    assert ["web", "Console", "", "ROLE_MISSING", "PERMISSION_DENIED", "1"] in [row[1:] for row in page.see(what=ALL)]


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light"), (2560, "dark")])
def test_it_fits_each_width(server, page, width, scheme):
    """From a telephone to a wide screen, and each text has contrast."""
    known(page, server, "token-of-the-operator", width=width, scheme=scheme)
    refused(page, server, HOSTILE * 40)
    page.click(on="details summary")
    page.until(f"{ALL}.length")

    assert width >= page.see(what="document.documentElement.scrollWidth")
    assert [] == page.axe()
