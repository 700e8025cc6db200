"""Settings come from flags, then environment, then defaults, and the manual lists exactly them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pydantic
import pytest

from weft_server.config import ConfigError, ServerConfig, env_name, flag_name, read_config
from weft_server.setting_types import Origins, Port, TenantKey, TenantWeights

WEFT = Path(sys.executable).with_name("weft")
TYPES = dict.fromkeys((str | None, Origins | None, TenantKey | None, TenantWeights | None), "TEXT")
TYPES |= {
    Path | None: "PATH",
    Port | None: "INTEGER",
    int: "INTEGER",
    float: "FLOAT",
    Path: "PATH",
    str: "TEXT",
}
PAGE = Path(__file__).parents[2] / "docs/settings.md"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch):
    for name in os.environ:
        if name.startswith("WEFT_"):
            monkeypatch.delenv(name)


def test_flag_wins_over_environment_wins_over_default(monkeypatch):
    """A flag wins over its variable, a variable over the default, and None is a flag not given."""
    monkeypatch.setenv("WEFT_SLOTS", "8")
    monkeypatch.setenv("WEFT_REFLECTION", "true")
    monkeypatch.setenv("WEFT_HOST", "")
    config = read_config(repository="models", slots=None, port=0)
    assert (8, True, 0, "127.0.0.1") == (config.slots, config.reflection, config.port, config.host)
    assert 9 == read_config(repository="models", slots=9).slots


def test_cuda_devices_keep_their_order(monkeypatch):
    """The list of devices is read as it stands. One number is a list too."""
    monkeypatch.setenv("WEFT_CUDA_DEVICE", "3,0,12")
    assert [3, 0, 12] == read_config(repository="models").cuda_devices
    assert [1] == read_config(repository="models", cuda_device="1").cuda_devices


def test_config_is_frozen():
    """Nothing changes a setting after the start."""
    with pytest.raises(pydantic.ValidationError):
        read_config(repository="models").slots = 2


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({}, r"no model repository is given: `weft serve REPOSITORY`, --repository or WEFT_REPOSITORY"),
        ({"slots": 0}, r"--slots \(WEFT_SLOTS\): input should be greater than or equal to 1, not 0"),
        ({"port": 70000}, "--port"),
        ({"drain_timeout_s": float("inf")}, "--drain-timeout-s"),
        ({"drain_delay_s": -1}, "--drain-delay-s"),
        ({"log_format": "xml"}, "--log-format"),
        ({"tenant_weights": "a=1,b=2,a=3"}, "must name each tenant once"),
        ({"tenant_key": "X-Tenant"}, r"--tenant-key \(WEFT_TENANT_KEY\): must be 1 to 64 of a-z"),
        ({"tenant_key": "authorization"}, "must be a key that has no other meaning, for instance `x-tenant`"),
        ({"tenant_key": "weft-priority"}, "must be a key that has no other meaning"),
        ({"tenant_key": "tenant-bin"}, "must be a key that has no other meaning"),
        ({"prefix_cache_mb": -1}, r"--prefix-cache-mb \(WEFT_PREFIX_CACHE_MB\): .* or equal to 0, not -1"),
        ({"prefix_cache_mb": 2**20 + 1}, "--prefix-cache-mb"),
        ({"prefix_cache_mb": 0.5}, "--prefix-cache-mb"),
        ({"cuda_device": "0,0"}, r"--cuda-device \(WEFT_CUDA_DEVICE\): must name each device once, not '0,0'"),
        ({"cuda_device": "-1"}, "must be numbers from 0 to 63, such as `0` or `0,1`, not '-1'"),
        ({"cuda_device": "64"}, "must be numbers from 0 to 63"),
        ({"cuda_device": "0,"}, "must be numbers from 0 to 63"),
        ({"cuda_device": "0, 1"}, "must be numbers from 0 to 63"),
        ({"cors_origins": "a.org"}, r"must be `\*`, or origins such as"),
        ({"cors_origins": "https://a.org/"}, r"must be `\*`, or origins such as"),
        ({"cors_origins": "*,https://a.org"}, r"must be `\*`, or origins such as"),
        ({"cuda_device": "all"}, "must be numbers from 0 to 63"),
        ({"verify_golden": False}, "--verify-golden"),
    ],
)
def test_bad_settings_are_refused_by_name(flags, text):
    """A missing, unknown or out-of-range setting is one line that names the flag and the variable."""
    with pytest.raises(ConfigError, match=text):
        read_config(**({"repository": "models"} | flags if flags else {}))


def test_kubernetes_service_link_is_explained(monkeypatch):
    """WEFT_PORT=tcp://..., which Kubernetes sets for a Service called weft, is told apart from a typing error."""
    monkeypatch.setenv("WEFT_PORT", "tcp://10.0.0.7:7070")
    with pytest.raises(ConfigError, match="enableServiceLinks: false"):
        read_config(repository="models")


