"""A template of a hostile bundle takes no memory and no time, and reaches nothing but what it is given."""

import time
import tracemalloc
from contextlib import suppress

import pytest

from weft_proto.chat import meter
from weft_proto.chat.faults import BeyondLimit, NoTemplate, TemplateFailed
from weft_proto.chat.meter import BASE_CHARS, Meter
from weft_proto.chat.template import Template

# A rendering of no messages makes BASE_CHARS characters at most, and an entry of a list is not larger than five bytes
# for each character that it counts.
MOST_BYTES = 6 * BASE_CHARS


def rendered(source, on=None, **given):
    """What a template makes, on a meter."""
    return Template(source).render(given, on or Meter())


GREEDY = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a filtered loop": "{% set r = range(99999) %}{% for a in r %}{% for b in r if false %}{% endfor %}{% endfor %}",
    "output": "{% for a in range(99999) %}" + "x" * 1000 + "{% endfor %}",
    "a product": "{{ 'a' * 10**9 }}",
    "a product the other way": "{{ 10**9 * [1] }}",
    "a product of nothing": "{% for a in range(99999) %}{% for b in range(99999) %}{{ '' }}{% endfor %}{% endfor %}",
    "a power": "{{ 10 ** (10 ** 9) }}",
    "products": "{% set ns = namespace(n=3) %}{% for a in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "sums of texts": "{% set ns = namespace(t='ab') %}{% for a in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
    "sums of lists": "{% set ns = namespace(t=[1]) %}{% for a in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
    "joined": "{% set ns = namespace(t='ab') %}{% for a in range(99) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
    "kept": "{% set ns = namespace(t=[]) %}{% for a in range(99999) %}{% set ns.t = [ns.t, 'x' ~ a] %}{% endfor %}",
    "captured": "{% set ns = namespace(t='ab') %}{% for a in range(99) %}{% set ns.t %}{{ ns.t }}{{ ns.t }}{% endset %}"
    "{% endfor %}",
    "a macro": "{% set ns = namespace(t='ab') %}{% macro m() %}{{ ns.t * 9 }}{% endmacro %}"
    "{% for a in range(99) %}{% set ns.t = m() %}{% endfor %}",
    "a macro's own text": "{% macro m() %}" + "x" * 1000 + "{% endmacro %}{% set ns = namespace(t=[]) %}"
    "{% for a in range(99999) %}{% set x = m() %}{% endfor %}",
    "recursion": "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "wide recursion": "{% macro m() %}" + "{{ m(varargs, varargs) }}" * 9 + "{% endmacro %}{{ m(1) }}",
    "recursion of a loop": "{% for a in [1] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "lists of lists": "{% set ns = namespace(t=[0]) %}{% for a in range(31) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}"
    "{{ ns.t }}",
    "deep lists": "{% set ns = namespace(t=[0]) %}{% for a in range(9999) %}{% set ns.t = [ns.t] %}{% endfor %}",
    "a deep key": "{% set ns = namespace(t=0) %}{% for a in range(99999) %}{% set ns.t = (ns.t,) %}{% endfor %}"
    "{{ {ns.t: 1} }}",
    "deep pairs": "{% set ns = namespace(t=0) %}{% for a in range(99999) %}"
    "{% for pair in {1: ns.t}.items() %}{% set ns.t = pair %}{% endfor %}{% endfor %}{{ {ns.t: 1} }}",
    "equal lists": "{% set ns = namespace(a=[0], b=[0]) %}{% for i in range(31) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
    "replaced": "{{ ('a' * 99999) | replace('a', 'b' * 99999) }}",
    "replaced by the method": "{{ ('a' * 99999).replace('', 'b' * 99999) }}",
    "joined by the filter": "{{ range(99999) | join('b' * 99999) }}",
    "joined by the method": "{{ ('b' * 99999).join('a' * 99999) }}",
    "justified": "{{ 'a'.ljust(10**9) }}",
    "zeros": "{{ 'a'.zfill(10**9) }}",
    "indented": "{{ ('a\n' * 99999) | indent(64) }}",
    "json": "{{ ('[' * 999999) | tojson }}",
    "split": "{% set ns = namespace(t=[]) %}{% for a in range(99) %}{% set ns.t = ns.t + ('a ' * 9999).split() %}"
    "{% endfor %}",
    "letters": "{% set ns = namespace(t=[]) %}{% for a in range(99) %}{% set ns.t = [ns.t, ('é' * 99999) | list] %}"
    "{% endfor %}",
    "slices": "{% set t = 'a' * 99999 %}{% set ns = namespace(t=[]) %}{% for a in range(9999) %}"
    "{% set ns.t = [ns.t, t[a:]] %}{% endfor %}",
    "a filter over many": "{% set r = range(99999) | list %}{% for a in r %}{% set x = r | map('string') | list %}"
    "{% endfor %}",
    "comparisons": "{% set r = range(99999) %}{% for a in r %}{{ 'x' in r }}{{ 'y' in r }}{% endfor %}",
    "a long text to find": "{{ ('a' * 40000).rfind('ab' ~ 'a' * 20000) }}",
    "a long text to split at": "{{ ('a' * 40000).split(sep='ab' ~ 'a' * 20000) }}",
    "many characters to strip": "{{ ('a' * 40000).strip('b' * 1000000 ~ 'a') }}",
    "many characters to trim": "{{ ('a' * 40000) | trim(chars='b' * 1000000 ~ 'a') }}",
    "a long text to replace": "{{ ('a' * 40000) | replace('ab' ~ 'a' * 20000, '') }}",
    "a long text in a text": "{{ 'ab' ~ 'a' * 20000 in 'a' * 40000 }}",
    "a long text not in a text": "{{ 'ab' ~ 'a' * 20000 not in 'a' * 40000 }}",
    "a long text tested in a text": "{{ ['ab' ~ 'a' * 20000] | select('in', 'a' * 40000) | list }}",
    "a long number": "{{ ('f' * 1000000) | int(base=16) }}",
    "a number of many bits": "{% set x = ('f' * 300) | int(base=16) %}",
    "an attribute of many": "{{ [[1]] | sort(attribute='0,' * 100000) }}",
    "an attribute by its place": "{{ [[1]] | sort(false, false, '0,' * 100000) }}",
    "an attribute of a map": "{{ [[1]] | map(attribute='0.' * 100000) | list }}",
    "an attribute that is selected": "{{ [[1]] | selectattr('0.' * 100000) | list }}",
    "a filter's tests": "{% set r = range(99999) %}{% for a in r %}{{ r | select('in', r) | list }}{% endfor %}",
}


