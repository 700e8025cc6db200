"""A page in a real Chromium, driven step by step by `tests/clients/page.mjs`."""

import json
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / "build" / "clients"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
# Why none can be driven here, or nothing.
WHY_NOT = (
    "needs chromium or google-chrome"
    if not CHROMIUM
    else "needs Node 20 and `make test-clients`"
    if not (shutil.which("node") and (HOME / "node_modules" / "axe-core").exists())
    else ""
)


class DrivenPage:
    """A method for each step of page.mjs. A step that fails raises."""

    def __init__(self, *flags):
        self._flags = flags

    def __enter__(self):
        shutil.copy(ROOT / "tests" / "clients" / "page.mjs", HOME)
        self._node = subprocess.Popen(
            ["node", "page.mjs", CHROMIUM, *self._flags],
            cwd=HOME,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_):
        self._node.stdin.close()
        self._node.wait(60)
        self._node.stdout.close()

    def __getattr__(self, step):
        def take(**about):
            self._node.stdin.write(json.dumps({"step": step, **about}) + "\n")
            self._node.stdin.flush()
            answer = json.loads(self._node.stdout.readline())
            assert "error" not in answer, f"{step} {about}: {answer['error']}"
            return answer["seen"]

        return take

    def until(self, expression):
        """Wait until an expression of the page is true."""
        self.__getattr__("until")(**{"is": expression})

    def text(self, selector):
        """What an element says, or None if there is none."""
        return self.see(what=f"document.querySelector({json.dumps(selector)})?.textContent ?? null")

    def texts(self, selector):
        """What each of some elements says."""
        return self.see(what=f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.textContent)")

    def lit(self, selector):
        """What those of some elements say that are lit."""
        return self.texts(f"{selector}.lit")
