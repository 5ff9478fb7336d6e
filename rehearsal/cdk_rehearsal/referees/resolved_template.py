"""A template as referees read it: intrinsics have their values where the template decides them, tokens elsewhere."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cdk_rehearsal.assembly import DEFAULT_ACCOUNT
from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.intrinsics import NO_VALUE, evaluate, find_references

_TOKEN = re.compile("\ue000([^\ue001]*)\ue001")
_ZONES = "abc"


def make_token(name: str) -> str:
    """Return the text that stands for a value which exists at deployment only."""
    return f"\ue000{name}\ue001"


def is_known(value: Any) -> bool:
    """Return whether a value holds no token."""
    if isinstance(value, Mapping):
        return all(is_known(entry) for entry in value.values())
    if isinstance(value, list):
        return all(is_known(entry) for entry in value)
    return not (isinstance(value, str) and _TOKEN.search(value))


def show(value: Any) -> str:
    """Return a value for a message: tokens as `${Name}`, and no more than 80 characters."""
    text = _TOKEN.sub(r"${\1}", str(value))
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"  # noqa: PLR2004 - in the docstring


def measure(text: str) -> int:
    """Return the least length that a text has at deployment, a token counted as one character."""
    return len(_TOKEN.sub("?", text))


def get_map(value: Any, *keys: str) -> Mapping[str, Any]:
    """Return the object that keys lead to; an empty one where there is none, or a token."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def get_maps(value: Any, key: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list below a key, or the one object there; tokens among them are left out."""
    entries = get_map(value).get(key)
    return [entry for entry in (entries if isinstance(entries, list) else [entries]) if isinstance(entry, Mapping)]


def find_values(value: Any, path: str, place: str = "") -> Iterator[tuple[str, Any]]:
    """
    Yield place and value of what a path leads to, in both branches of a condition.

    A number in the path is that of an entry of a list; else the path leads through every entry.
    """
    key, _, below = path.partition(".")
    if isinstance(value, list):
        for index, entry in enumerate(value):
            if key == str(index) or not key.isdigit():
                yield from find_values(entry, below if key.isdigit() else path, f"{place}.{index}")
    elif isinstance(value, Mapping) and set(value) == {"Fn::If"}:
        for branch in value["Fn::If"][1:]:
            yield from find_values(branch, path, place)
    elif not path and value != {"Ref": "AWS::NoValue"}:
        yield place, value
    elif isinstance(value, Mapping) and key in value:
        yield from find_values(value[key], below, f"{place}.{key}")


def bind(template: Mapping[str, Any], parameters: Mapping[str, str]) -> Mapping[str, Any]:
    """Return a template with values of parameters in place of their defaults."""
    declared = template.get("Parameters", {})
    bound = {name: {**declared[name], "Default": value} for name, value in parameters.items() if name in declared}
    return {**template, "Parameters": {**declared, **bound}} if bound else template


