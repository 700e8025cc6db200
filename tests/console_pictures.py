"""Takes the pictures of docs/console.md, of a server of the demo models: `console_pictures.py HOST:PORT`."""

import json
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from driven_page import DrivenPage

ROOT = Path(__file__).parents[1]
SCENE = ROOT / "export/checkpoints/scenes/examples/a-large-red-cross-above-a-small-yellow-circle.png"
SHAPES = ROOT / "export/checkpoints/scenes-answers/examples/green-square-purple-triangle.png"
# Name, model and what it is asked, colors, size, and the token that is pointed at.
PICTURES = (
    ("light", "en-es@1/translate", "light", (1280, 860), 2),
    ("dark", "scenes@1/caption", "dark", (1280, 940), 4),
    ("narrow", "tags@1/tag", "light", (390, 844), 0),
    ("wide", "commands@1/transcribe", "dark", (1920, 860), 3),
    ("question", "scenes-answers@1/answer", "light", (1280, 1000), 3),
)


def take(page, api, name, asked, scheme, size, token):
    """Ask, point at a token, and take the picture."""
    page.open(url=f"http://{api}/#/{asked}", scheme=scheme, width=size[0], height=size[1])
    page.until("document.querySelector('form.ask')")
    files = {
        "caption": SCENE,
        "answer": SHAPES,
        "transcribe": ROOT / "export/checkpoints/commands/examples/eighty-eight-fifty-five.wav",
    }
    if file := files.get(asked.rpartition("/")[2]):
        page.upload(on="input[type=file]", files=[str(file)])
        page.until("document.querySelector('.preview').firstChild")
    if asked.endswith("/answer"):
        page.write(on="aria/Question[role='textbox']", text="what is left of the purple triangle?")
    page.click(on="button.main")
    page.until("document.querySelector('.facts')")
    if token:
        page.hover(on=f".chips:not(.source) .chip:nth-child({token})")
    else:
        page.see(what="document.querySelector('#answer').scrollIntoView({block: 'start'})")
    page.see(what="new Promise((done) => setTimeout(done, 400))")
    keep(page, name, 256)


def take_tree(page, api):
    """Four answers of a search, and the way of the third."""
    page.open(url=f"http://{api}/#/pydocs@1/generate", scheme="light", width=1280, height=640)
    page.until("document.querySelector('form.ask')")
    page.see(what="document.querySelector('.settings').open = true")
    page.see(
        what="""(() => {
        const at = [...document.querySelectorAll('.field')].find((each) => each.textContent.startsWith('How tokens'));
        at.querySelector('select').value = 'beams';
        at.querySelector('select').dispatchEvent(new Event('change'));
    })()"""
    )
    for name, number in (("num_beams", "8"), ("num_outputs", "5"), ("max_new_tokens", "8")):
        page.write(on=f"aria/{name}", text=number)
    page.see(what="document.querySelector('.settings').open = false")
    page.click(on="button.main")
    page.until("document.querySelector('.tree')")
    page.see(what="document.querySelector('.tree').parentElement.scrollIntoView()")
    page.focus(on=".tree ul ul ul ul ul .leaf")
    page.see(what="new Promise((done) => setTimeout(done, 400))")
    keep(page, "tree", 128)


def keep(page, name, num_colors):
    """Take the picture, in few colors."""
    path = ROOT / "docs" / "images" / f"console-{name}.png"
    page.shot(path=str(path))
    Image.open(path).convert("RGB").quantize(num_colors, dither=Image.Dither.NONE).save(path, optimize=True)


def take_state(page, api):
    """The state, while two models are asked."""
    page.open(url=f"http://{api}/#/state", scheme="light", width=1280, height=690)
    calls = {"en-es": ("TranslationService/Translate", {"text": "the old women are not buying cheap apples"}),
             "pydocs": ("GenerationService/Generate", {"text": "Return a list of"})}  # fmt: skip
    ends = time.monotonic() + 12

    def ask(name):
        call, body = calls[name]
        request = urllib.request.Request(f"http://{api}/weft.v1.{call}", json.dumps(body).encode())
        request.add_header("content-type", "application/json")
        while time.monotonic() < ends:
            urllib.request.urlopen(request).read()

    with ThreadPoolExecutor(8) as pool:
        asked = pool.map(ask, [*calls] * 4)
        page.see(what="new Promise((done) => setTimeout(done, 9000))")
        keep(page, "state", 64)
        list(asked)


if __name__ == "__main__":
    with DrivenPage() as browser:
        take_state(browser, sys.argv[1])
        take_tree(browser, sys.argv[1])
        for each in PICTURES:
            take(browser, sys.argv[1], *each)
