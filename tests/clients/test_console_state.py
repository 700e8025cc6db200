"""The console's state in a real Chromium: its numbers are those of the metrics, and says why a model is not ready."""

import json

import pytest

from console_form import console_of, judged, opened
from driven_page import WHY_NOT

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
LIST = "/weft.v1.ModelService/ListModels"
WHY = "<img src=x onerror='document.title=1'> is no graph"
# Bounds of a histogram, and how many were at most that long, before and now.
BOUNDS = ["0.1", "0.5", "1", "+Inf"]
BEFORE, NOW = [1, 1, 2, 2], [5, 15, 22, 22]


@pytest.fixture(scope="module")
def server(demo_repository, tmp_path_factory):
    """A writer, and a classifier that has no slots."""
    repository, points = tmp_path_factory.mktemp("some"), tmp_path_factory.mktemp("points")
    for name in ("pydocs", "topics"):
        (repository / name).symlink_to(demo_repository / name)
    with console_of(repository, points) as server:
        yield server


def cells(page, model):
    """A row of the table, by the names of its columns."""
    names = page.texts(".state thead th")
    rows = page.see(what="[...document.querySelectorAll('.state tbody tr')].map((row) => "
                    "[...row.children].map((each) => each.textContent))")  # fmt: skip
    return next(dict(zip(names, row, strict=True)) for row in rows if row[0].startswith(model))


def exposed(counts):
    """A histogram as a page of metrics has it, of a model whose name needs escapes."""
    return "".join(
        f'weft_a_seconds_bucket{{le="{bound}",model="a \\"b\\" \\\\",version="3"}} {count}\n'
        for bound, count in zip(BOUNDS, counts, strict=True)
    )


@pytest.mark.parametrize(
    ("share", "expected"),
    # histogram_quantile of what came between: 4, 10, 6 and 0 of 20, each bucket filled evenly.
    [(0.1, 0.05), (0.2, 0.1), (0.5, 0.34), (0.95, 11 / 12)],
)
def test_percentiles_are_those_of_prometheus(server, page, share, expected):
    """Of what was observed between two pages, as its histogram_quantile says."""
    page.open(url=f"http://{server.api}/")
    asked = f"""import("/console/state.js").then(({{ quantile, samplesOf }}) => {{
        const [before, now] = {json.dumps([exposed(BEFORE), exposed(NOW)])}.map(samplesOf);
        return [quantile({share}, before, now, "a_seconds", {{ name: 'a "b" \\\\', version: 3 }}),
            quantile({share}, now, now, "a_seconds", {{ name: 'a "b" \\\\', version: 3 }})];
    }})"""
    assert [pytest.approx(expected), None] == page.see(what=asked)


def test_what_runs_and_waits_is_told(server, page):
    """With its slots, while it does. A classifier has none."""
    server.say("pydocs.decode", "hold 1")
    opened(page, server, "pydocs", "generate")
    page.click(on="button.main")
    server.wait_until(lambda: server.is_held("pydocs.decode"), what="a step")
    page.beside(url=f"http://{server.api}/#/state")
    try:
        page.until("document.querySelector('.state')")
        page.until("[...document.querySelectorAll('.state td')].some((each) => each.textContent.startsWith('1 / '))")
        row, other = cells(page, "pydocs"), cells(page, "topics")
        assert ("ready", "1", "0") == (row["State"].strip(), row["Running"], row["Waiting"])
        assert ("1 / 32", "fp32") == (row["Slots"], row["Precision"])
        assert ("\u2013", "0") == (other["Slots"], other["Running"])
    finally:
        server.free("pydocs.decode")


def test_a_model_that_is_refused_says_why(server, page):
    """In its row and above its form, as a text: who has no pointer reads it too."""
    opened(page, server, "topics", "classify", width=360)
    refused = {
        "name": "topics",
        "version": 1,
        "task": "TASK_CLASSIFY_TEXT",
        "state": "MODEL_STATE_FAILED",
        "error": WHY,
    }
    page.answer(path=LIST, json={"models": [refused]})
    page.until("document.querySelector('h1 ~ .error')?.textContent")
    assert WHY == page.text("h1 ~ .error")
    page.see(what="location.hash = '/state'")
    page.until("document.querySelector('.state')")
    assert f" refused{WHY}" == cells(page, "topics")["State"]
    assert page.see(what="document.querySelector('.why').getBoundingClientRect().height > 10")
    assert 360 >= page.see(what="document.documentElement.scrollWidth")
    judged(page, server)
