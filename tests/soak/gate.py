"""What a soak has to keep, and whether it did.

Of memory the gate wants that it grows by less than ALLOWED_MB in the time that is measured. It takes the slope's 95 %
interval times that time, and says one of three things:

- `leaks`: all of the interval is above. The soak fails.
- `bounded`: all of it is below. That is what 95 % can prove.
- `not proven`: the bound is inside. The soak was too short, or the memory too restless. It does not fail,
  or one could try nothing for a few minutes. But it is no proof, and is not called one.

So the bound is as strict as the soak is long: 200 MB an hour in 3 minutes, 20 in 30 minutes, 0.4 in a day. It is not
zero, because an allocator goes on to fill its gaps, and no run can prove a slope of zero. The verdict also says how
many bytes kept of each call would have been found, with this interval and as many calls.
"""

from typing import NamedTuple

from accounts import differences
from slope import slope_of

ALLOWED_MB = 10.0
# Calls that may be refused for the load, as a share. With more, the machine is too slow for what is asked, and the soak
# says little.
MAX_REFUSED = 0.01


class Verdict(NamedTuple):
    """One thing to keep, what was found, and whether that is well."""

    what: str
    found: str
    is_kept: bool


def memory(slope, hours):
    """The word for a slope over some hours."""
    if slope.low * hours > ALLOWED_MB:
        return "leaks"
    return "bounded" if slope.high * hours < ALLOWED_MB else "not proven"


def judge_memory(soak):
    """The verdict on the samples."""
    times = [each.at_s for each in soak.samples]
    hours = (times[-1] - times[0]) / 3600
    slope = slope_of(times, [each.rss_mb for each in soak.samples])
    word = memory(slope, hours)
    num_calls = sum(call.stretch == 1 for call in soak.calls)
    found_mb = ALLOWED_MB + (slope.high - slope.low) / 2 * hours
    return Verdict(
        "memory",
        f"{word}: {slope.per_hour:+.1f} MB an hour, 95 % {slope.low:+.1f} to {slope.high:+.1f}, bound "
        f"{ALLOWED_MB / hours:.1f}; {1e6 * found_mb / num_calls:.0f} bytes a call would be found",
        word != "leaks",
    )


def judge(soak):
    """The verdicts."""
    lost = [call for call in soak.calls if call.is_lost]
    wrong = [call for call in soak.calls if call.is_wrong]
    num_refused = sum(call.is_refused for call in soak.calls)
    differ = differences(soak)
    before, after = soak.before, soak.after
    # Pools of threads fill up as they are needed, those of gRPC after minutes still.
    most = max(each.threads for each in soak.samples[: len(soak.samples) // 2])
    return [
        Verdict("lost", _some(lost), not lost),
        Verdict("wrong", _some(wrong), not wrong),
        Verdict("refused for the load", str(num_refused), num_refused <= MAX_REFUSED * len(soak.calls)),
        Verdict("accounts of clients and server", "; ".join(differ) or "agree", not differ),
        judge_memory(soak),
        Verdict("gauges at rest", str(after.gauges or "zero"), not after.gauges),
        Verdict("open files at rest", f"{before.fds} before, {after.fds} after", after.fds <= before.fds),
        Verdict("threads at rest", f"{after.threads}, at most {most} in the first half", after.threads <= most),
        Verdict("swaps, kills, server's log", _some(soak.errors) if soak.errors else "no error", not soak.errors),
    ]


def _some(found):
    """How many there are, and the first of them."""
    return f"{len(found)}{': ' if found else ''}{', '.join(map(str, found[:3]))}"
