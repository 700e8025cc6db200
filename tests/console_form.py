"""A server with a console, and what a test does with the form of the console's page."""

from contextlib import contextmanager

from held import Held

SAID = "!document.querySelector('button.main').disabled && document.querySelector('.answer').children.length > 1"


@contextmanager
def console_of(repository, points, **settings):
    """A server of some models that shows a console, once it is ready. Its `api` is where."""
    with Held(repository, points, api_port=0, console="true", **settings) as server:
        server.api = server.wait_for("listening")["api"].replace("127.0.0.1", "localhost")
        server.wait_for("ready")
        yield server


def opened(page, server, model, verb, **more):
    """The page shows what is asked of a model."""
    page.open(url=f"http://{server.api}/#/{model}@1/{verb}", **more)
    page.until(f"document.querySelector('[aria-pressed=true][data-name={verb}]')")


def given(page, file, fields):
    """The form has a file and some texts. A field is found by the name of its label."""
    if file:
        page.upload(on="input[type=file]", files=[str(file)])
        page.until("document.querySelector('.preview').firstChild")
    names = {"text": "Text", "question": "Question", "labels": "Labels of your own", "turns": "Message"}
    for name, text in fields.items():
        page.write(on=f"aria/{names[name]}[role='textbox']", text=text)


def ran(page):
    """It has been asked, and says something."""
    page.click(on="button.main")
    page.until(SAID)


def judged(page, server):
    """Nothing went wrong in the page, no rule of axe is broken, and nobody else was asked."""
    assert {"errors": [], "origins": [f"http://{server.api}"]} == page.judge()
    assert [] == page.axe()
