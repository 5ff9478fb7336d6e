"""
Checks of props by their annotations: the type first, then the rules beside it. Every error names a remedy.

A rule is defined with its type, `MountPoint = Annotated[str, matching(…)]`, so that a prop has one definition for all
callables. `@checked` checks the arguments of a function, `check_fields` the fields of a dataclass.
"""

import difflib
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from aws_cdk import Duration, Size, SizeRoundingBehavior, Token

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# aws-cdk-lib 2.275.0: DUMMY_VPC_PROPS of aws-ec2/lib/vpc.ts, StringParameter.valueFromLookup, LookupMachineImage.
_DUMMY_VALUE = re.compile(r"1\.2\.3\.4/5|dummy1[a-z]|dummy-value-for-[A-Za-z0-9._/-]*|ami-1234")
_LONGEST_SHOWN = 80
_TIMES = {"minute": 60_000, "second": 1000}
_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "True or False", NoneType: "None"}
_EXAMPLES = {
    "int": "write e.g. 3",
    "float": "write e.g. 1.5",
    "bool": "pass True or False",
    "Duration": "pass e.g. Duration.minutes(60)",
    "Size": "pass e.g. Size.gibibytes(150)",
    "IVpc": 'pass e.g. ec2.Vpc.from_lookup(self, "Vpc", vpc_id="vpc-…")',
    "ISubnet": 'pass e.g. vpc.private_subnets[0], or ec2.Subnet.from_subnet_id(self, "Subnet", "subnet-…")',
    "ISecurityGroup": 'pass e.g. ec2.SecurityGroup.from_security_group_id(self, "Group", "sg-…")',
    "IRole": 'pass e.g. iam.Role.from_role_name(self, "Role", "…")',
    "IKey": 'pass e.g. kms.Key.from_key_arn(self, "Key", "arn:aws:kms:…")',
    "ITopic": 'pass e.g. sns.Topic.from_topic_arn(self, "Topic", "arn:aws:sns:…")',
    "InstanceType": 'pass e.g. ec2.InstanceType("g5.12xlarge"), or its name',
    "JobEnvironment": 'pass e.g. JobEnvironment.from_requirements("requirements.txt")',
    "EnvironmentCache": 'pass e.g. EnvironmentCache("team-bucket")',
    "Purchase": "pass e.g. Purchase.spot()",
}
"""Name of a type -> a value of it in an app; the name of an interface of the CDK says which one it is."""


