"""Whether the server's account of calls is that of its clients.

1. Calls that nothing cuts short: as many have OK on both sides.
2. Wrong requests: as many by status on both sides. Some are refused before their request id is read.
3. Calls that are cancelled, have a near deadline or a killed client may end on either side first, and some never reach
   the server. It counts no more of them than there were. It may have refused some for its load before they ended.
4. The server's log and its `weft_requests_total` agree, for models that are not swapped away.
"""

from collections import Counter

from caller import SHED
from soaked import SWAPPED

WHOLE = ("none", "slow reader")
CUT = ("cancel", "deadline", "killed")
# How a call may end that is cut short, or refused for the load. All other statuses are of wrong requests.
ENDS = {"OK", "CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", SHED}


def differences(soak):
    """What does not agree, a sentence each."""
    clients = Counter((call.fault, call.code) for call in soak.calls)
    server = Counter()
    for (fault, _, code), count in soak.ended.items():
        server[fault, code] += count
    found = [_differ(f"{fault}: OK", clients[fault, "OK"], server[fault, "OK"]) for fault in WHOLE]
    wrong = {code for _, code in [*clients, *server]} - ENDS
    found += [_differ(code, _sum(clients, code=code), _sum(server, code=code)) for code in sorted(wrong)]
    for fault in CUT:
        most = soak.killed if fault == "killed" else _sum(clients, fault)
        if (count := _sum(server, fault)) > most:
            found.append(f"{fault}: clients made {most}, the server counted {count}")
    told = Counter()
    for (_, model, code), count in soak.ended.items():
        if model not in {SWAPPED, ""}:
            told[model, code] += count
    for key in sorted({*told, *soak.counted}):
        if told[key] != soak.counted[key]:
            found.append(f"{' '.join(key)}: the log has {told[key]}, weft_requests_total is {soak.counted[key]}")
    return [each for each in found if each]


def _sum(counts, fault=None, code=None):
    """Calls of a fault, with a status."""
    return sum(count for (f, c), count in counts.items() if fault in {None, f} and code in {None, c})


def _differ(what, clients, server):
    return "" if clients == server else f"{what}: clients counted {clients}, the server {server}"