class ResolvedTemplate:
    """
    The resources of a template with the conditions that hold and resolved properties.

    Args:
        template: As `cdk synth` wrote it.
        region: Where it is to be deployed.
        constructs: Logical id -> path of the construct in the app. Default: none is known.

    Attributes:
        resources: Logical id -> resource, with `Properties` resolved.
    """

    def __init__(self, template: Mapping[str, Any], region: str, constructs: Mapping[str, str] | None = None) -> None:
        from cdk_rehearsal.place import Place  # noqa: PLC0415 - loads boto3, which --help need not

        place = Place(DEFAULT_ACCOUNT, region, "")
        self._template = template
        self._constructs = constructs or {}
        self._region = region
        self._values = {
            "AWS::AccountId": place.account,
            "AWS::Region": region,
            "AWS::Partition": place.partition,
            "AWS::URLSuffix": place.url_suffix,
            "AWS::NoValue": NO_VALUE,
        }
        for name, declaration in template.get("Parameters", {}).items():
            value = declaration.get("Default")
            kind = str(declaration.get("Type", "String"))
            if value is not None and kind in ("String", "Number", "CommaDelimitedList"):
                self._values[name] = str(value).split(",") if kind == "CommaDelimitedList" else value
        self.resources: dict[str, Mapping[str, Any]] = {
            name: {**resource, "Properties": get_map(self.resolve(resource.get("Properties")))}
            for name, resource in template.get("Resources", {}).items()
            if "Condition" not in resource or self.condition(resource["Condition"])
        }

    @property
    def region(self) -> str:
        """Return the region where it is to be deployed."""
        return self._region

    def write_template(self) -> Mapping[str, Any]:
        """Return a template of the resources with values where they are known, and intrinsics elsewhere."""
        resources = {}
        for name, resource in self.resources.items():
            properties = self._reduce(self._template["Resources"][name].get("Properties", {}))
            needs = resource.get("DependsOn", [])
            needs = [each for each in ([needs] if isinstance(needs, str) else needs) if each in self.resources]
            resources[name] = {**resource, "Properties": properties, "DependsOn": needs}
            resources[name].pop("Condition", None)
        kept = {key: self._template[key] for key in ("Parameters", "Mappings") if key in self._template}
        return {**kept, "Resources": resources}

    def _reduce(self, value: Any) -> Any:
        """Return a value as `resolve` does, but with the intrinsic in place of a value with a token."""
        resolved = self.resolve(value)
        if is_known(resolved):
            return resolved
        if isinstance(value, list):
            return [each for each in map(self._reduce, value) if each is not NO_VALUE]
        if "Fn::If" in value:
            condition, yes, no = value["Fn::If"]
            return self._reduce(yes if self.condition(condition) else no)
        reduced = {key: self._reduce(each) for key, each in value.items()}
        return {key: each for key, each in reduced.items() if each is not NO_VALUE}

    def list_type(self, *types: str) -> Iterator[tuple[str, Any]]:
        """Yield logical id and resolved properties of the resources of some types."""
        for name, resource in self.resources.items():
            if resource.get("Type") in types:
                yield name, resource["Properties"]

    def find_type(self, name: str) -> str:
        """Return the type of a resource; empty if there is none of the name."""
        return str(self.resources.get(name, {}).get("Type", ""))

    def find_construct(self, logical_id: str) -> str:
        """Return the path of a resource's construct in the app; empty where it is not known."""
        return self._constructs.get(logical_id, "")

    def list_references(self, logical_id: str, *path: str) -> set[str]:
        """Return the resources that a property of a resource refers to, or all of its properties."""
        value: Any = self._template["Resources"][logical_id].get("Properties", {})
        for key in path:
            value = value.get(key, {}) if isinstance(value, Mapping) else {}
        return {name for name, _ in find_references(value)} & self.resources.keys()

    def find_needs(self, logical_id: str) -> set[str]:
        """Return the resources that CloudFormation creates before this one."""
        waiting, found = [logical_id], set[str]()
        while waiting:
            resource = self._template["Resources"][waiting.pop()]
            explicit = resource.get("DependsOn", [])
            names = {explicit} if isinstance(explicit, str) else set(explicit)
            names |= {name for name, _ in find_references(resource.get("Properties", {}))}
            waiting += (names & self.resources.keys()) - found
            found |= names
        return found

    def ref(self, name: str) -> Any:
        """Return the value of a parameter or pseudo parameter, else a token."""
        return self._values.get(name, make_token(name))

    def attribute(self, name: str, attribute: str) -> Any:
        """Return a token."""
        return make_token(f"{name}.{attribute}")

    def condition(self, name: str) -> bool:
        """Return the value of a condition."""
        return bool(evaluate(self._template.get("Conditions", {})[name], self))

    def mapping(self, name: str, first: str, second: str) -> Any:
        """Return a value of a mapping, else a token."""
        try:
            return self._template["Mappings"][name][first][second]
        except KeyError:
            return make_token(f"{name}.{first}.{second}")

    def zones(self, region: str) -> list[str]:
        """Return three zones."""
        return [f"{region or self._region}{letter}" for letter in _ZONES]

    def dynamic(self, reference: str) -> str:
        """Return a token."""
        return make_token(f"resolve:{reference}")

    def read_other_stack(self, function: str, argument: Any) -> str:
        """Return a token."""
        return make_token(f"{function}:{argument}")

    def resolve(self, value: Any) -> Any:
        """Resolve a part of a template; a function that needs what exists at deployment only gives a token."""
        if isinstance(value, list):
            resolved = [self.resolve(entry) for entry in value]
            return [entry for entry in resolved if entry is not NO_VALUE]
        if isinstance(value, Mapping) and len(value) == 1 and (found := next(iter(value))).startswith(("Fn::", "Ref")):
            try:
                return evaluate(value, self)
            except (AssemblyError, ValueError, TypeError, KeyError, IndexError):
                return make_token(found)
        if isinstance(value, Mapping):
            resolved_map = {key: self.resolve(entry) for key, entry in value.items()}
            return {key: entry for key, entry in resolved_map.items() if entry is not NO_VALUE}
        return evaluate(value, self)
