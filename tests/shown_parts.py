"""What the pages that are run show to be typed, part by part: what runs it, or why nobody does.

A part is a block of a programming language, or one line of a shell. It is known by how it begins.
"""

import re

from shown_code import blocks

LANGUAGES = ("python", "js", "html")
SHELL = re.compile(
    r"(?:\$ )?(?:weft|make|curl|helm|kubectl|docker|pip|npm|python3?|protoc|envoy|sudo|systemctl|mkdir|cp|export|"
    r"[./]\S+/bin/\S+) "
)
# Of all pages.
NOT_TYPED = {
    "$ export PATH=": "the tests name .venv/bin themselves",
    "$ make ": "a target, which CI and the nights run",
    "make ": "a target, which CI and the nights run",
    "npm install": "make test-clients installs it",
    "pip install": "it would fetch; make test-clients, or the extra of the tests, installs it",
    "$ pip install": "it would fetch; the test puts there what it would leave",
    "weft serve": "the test's own server runs, with the same flags",
    "$ weft serve": "the test's own server runs",
    "docker ": "no Docker where the tests run; make image runs what the Dockerfiles say, with buildah",
    "kubectl ": "needs a cluster",
    "helm install": "needs a cluster; test_chart.py renders the chart",
}
# By page: what runs it, the name of a test, or why not, a sentence.
PARTS = {
    "README.md": {
        "$ weft generate --chat": "a model of 100 MB, which make demo-real asks this",
        "$ weft ": "test_a_first_page_shows_what_comes",
        "curl localhost:8000": "test_a_first_page_s_http_runs",
        "import openai": "test_a_first_page_s_http_runs",
        "import weft": "test_a_first_page_s_python_runs",
    },
    "docs/start.md": {
        "$ weft generate --chat": "a model of 100 MB, which make demo-real asks this",
        "$ weft ": "test_a_first_page_shows_what_comes",
        "curl localhost:8000": "test_a_first_page_s_http_runs",
        "import openai": "test_a_first_page_s_http_runs",
        "import weft": "test_a_first_page_s_python_runs",
        "weft translate --file": "test_a_first_page_s_file_is_translated_and_goes_on",
    },
    "client/README.md": {
        # What it leaves out has reasons of its own there.
        "$ weft ": "test_each_command_is_answered",
        "weft ": "test_each_command_is_answered",
        "": "test_each_block_of_python_runs",
    },
    "deploy/README.md": {
        "python3 -m venv /opt/weft": "it would write into /opt",
        "/opt/weft/bin/pip": "it would write into /opt",
        "mkdir -p /etc/weft": "it would write into /etc",
        "cp deploy/systemd": "it would write into /etc; test_systemd.py starts the unit's command",
        "systemctl ": "needs systemd as the first process",
    },
    "docs/bring-your-own.md": {
        "weft up my-llama": "the same as the two lines before it; tests/e2e/test_up.py has the command",
        "from weft_export.families.gpt": "test_the_page_prints_a_family_s_tensors",
        "": "test_models_of_ones_own_are_served",
    },
    "docs/errors.md": {"$ weft ": "test_the_page_of_errors_shows_one"},
    "docs/http.md": {
        "$ curl ": "test_the_page_of_http_shows_what_curl_gets",
        "curl -H 'authorization: Bearer TOKEN'": "a server and a token of the reader's",
    },
    "docs/new-family.md": {
        "# export/": "test_the_page_shows_what_stands_in_the_files",
        "# tests/": "test_the_page_shows_what_stands_in_the_files",
        "$ python -m pytest": "make test-converters runs it, with all other kinds",
        "": "test_the_page_leads_to_an_answer",
    },
    "docs/openai.md": {
        "import openai": "test_the_page_of_openai_runs",
        "curl ": "test_the_page_of_openai_runs",
        "weather = ": "no demo model calls functions; tests/server/test_openai_tools.py has some that do",
    },
    "docs/other-languages.md": {
        'const grpc = require("@grpc/grpc-js")': "gRPC for Node is not installed; connect.mjs below makes such calls",
        "import json\nimport os": "test_tritonclient_finds_what_the_page_says",
        "import OpenAI": "test_openai_for_node",
        "from langchain_openai": "test_libraries_over_openai_s_client",
        "import litellm": "test_libraries_over_openai_s_client",
        "import { readFileSync }": "test_connect_for_node",
        "<!doctype html>": "test_a_page_streams_what_a_model_says_of_its_drawing",
        "$ curl -d": "through Envoy; tests/e2e/test_envoy.py makes such calls through a real one",
        "protoc -I proto": "stubs of Go and Java are made where these are",
        ".venv/bin/python deploy/envoy/descriptors.py": "test_connect_for_node",
        "python -m http.server": "the test's own server of pages",
        "sudo ": "it would write into /etc",
        "envoy -c": "tests/e2e/test_envoy.py starts it with that file, at free ports",
    },
    "docs/reading-path.md": {
        "weft export": "test_the_adapter_of_the_reading_path_can_be_made_and_asked",
        "weft translate": "test_the_adapter_of_the_reading_path_can_be_made_and_asked",
        "$ weft ": "test_the_reading_path_can_be_followed_in_order",
        "$ python tests/bench": "it draws what a run of hours has measured",
    },
}


def parts(page):
    """Each part that a page shows."""
    yield from blocks(page, *LANGUAGES)
    for block in blocks(page, "", "sh", "console", "text"):
        for line in block.replace("\\\n", " ").splitlines():
            if SHELL.match(line.strip()) and not re.match(r"weft [\w-]+: ", line.strip()):
                yield line.strip()


def said_of(page, part):
    """What runs a part, or why nobody does; None of one of which nothing is said."""
    known = {**NOT_TYPED, **PARTS[page]}
    begins = [begin for begin in known if part.startswith(begin)]
    return known[max(begins, key=len)] if begins else None
