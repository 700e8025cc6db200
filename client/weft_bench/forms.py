"""The forms in which requests and answers travel by HTTP, by what `--http` calls them."""

from weft_bench.asking import to_binary
from weft_bench.connect_form import ConnectForm, read_json, to_json
from weft_bench.form import Form
from weft_bench.openai_form import OpenAiForm
from weft_bench.workload import Method

FORMS: dict[str, Form] = {
    "proto": ConnectForm("proto", to_binary, Method.read),
    "json": ConnectForm("json", to_json, read_json),
    "openai": OpenAiForm(),
}
