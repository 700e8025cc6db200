"""A Jinja template of a chat, rendered as transformers renders it, by a sandbox in which every step is counted.

A template comes with a bundle, and a bundle is not trusted. Jinja's own sandbox keeps a template away from Python, but
lets it take any memory and time. docs/decisions/templates-on-a-meter.md says what is done about that, and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from weft_proto.chat.faults import BeyondLimit, NoTemplate, TemplateFailed
from weft_proto.chat.meter import Meter, check_bits, metered, the_meter
from weft_proto.chat.names import FILTERS, GLOBALS, METHODS, TESTS, ChatRefused, check_sought, growth
from weft_proto.chat.tree import OWN, prepared
from weft_proto.first_line import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jinja2.parser import Parser
    from jinja2.runtime import Context


class Template:
    """A template, ready to be rendered. Thread-safe.

    Attributes:
        reads: the names of variables, attributes and keys that it spells out.
    """

    def __init__(self, source: str) -> None:
        """Parse and compile. Raises NoTemplate for what is no template, or has what a chat's may not have."""
        environment = _Environment()
        try:
            tree = environment.parse(source)
            self.reads = frozenset(_spelt(tree))
            self._template = environment.from_string(prepared(tree))
        except NoTemplate:
            raise
        except (RecursionError, MemoryError) as error:
            raise NoTemplate("it is nested too deeply") from error
        except Exception as error:  # jinja2, Python's own compiler, or a number of too many digits
            raise NoTemplate(first_line(error)) from error

    def render(self, given: Mapping[str, Any], meter: Meter) -> str:
        """Return the text that the template makes of what it is given.

        Raises:
            ChatRefused: the template says that it does not take these messages.
            BeyondLimit: it costs more than it may.
            TemplateFailed: it fails in any other way.
            Exception: what the meter's `check_wanted` raises, when nobody waits any more.
        """
        try:
            with metered(meter):
                text = self._template.render(given)
                text.encode()  # a constant of the template can hold half of a surrogate pair
                return text
        except (ChatRefused, BeyondLimit):
            raise
        except (RecursionError, MemoryError) as error:
            raise BeyondLimit("it is nested too deeply") from error
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise TemplateFailed(first_line(error)) from error


def _spelt(tree: nodes.Template) -> Iterator[str]:
    """What a template names, by itself, behind a dot and in quotation marks."""
    for kind, field in ((nodes.Name, "name"), (nodes.Getattr, "attr"), (nodes.Const, "value")):
        found = [getattr(node, field) for node in tree.find_all(kind)]
        yield from (value for value in found if isinstance(value, str))


class _Generation(Extension):
    """The tag `generation`, by which a template marks what its model says. For a prompt it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """Read up to `endgeneration`. The part has a scope of its own, as a macro has."""
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_part"), [], [], body).set_lineno(lineno)

    def _part(self, caller: Macro) -> str:
        part: str = caller()
        return part


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with transformers' settings, and with everything in it on a meter."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        # Not optimised: a constant such as 'a' * 10**9 would be computed when the template is compiled.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=_printed,
            extensions=[_Generation, "jinja2.ext.loopcontrols"],
        )
        self.filters, self.tests, self.globals = dict(FILTERS), dict(TESTS), dict(GLOBALS)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may read an attribute. Of texts, lists and numbers: the methods that are listed."""
        for kind, names in METHODS:
            if isinstance(obj, kind):
                return attr in names
        return super().is_safe_attribute(obj, attr, value)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Look up one entry. Its key is no list: a long one takes long to hash, and each time again."""
        the_meter().check()
        if isinstance(argument, tuple):
            raise SecurityError("a key is no tuple here")
        return super().getitem(obj, argument)

    def call_filter(self, name: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a filter that a text names, as in `map('upper')`. Those of the meter are out of reach."""
        if name in OWN:
            raise SecurityError(f"no filter is named {name!r}")
        return super().call_filter(name, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> None:
        """Leave `format` what it is: a method that is not listed. It pads to any width."""

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute an operator whose result has been found to be small enough."""
        meter = the_meter()
        if operator == "%" and isinstance(left, str):
            raise SecurityError("% formats no text here")
        if operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            meter.fits(len(left) + len(right))
        elif operator == "*":
            _check_product(meter, left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            check_bits(left.bit_length() * max(right, 0))
        return meter.keep(super().call_binop(context, operator, left, right))

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls: a method, a macro, a function of GLOBALS."""
        meter = the_meter()
        if isinstance(called, Macro):
            meter.keep(args)
            meter.keep({name: value for name, value in kwargs.items() if not name.startswith("_")})
        elif isinstance(called, LoopContext):
            args = (meter.each(args[0]), *args[1:]) if args else args
        elif isinstance(owner := getattr(called, "__self__", None), str):
            check_sought(called.__name__, (*args, *kwargs.values()))
            args = growth(meter, owner, called.__name__, args)
        return meter.keep(super().call(context, called, *args, **kwargs))


@pass_context
def _printed(context: Context, value: Any) -> str:  # noqa: ARG001 - with it, jinja2 computes no constant at compile time
    """What `{{ value }}` prints."""
    return the_meter().text(value)


def _check_product(meter: Meter, left: Any, right: Any) -> None:
    for one, other in ((left, right), (right, left)):
        if isinstance(other, int) and hasattr(one, "__len__"):
            meter.fits(len(one) * other)
    if isinstance(left, int) and isinstance(right, int):
        check_bits(left.bit_length() + right.bit_length())