@functools.cache
def _hints(definition: Any) -> dict[str, Any]:
    return get_type_hints(definition, include_extras=True)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """
    Requirement of a value beyond its type.

    Attributes:
        must: The rule, as it follows "must" in the error.
        remedy: Text for the user, after the error's semicolon.
        is_kept: Returns whether a value keeps the rule; it gets neither tokens nor None.
        can_carry: Returns whether the template can carry a token, a value that is known only at deployment. Default:
            it cannot, because the constructs need the value.
    """

    must: str
    remedy: str
    is_kept: Callable[[Any], bool] = field(repr=False)
    can_carry: Callable[[Any], bool] | None = field(default=None, repr=False)

    def check(self, prop: str, value: Any) -> None:
        """
        Check a value of the right type.

        Raises:
            ValueError: It breaks the rule, or is a token that the template cannot carry.
        """
        if is_token(value):
            if self.can_carry is None:
                raise ValueError(f"{prop} must be known at synth, got a token; pass the value itself")
            if not self.can_carry(value):
                raise ValueError(f"{prop} must {self.must}, got a token that no template can carry; {self.remedy}")
        elif not is_dummy_value(value) and not self.is_kept(value):
            raise ValueError(f"{prop} must {self.must}, got {show_value(value)}; {self.remedy}")


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Check the names and values of a function's arguments, by its annotations, before it runs."""
    signature = inspect.signature(function)
    owner = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def check(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        _check_names(owner, kwargs, signature.parameters, function)
        for prop, value in signature.bind(*args, **kwargs).arguments.items():
            if prop in _hints(function):
                check_prop(prop, value, _hints(function)[prop])
        return function(*args, **kwargs)

    return check


def names_checked(value: type[Result]) -> type[Result]:
    """Check the names of the fields that a dataclass is made with; its `__post_init__` checks their values."""
    make: Any = value.__init__

    @functools.wraps(make)
    def check(self: Any, *args: Any, **kwargs: Any) -> None:
        _check_names(value.__name__, kwargs, [each.name for each in fields(value)], value)  # type: ignore[arg-type]
        make(self, *args, **kwargs)

    setattr(value, "__init__", check)  # noqa: B010 - mypy refuses an assignment
    return value


def _check_names(owner: str, given: Mapping[str, Any], known: Iterable[str], definition: Any) -> None:
    """Refuse an unknown name, and suggest the nearest of the props and of their fields."""
    unknown = next((name for name in given if name not in known), None)
    if unknown is None:
        return
    inner = [
        f"{name}.{each.name}"
        for name, hint in _hints(definition).items()
        for kind, _ in find_choices(hint)
        if is_dataclass(kind)
        for each in fields(kind)
    ]
    (nearest,) = difflib.get_close_matches(unknown, [*known, *inner], n=1, cutoff=0)
    raise TypeError(f"{owner} must have only known props, got {unknown!r}; did you mean {nearest}?")


def check_fields(instance: Any, prefix: str = "") -> None:
    """
    Check the fields of a dataclass by their annotations; errors name them with the prefix.

    Raises:
        ValueError: A field is of another type, or breaks a rule.
    """
    hints = _hints(instance.__class__)
    for each in fields(instance):
        check_prop(prefix + each.name, getattr(instance, each.name), hints[each.name])


def check_meaning(platform: str, prefix: str, instance: Any, meaningless: Mapping[str, str]) -> None:
    """
    Refuse fields that a platform gives no meaning, unless they have their defaults.

    Args:
        platform: Name of the platform.
        prefix: Prop of the dataclass.
        instance: The dataclass.
        meaningless: Name of a field -> what the user does instead.

    Raises:
        ValueError: A field is given.
    """
    for each in fields(instance):
        given, remedy = getattr(instance, each.name), meaningless.get(each.name)
        if remedy is not None and given != each.default:
            raise ValueError(
                f"{prefix}.{each.name} must be left out on {platform}, got {show_value(given)}; leave it out: {remedy}"
            )


def check_prop(prop: str, value: Any, annotation: Any) -> None:
    """
    Check one value: its type, then the rules of that type, then its items.

    In an `Annotated` type, a `Rule` is a rule, and a text is the remedy for a value of another type.

    Raises:
        ValueError: It is of another type, or breaks a rule.
    """
    choices = find_choices(annotation)
    fitting = next(((kind, notes) for kind, notes in choices if _is_of(value, kind)), None)
    if fitting is None:
        raise ValueError(f"{prop} must be {_describe(choices)}, got {show_value(value)}; {_find_remedy(choices)}")
    kind, notes = fitting
    for note in notes:
        if isinstance(note, Rule) and value is not None:
            note.check(prop, value)
    _check_items(prop, value, kind)


def is_dummy_value(value: object) -> bool:
    """
    Return whether a value is a dummy of the CDK, given until its CLI has looked the real value up in the account.

    The CLI runs the app, looks up what the assembly lists as missing, writes it to `cdk.context.json` and runs the app
    again. A check that refuses a dummy value would end the first run, and nothing would ever be looked up.
    """
    return isinstance(value, str) and _DUMMY_VALUE.fullmatch(value) is not None


def is_token(value: Any) -> bool:
    """Return whether a value, or a part of it, is known only at deployment."""
    if isinstance(value, Duration | Size):
        return value.is_unresolved()
    # Only possible tokens are passed to the CDK, whose process ends at a NaN.
    may_be = "Token[" in value if isinstance(value, str) else isinstance(value, float) and math.isfinite(value)
    return may_be and Token.is_unresolved(value)


def show_value(value: Any) -> str:
    """Return a value as an error shows it: short, on one line, and the same in every run."""
    if is_token(value):
        return "a token"
    if isinstance(value, Duration):
        return show_duration(value)
    if isinstance(value, Size):
        mebibytes = value.to_mebibytes(rounding=SizeRoundingBehavior.NONE)
        return f"{mebibytes:g} MiB" if mebibytes % 1024 else f"{mebibytes / 1024:g} GiB"
    if isinstance(value, int) and value.bit_length() > _LONGEST_SHOWN:
        return f"a number of {value.bit_length()} bits"
    if value is None or isinstance(value, Enum | str | bytes | int | float):
        text = str(value) if isinstance(value, Enum) else repr(value)
        return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    return _with_article(type(value).__name__.lstrip("_").removesuffix("Proxy"))


def show_duration(value: Duration) -> str:
    """Return a time in whole minutes, or else in whole seconds, such as 10 seconds."""
    milliseconds = value.to_milliseconds(integral=False)
    for unit, size in _TIMES.items():
        count = milliseconds / size
        if count == int(count) and (count or unit == "second"):
            return f"{count:.0f} {unit}{'' if count == 1 else 's'}"
    return f"{milliseconds:g} milliseconds"


@functools.cache
def find_choices(annotation: Any, notes: tuple[Any, ...] = ()) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return each type of an annotation with the notes beside it."""
    if get_origin(annotation) is Annotated:
        return find_choices(annotation.__origin__, (*annotation.__metadata__, *notes))
    if get_origin(annotation) in (Union, UnionType):
        return [choice for member in get_args(annotation) for choice in find_choices(member, notes)]
    return [(annotation, notes)]


def _is_of(value: Any, kind: Any) -> bool:
    origin = get_origin(kind) or kind
    if origin is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if origin in (int, float):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        is_finite = isinstance(value, float) and math.isfinite(value)
        return is_whole or (is_finite and (origin is float or is_token(value)))
    if origin in (Sequence, tuple):
        return isinstance(value, list | tuple)
    if getattr(origin, "_is_protocol", False) and hasattr(origin, "__jsii_type__"):
        return _implements(value, origin)
    return origin is Any or isinstance(value, origin)


def _implements(value: Any, interface: Any) -> bool:
    """Return whether an object has an interface of the CDK: a protocol that `isinstance` does not support."""
    parts = getattr(value, "_delegates", [value]) if type(value).__module__.startswith("jsii") else [value]
    for klass in (klass for part in parts for klass in type(part).__mro__):
        declared = vars(klass).get("__jsii_ifaces__", ())
        if klass is interface.__jsii_proxy_class__() or any(interface in face.__mro__ for face in declared):
            return True
    return False


def _check_items(prop: str, value: Any, kind: Any) -> None:
    if get_origin(kind) in (Sequence, tuple):
        for index, item in enumerate(value):
            check_prop(f"{prop}[{index}]", item, get_args(kind)[0])
    elif get_origin(kind) is Mapping:
        key_kind, item_kind = get_args(kind)
        for key, item in value.items():
            check_prop(f"a key of {prop}", key, key_kind)
            check_prop(f"{prop}[{key!r}]", item, item_kind)


def _describe(choices: list[tuple[Any, tuple[Any, ...]]]) -> str:
    words = []
    for kind, _ in choices:
        if get_origin(kind) is Literal:
            words += [f"one of {', '.join(map(str, get_args(kind)))}"]
        elif get_origin(kind) in (Sequence, tuple):
            words += ["a list"]
        elif kind is not NoneType:
            words += [_WORDS.get(kind) or _with_article((get_origin(kind) or kind).__name__)]
    return " or ".join(words)


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def _find_remedy(choices: list[tuple[Any, tuple[Any, ...]]]) -> str:
    """Return the remedy for a value of another type: its text, an example, or else the remedy of a rule."""
    for kind, notes in choices:
        texts = [note for note in notes if isinstance(note, str)]
        remedies = [note.remedy for note in notes if isinstance(note, Rule)]
        # An example in a rule's remedy keeps the rule, which that of the type need not.
        examples = [remedy for remedy in remedies if "e.g." in remedy]
        for remedy in (*texts, *examples, *_list_examples(kind), *remedies):
            return remedy
    return f"pass {_describe(choices)}"


def _list_examples(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return ["write one of them"]
    if get_origin(kind) in (Sequence, tuple):
        inner = _find_remedy(find_choices(get_args(kind)[0]))
        return [re.sub(r"(?:pass|write) (?:e\.g\. )?(.*)", r"pass a list, e.g. [\1]", inner)]
    name = getattr(get_origin(kind) or kind, "__name__", "")
    made = [f"pass e.g. {name}(…)"] if is_dataclass(kind) else []
    return [_EXAMPLES[name]] if name in _EXAMPLES else made
