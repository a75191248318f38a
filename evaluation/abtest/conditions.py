"""Who may take part: a small language over attributes that never fails while serving.

    when: {country: [DE, AT], app_version: {version_gte: "3.2"}, not: {plan: free}}

A mapping holds if all its entries hold. An entry is an attribute with a value (equal), a list (one of), or operators;
or `all`, `any` (lists of conditions) or `not` (one condition). What is missing or of another kind makes an entry
false, never an error: a request with odd attributes stays outside the experiment.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evaluation.abtest.errors import Problem
from evaluation.errors import did_you_mean

Predicate = Callable[[Mapping[str, Any]], bool]
_Test = Callable[[Any], bool]
_GROUPS = ("all", "any", "not")


def compile_condition(condition: Mapping[str, Any]) -> Predicate:
    """The predicate of a condition that `condition_problems` found nothing wrong with."""
    parts = [_entry(name, value) for name, value in condition.items()]
    if len(parts) == 1:
        return parts[0]
    return lambda attributes: all(part(attributes) for part in parts)


def _entry(name: str, value: Any) -> Predicate:
    if name == "not":
        inside = compile_condition(value)
        return lambda attributes: not inside(attributes)
    if name in _GROUPS:
        parts = [compile_condition(one) for one in value]
        join = all if name == "all" else any
        return lambda attributes: join(part(attributes) for part in parts)
    tests = [_OPERATORS[operator](argument) for operator, argument in _operators_of(value).items()]
    return lambda attributes: all(test(attributes.get(name)) for test in tests)


def _operators_of(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    return {"in": value} if isinstance(value, Sequence) and not isinstance(value, str) else {"eq": value}


def condition_problems(condition: Any, path: str) -> list[Problem]:
    """What is wrong with a condition as it was written.

    Args:
        condition: From the file.
        path: Where it stands.
    """
    if not isinstance(condition, Mapping) or not condition:
        return [Problem(f"a condition is a mapping such as {{country: [DE, AT]}}, got {condition!r}", path)]
    return [
        problem for name, value in condition.items() for problem in _entry_problems(str(name), value, path)
    ]


def _entry_problems(name: str, value: Any, above: str) -> list[Problem]:
    path = f"{above}.{name}"
    if name == "not":
        return condition_problems(value, path)
    if name in _GROUPS:
        if not isinstance(value, list) or not value:
            return [Problem(f"is a list of conditions, got {value!r}", path)]
        return [
            one for place, part in enumerate(value) for one in condition_problems(part, f"{path}.{place}")
        ]
    if isinstance(value, Mapping):
        unknown = [operator for operator in value if operator not in _OPERATORS]
        if unknown or not value:
            first = unknown[0] if unknown else ""
            return [Problem(f"unknown operator {first!r}; {did_you_mean(str(first), _OPERATORS)}", path)]
    return [
        Problem(f"{operator}: {message}, got {argument!r}", path)
        for operator, argument in _operators_of(value).items()
        if (message := _argument_problem(operator, argument))
    ]


def _argument_problem(operator: str, argument: Any) -> str:
    if operator in ("in", "nin"):
        usable = isinstance(argument, list) and bool(argument) and all(_is_scalar(one) for one in argument)
        return "" if usable else "takes a list of values"
    if operator == "exists":
        return "" if isinstance(argument, bool) else "takes true or false"
    if operator in ("lt", "lte", "gt", "gte"):
        usable = isinstance(argument, int | float | str) and not isinstance(argument, bool)
        return "" if usable else "takes a number or a text"
    if operator.startswith("version"):
        return "" if _version(argument) is not None else "takes a version such as '3.2.0'"
    if operator == "like":
        return "" if isinstance(argument, str) and argument else "takes a pattern such as 'de-*'"
    return "" if _is_scalar(argument) else "takes one value"


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def _same(value: Any, other: Any) -> bool:
    # True equals 1 in Python, but a flag is not a number to the people who write conditions.
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _in(values: Sequence[Any]) -> _Test:
    known = frozenset((isinstance(one, bool), one) for one in values)

    def test(value: Any) -> bool:
        if isinstance(value, list | tuple | set | frozenset):  # an attribute with several values: any of them
            return any(_is_scalar(one) and (isinstance(one, bool), one) in known for one in value)
        return _is_scalar(value) and (isinstance(value, bool), value) in known

    return test


def _not_in(values: Sequence[Any]) -> _Test:
    known = _in(values)
    return _known(lambda value: not known(value))


def _known(test: _Test) -> _Test:
    """A test that is false for a missing attribute, negated ones included."""
    return lambda value: value is not None and test(value)


def _order(compare: Callable[[Any, Any], bool]) -> Callable[[Any], _Test]:
    def operator(argument: Any) -> _Test:
        is_text = isinstance(argument, str)

        def test(value: Any) -> bool:
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                return False
            return isinstance(value, str) == is_text and compare(value, argument)

        return test

    return operator


def _version(text: Any) -> tuple[int, ...] | None:
    if not isinstance(text, str):
        return None
    # "v3.2.0-beta+7" counts as 3.2.0: a pre-release already has what its release will have.
    core = text.strip().removeprefix("v").partition("+")[0].partition("-")[0]
    parts = core.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        return None
    numbers = [int(part) for part in parts]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _version_order(compare: Callable[[Any, Any], bool]) -> Callable[[Any], _Test]:
    def operator(argument: Any) -> _Test:
        wanted = _version(argument)

        def test(value: Any) -> bool:
            version = _version(value)
            return version is not None and compare(version, wanted)

        return test

    return operator


def _like(pattern: str) -> _Test:
    return lambda value: isinstance(value, str) and _matches(value, pattern)


def _matches(text: str, pattern: str) -> bool:
    """Whether a text fits a pattern of `*` (any signs) and `?` (one sign), in at most len(text) * len(pattern) steps.

    Regular expressions are left out: one with nested repetition can stop a server.
    """
    place = star = 0
    after_star = -1
    index = 0
    while index < len(text):
        if place < len(pattern) and pattern[place] == "*":
            star, after_star = index, place + 1
            place += 1
        elif place < len(pattern) and pattern[place] in ("?", text[index]):
            place += 1
            index += 1
        elif after_star >= 0:
            star += 1
            place, index = after_star, star
        else:
            return False
    return not pattern[place:].strip("*")


_OPERATORS: dict[str, Callable[[Any], _Test]] = {
    "eq": lambda argument: lambda value: _same(value, argument),
    "ne": lambda argument: _known(lambda value: not _same(value, argument)),
    "in": _in,
    "nin": _not_in,
    "lt": _order(lambda value, limit: value < limit),
    "lte": _order(lambda value, limit: value <= limit),
    "gt": _order(lambda value, limit: value > limit),
    "gte": _order(lambda value, limit: value >= limit),
    "version_lt": _version_order(lambda value, limit: value < limit),
    "version_lte": _version_order(lambda value, limit: value <= limit),
    "version_gt": _version_order(lambda value, limit: value > limit),
    "version_gte": _version_order(lambda value, limit: value >= limit),
    "exists": lambda argument: lambda value: (value is not None) == argument,
    "like": _like,
}