@pytest.mark.parametrize("name", GREEDY)
def test_a_template_cannot_take_memory_or_time(monkeypatch, name):
    """It is ended before it has made more than it may, by its count or by the time of its thread."""
    monkeypatch.setattr(meter, "MAX_CPU_S", 0.3)  # the law is the same, and the test is quick
    template = Template(GREEDY[name])
    tracemalloc.start()
    try:
        with pytest.raises(BeyondLimit):
            template.render({}, Meter())
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


FORBIDDEN = [
    "{{ ''.__class__ }}{{ ''.__class__.mro() }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ [].append(1) }}",
    "{{ {}.update(a=1) }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{:999999999}'.format(1) }}",
    "{{ '%999999999d' % 1 }}",
    "{{ (1).to_bytes(999999999, 'big') }}",
    "{{ 'a'.encode() }}",
    "{{ 'a\t'.expandtabs(999999999) }}",
    "{{ 'a' | center(999999999) }}",
    "{{ '%999999999d' | format(1) }}",
    "{{ 'a' | attr('__class__') }}",
    "{{ 1 | round(999999999, 'floor') }}",
    "{{ 'a' | indent(999999999) }}",
    "{{ {} | tojson(indent=999999999) }}",
    "{{ range(10**9) }}",
    "{{ lipsum(999999) }}",
    "{{ namespace(_a=1)._a }}{{ namespace()._Namespace__attrs.x }}",
    "{{ strftime_now('x' * 999) }}",
    "{% macro m() %}{% endmacro %}{{ m.__globals__.x }}",
    "{{ self._TemplateReference__context.environment }}",
    "{{ raise_exception.__globals__['json'] }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ '\\ud800' }}",
    "{{ 1 / 0 }}",
    "{{ 1e308 * 10 + 'a' }}",
    "{{ 'a'.join(5) }}",
    "{{ messages[0].role.nothing.at_all }}",
    "{{ 5() }}",
    "{{ 'a' | nothing }}",
    "{% set x = [1 - 10**12] | map('weft spend') | list %}",
    "{% set x = [[1]] | map('weft each', -9) | list %}",
    "{{ {}.keys().mapping.x }}",
    "{{ {1: 2}.keys() - [] }}",
    "{{ {}[(1, 2)] }}",
    "{{ [1] == [1] == [1] == [1] }}",
]