def test_the_manual_lists_exactly_the_settings():
    """The table in docs/settings.md has each field's flag, variable, default and description, in order."""
    expected = []
    for name, field in ServerConfig.model_fields.items():
        default = "" if field.is_required() or field.default is None else f"`{str(field.default).lower()}`"
        expected.append(f"| `{flag_name(name)}` | `{env_name(name)}` | {default} | {field.description} |")
    assert expected == re.findall(r"^\| `--.*$", PAGE.read_text(), re.MULTILINE)


def run(*arguments, command=(sys.executable, "-m", "weft_server"), **environment):
    """What a command said and its exit code; `environment` beside PATH."""
    environment = {"PATH": os.environ["PATH"]} | environment
    return subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [(str(WEFT), "serve"), (sys.executable, "-m", "weft_server")])
@pytest.mark.parametrize("columns", ["80", "50"])
def test_the_help_shows_each_setting_whole(command, columns):
    """As a terminal of that width shows it: flag, type, what it means, variable and default, and nothing is cut off."""
    shown = run("--help", command=command, COLUMNS=columns)

    assert (0, "") == (shown.returncode, shown.stderr)
    assert int(columns) >= max(map(len, shown.stdout.splitlines()))
    for name, field in ServerConfig.model_fields.items():
        (entry,) = re.findall(rf"^  ({flag_name(name)}(?![\w-]).*\n(?:        .*\n)+)", shown.stdout, re.MULTILINE)
        has_default = not (field.is_required() or field.default is None)
        default = f"; default: {str(field.default).replace('False', 'false')}" if has_default else ""
        words = " ".join(entry.split())
        kind = TYPES.get(field.annotation) or "|".join(get_args(field.annotation))
        if field.annotation is bool:
            kind = f"/ --no-{flag_name(name).removeprefix('--')}"
        expected = f"{flag_name(name)} {kind} {field.description} [env var: {env_name(name)}{default}]"
        assert " ".join(expected.split()) == words


@pytest.mark.parametrize(
    ("arguments", "environment", "line"),
    [
        (["--slots", "7.5"], {}, r"--slots (WEFT_SLOTS): input should be a valid integer.*, not '7.5'"),
        ([], {"WEFT_SLOTS": "many"}, r"--slots (WEFT_SLOTS): input should be a valid integer.*, not 'many'"),
        ([], {"WEFT_REFLECTION": "maybe"}, r"--reflection (WEFT_REFLECTION): input should be a valid boolean.*'maybe'"),
        (["--drain-delay-s=nan"], {}, r"--drain-delay-s (WEFT_DRAIN_DELAY_S): input should be a finite.*'nan'"),
        (["--log-level=loud"], {}, r"--log-level (WEFT_LOG_LEVEL): input should be 'debug'.*, not 'loud'"),
        (["--repository", "other"], {}, r"--repository names other, and the folder to serve is .*"),
        ([], {"WEFT_REPOSITORY": "other"}, r"--repository (WEFT_REPOSITORY): .* is empty: a model repository holds .*"),
    ],
)
def test_a_wrong_setting_is_one_line(tmp_path, arguments, environment, line):
    """It names flag and variable whichever was given; the folder wins over its variable, not over its flag."""
    if "is empty" not in line:
        (tmp_path / "m" / "1").mkdir(parents=True)
    ended = run(str(tmp_path), *arguments, **{"WEFT_PORT": "0", "WEFT_HTTP_PORT": "0"} | environment)
    assert (1, "") == (ended.returncode, ended.stdout)
    line = line.replace("(", r"\(").replace(")", r"\)")
    assert re.fullmatch(rf"weft serve: {line}\n", ended.stderr), ended.stderr


def test_the_folder_may_come_alone_or_be_named_the_same_twice(tmp_path):
    """`weft serve FOLDER` is `weft serve --repository FOLDER`."""
    expected = f"weft serve: --repository (WEFT_REPOSITORY): {tmp_path} is empty"
    for arguments in ([str(tmp_path)], ["--repository", str(tmp_path)], [str(tmp_path), f"--repository={tmp_path}/"]):
        assert run(*arguments).stderr.startswith(expected)


@pytest.mark.parametrize("field", ["tls_cert", "tls_key", "tls_client_ca", "tokens"])
@pytest.mark.parametrize("value", ["", " "])
def test_what_protects_the_server_is_not_left_out_by_mistake(monkeypatch, field, value):
    """A flag or a variable without a value is one that somebody meant to set. A flag wins over its variable."""
    said = rf"^{flag_name(field)} \({env_name(field)}\): is given and empty; leave it out to have none$"
    with pytest.raises(ConfigError, match=said):
        read_config(repository="models", **{field: value})
    for name in (env_name(field), env_name(field).lower()):
        monkeypatch.setenv(name, value)
        with pytest.raises(ConfigError, match=said):
            read_config(repository="models")
        assert Path("file") == getattr(read_config(repository="models", **{field: "file"}), field)
        monkeypatch.delenv(name)
    assert getattr(read_config(repository="models"), field) is None


def test_an_empty_setting_is_said_beside_the_others():
    """All that is wrong is said at once."""
    with pytest.raises(ConfigError) as refused:
        read_config(repository="models", tokens="", tls_key="", slots=0)
    assert ["--slots", "--tls-key", "--tokens"] == [line.split()[0] for line in str(refused.value).splitlines()]
