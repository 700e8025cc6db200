"""Whether this process may have as many files open as its connections take, and the server itself."""

import resource
from collections.abc import Iterator

from weft_server.checks.finding import ERROR, OK, Finding
from weft_server.config import ServerConfig, both_names

# What the server keeps for itself: 64 connections to each address of HTTP, bundles that load, processes that it starts.
# At rest it has about twenty files open.
RESERVED = 256
_ENDLESS = resource.RLIM_INFINITY


def look_at_open_files(config: ServerConfig) -> Iterator[Finding]:
    """Refuse more connections than there may be open files. Without some for itself, no probe would be answered."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _needed(config)
    if most == _ENDLESS or most >= needed:
        yield Finding(OK, "connections", f"at most {config.max_connections}, for which {needed} open files are enough")
        return
    names = both_names("max_connections")
    says = f"{names}: {config.max_connections} need {needed} open files, and this process may have {most}"
    fewer = (most - RESERVED) // config.num_call_ports
    mend = "raise the limit: `ulimit -n 65536` as root, LimitNOFILE=65536 in a unit of systemd"
    yield Finding(ERROR, "connections", says, f"give {fewer} or fewer, or {mend}" if fewer > 0 else mend)


def raise_limit(config: ServerConfig) -> None:
    """Let this process have so many files open, as far as it may without root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _needed(config) if hard == _ENDLESS else min(_needed(config), hard)
    if soft != _ENDLESS and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _needed(config: ServerConfig) -> int:
    return RESERVED + config.num_call_ports * config.max_connections