@pytest.mark.parametrize("source", FORBIDDEN)
def test_what_a_template_may_not_do_fails(source):
    """It ends as a failure of the template: nothing of Python is reached, and nothing is made of any width."""
    with pytest.raises((TemplateFailed, NoTemplate)):
        rendered(source, messages=[{"role": "user", "content": "a"}])


REFUSED = {
    "{% include 'x' %}": "line 1 has what a chat's template may not have: include",
    "{% extends 'x' %}": "line 1 has what a chat's template may not have: extends",
    "\n{% import 'x' as y %}": "line 2 has what a chat's template may not have: import",
    "{% block a %}{% endblock %}": "line 1 has what a chat's template may not have: block",
    "{% autoescape true %}{% endautoescape %}": "may not have: scopedevalcontextmodifier",
    "{{": "unexpected 'end of template'",
    "{% nothing %}": "Encountered unknown tag 'nothing'",
    "{{ " + "(" * 30_000 + ")" * 30_000 + " }}": "it is nested too deeply",
    "{{ " + "[" * 30_000 + "]" * 30_000 + " }}": "it is nested too deeply",
    "{{ 1" + "+1" * 30_000 + " }}": "it is nested too deeply",
    "{{ a" + ".a" * 30_000 + " }}": "it is nested too deeply",
    "{{ a" + "|a" * 30_000 + " }}": "it is nested too deeply",
    "{{ not " * 1 + "not " * 15_000 + "a }}": "it is nested too deeply",
    "{% if a %}" * 3_000 + "{% endif %}" * 3_000: "",
    "{% for a in b %}" * 2_000 + "{% endfor %}" * 2_000: "",
    "{{ " + "9" * 60_000 + " }}": "Exceeds the limit",
}


@pytest.mark.parametrize("source", REFUSED, ids=[source[:20].strip() for source in REFUSED])
def test_what_is_no_template_of_a_chat_is_refused(source):
    """With one line that says why; nothing of it is run."""
    with pytest.raises(NoTemplate) as refused:
        Template(source)
    assert REFUSED[source] in str(refused.value)


LARGE = {
    "text": "x" * 65_536,
    "tags": "{{a}}" * 13_000,
    "open": "{{" * 32_000,
    "signs": "{%" * 32_000,
    "comments": "{#" * 32_000,
    "closed comments": "{##}" * 16_000,
    "blanks": " " * 65_000 + "{% if a %}",
    "lines": "\n" * 65_000 + "{% endif %}",
    "minus": "{{-" * 21_000,
    "branches": "{% if a %}" + "{% elif a %}" * 5_000 + "{% endif %}",
    "sets": "{% set a = 1 %}" * 4_000,
    "macros": "{% macro m() %}{% endmacro %}" * 2_000,
    "names": "".join(f"{{{{a{n}}}}}" for n in range(7_000)),
    "strings": "{{ '" + "a" * 65_000 + "' }}",
    "escapes": "{{ '" + "\\" * 65_000 + "' }}",
    "open string": "{{ '" * 16_000,
    "comparisons": "{{ a" + " < a" * 16_000 + " }}",
    "list": "{{ [" + "1," * 32_000 + "] }}",
    "arguments": "{{ f(" + "1," * 32_000 + ") }}",
}


@pytest.mark.parametrize("name", LARGE)
def test_the_largest_templates_are_read_in_time(name):
    """64 KiB of anything is compiled, and rendered or refused, within seconds."""
    started = time.thread_time()
    with suppress(NoTemplate, BeyondLimit, TemplateFailed):
        rendered(LARGE[name])
    seconds = time.thread_time() - started
    assert seconds < 30


def test_a_rendering_ends_when_nobody_waits_any_more():
    """Whoever renders says how that is known, and what is raised then."""

    def check_wanted():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        rendered("{% for a in range(9) %}{% endfor %}", Meter(0, check_wanted))


def test_a_longer_chat_may_make_more():
    """What a template may make grows with its messages."""
    source = "{% for a in range(9) %}{{ text }}{% endfor %}"
    text = "x" * 1_000_000
    assert text * 9 == rendered(source, Meter(len(text)), text=text)
    with pytest.raises(BeyondLimit):
        rendered(source, Meter(0), text=text)
