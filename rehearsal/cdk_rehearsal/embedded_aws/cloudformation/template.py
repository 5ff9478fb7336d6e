"""A CloudFormation template with its parameters bound: conditions, references and the order of its resources."""

import json
import random
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.cloudformation.stack_registry import StackRegistry
from cdk_rehearsal.embedded_aws.resources.creation import Created
from cdk_rehearsal.embedded_aws.services import Services
from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.intrinsics import NO_VALUE, evaluate, find_references
from cdk_rehearsal.place import Place

BOOTSTRAP_VERSION = "28"
"""Version that a fresh `cdk bootstrap` leaves behind (aws-cdk 2.1148)."""
_SSM_TYPE = "AWS::SSM::Parameter::Value<"


def put_bootstrap_version(place: Place, name: str) -> str:
    """Write the parameter of a bootstrap stack, so that who reads it finds it, and return the version."""
    place.client("ssm").put_parameter(Name=name, Value=BOOTSTRAP_VERSION, Type="String", Overwrite=True)
    return BOOTSTRAP_VERSION


class BoundTemplate:
    """A template whose parameters have the given values or their defaults; the scope of its intrinsic functions."""

    def __init__(
        self,
        template: Mapping[str, Any],
        services: Services,
        stacks: StackRegistry[Any],
        *,
        stack_name: str,
        stack_arn: str,
        parameters: Mapping[str, str],
    ) -> None:
        self._template = template
        self._place = place = services.place
        self._images = services.images
        self._stacks = stacks
        self.created = dict[str, Created]()
        self.imports = set[str]()
        self.description = str(template.get("Description", ""))
        self._values: dict[str, Any] = {
            "AWS::AccountId": place.account,
            "AWS::Region": place.region,
            "AWS::Partition": place.partition,
            "AWS::URLSuffix": place.url_suffix,
            "AWS::StackName": stack_name,
            "AWS::StackId": stack_arn,
            "AWS::NotificationARNs": [],
        }
        for name, declaration in template.get("Parameters", {}).items():
            self._values[name] = self._bind(name, declaration, parameters.get(name))
        self._check_rules()
        self._usual = services.options.find_usual_order(template, place.region)
        self.resources: dict[str, Mapping[str, Any]] = {
            name: resource
            for name, resource in template["Resources"].items()
            if "Condition" not in resource or self.condition(resource["Condition"])
        }

    def dependencies(self, logical_id: str) -> frozenset[str]:
        """Return the resources that must exist before this one."""
        resource = self.resources[logical_id]
        explicit = resource.get("DependsOn", [])
        names = {explicit} if isinstance(explicit, str) else set(explicit)
        names |= {name for name, _ in find_references(resource.get("Properties", {}))}
        names |= set(self._usual.get(logical_id, ()))
        return frozenset(names & self.resources.keys())

    def require_order(self) -> None:
        """Raise AssemblyError where resources depend on each other in a circle."""
        left = {name: set(self.dependencies(name)) for name in self.resources}
        while left:
            ready = {name for name, needs in left.items() if not needs & left.keys()}
            if not ready:
                raise AssemblyError(f"Circular dependency between resources: {sorted(left)}")
            left = {name: needs for name, needs in left.items() if name not in ready}

    def properties(self, logical_id: str) -> dict[str, Any]:
        """Return the evaluated properties of a resource; what it refers to must have been created."""
        return self.evaluate(self.resources[logical_id].get("Properties", {}))

    def evaluate(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return evaluated properties; what they refer to must have been created."""
        evaluated = evaluate(properties, self)
        assert isinstance(evaluated, dict)
        return evaluated

    def outputs(self) -> dict[str, str]:
        """Return the evaluated outputs."""
        return {name: str(evaluate(output["Value"], self)) for name, output in self._list_outputs()}

    def exports(self, outputs: Mapping[str, str]) -> dict[str, str]:
        """Return what the stack exports: name -> value of its output."""
        exporting = ((name, output["Export"]["Name"]) for name, output in self._list_outputs() if "Export" in output)
        return {str(evaluate(export, self)): outputs[name] for name, export in exporting}

    def _list_outputs(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for name, output in self._template.get("Outputs", {}).items():
            if "Condition" not in output or self.condition(output["Condition"]):
                yield name, output

    def ref(self, name: str) -> Any:
        """Return the value of a parameter, pseudo parameter or resource."""
        if name in self._values:
            return self._values[name]
        if name in self.created:
            return self.created[name].physical_id
        raise AssemblyError(f"Template error: Ref to {name}, which does not exist")

    def attribute(self, name: str, attribute: str) -> Any:
        """Return an attribute of a created resource."""
        if name not in self.created or attribute not in self.created[name].attributes:
            raise AssemblyError(f"Template error: Fn::GetAtt of {name}.{attribute}, which does not exist")
        value = self.created[name].attributes[attribute]
        return value() if callable(value) else value

    def condition(self, name: str) -> bool:
        """Return the value of a condition."""
        if name not in self._template.get("Conditions", {}):
            raise AssemblyError(f"Template error: condition {name} does not exist")
        return bool(evaluate(self._template["Conditions"][name], self))

    def mapping(self, name: str, first: str, second: str) -> Any:
        """Return a value of a mapping."""
        try:
            return self._template["Mappings"][name][first][second]
        except KeyError as error:
            raise AssemblyError(f"Unable to get mapping for {name}::{first}::{second}") from error

    def zones(self, region: str) -> list[str]:
        """Return the availability zones of the region."""
        if region not in ("", self._place.region):
            raise AssemblyError(f"Fn::GetAZs must be of the stack's region in the rehearsal, got {region}")
        answer = self._place.client("ec2").describe_availability_zones()["AvailabilityZones"]
        return sorted(entry["ZoneName"] for entry in answer)

    def read_other_stack(self, function: str, argument: Any) -> str:
        """Return an export of another stack, which can then not be deleted before this one, or any other output."""
        if function == "Fn::ImportValue":
            self.imports.add(str(argument))
            return self._stacks.import_value(str(argument))
        if argument.get("Region", self._place.region) != self._place.region or "RoleArn" in argument:
            raise AssemblyError(
                f"{function} must be of the stack's account and region in the rehearsal, got {argument}"
            )
        return self._stacks.read_output(str(argument["StackName"]), str(argument["OutputName"]))

    def dynamic(self, reference: str) -> str:
        """Return the value of an SSM dynamic reference."""
        service, _, name = reference.partition(":")
        if service != "ssm":
            raise AssemblyError(f"the rehearsal does not implement {{{{resolve:{service}:…}}}}")
        return self._read_parameter(name)

    def _bind(self, name: str, declaration: Mapping[str, Any], given: str | None) -> Any:
        value = given if given is not None else declaration.get("Default")
        if value is None:
            raise AssemblyError(f"Parameters: [{name}] must have values; give one or a default")
        if str(declaration["Type"]).startswith(_SSM_TYPE):
            return self._read_parameter(str(value))
        if declaration["Type"] not in ("String", "Number", "CommaDelimitedList") and not given:
            # The other types name things of a real account, and a default cannot exist there by chance.
            raise AssemblyError(
                f"parameter {name} must be of a type that the rehearsal knows, got {declaration['Type']}"
            )
        if "AllowedValues" in declaration and value not in declaration["AllowedValues"]:
            raise AssemblyError(f"Parameter {name} must be one of AllowedValues, got {value!r}")
        return str(value).split(",") if declaration["Type"] == "CommaDelimitedList" else value

    def _read_parameter(self, name: str) -> str:
        if name.startswith("/aws/service/"):
            return self._images.seed_parameter(name)
        if name.startswith("/cdk-bootstrap/") and name.endswith("/version"):
            return put_bootstrap_version(self._place, name)
        try:
            return str(self._place.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])
        except ClientError as error:
            raise AssemblyError(f"parameter {name} must exist in SSM, got {error.response['Error']['Code']}") from error

    def _check_rules(self) -> None:
        for name, rule in self._template.get("Rules", {}).items():
            for assertion in rule["Assertions"]:
                if not _holds(assertion["Assert"], self):
                    why = assertion.get("AssertDescription", json.dumps(assertion))
                    raise AssemblyError(f"rule {name} failed: {why}")


def _holds(assertion: Any, scope: BoundTemplate) -> bool:
    name, argument = next(iter(assertion.items()))
    if name == "Fn::Not":
        return not _holds(argument[0], scope)
    if name == "Fn::Contains":
        return evaluate(argument[1], scope) in argument[0]
    value = evaluate(assertion, scope)
    return value is not NO_VALUE and bool(value)


def draw_order(needs: Mapping[str, Collection[str]], seed: int) -> list[str]:
    """
    Return names in an order, drawn from a seed, in which each follows its needs.

    The order is depth first: all that a resource needs comes directly before it, the rest mostly after it.
    """
    order: dict[str, None] = {}

    def add(names: Collection[str]) -> None:
        for name in draw.sample(sorted(names), len(names)):
            if name not in order:
                add(needs[name])
                order[name] = None

    draw = random.Random(seed)  # noqa: S311 - no secret
    add(needs.keys())
    return list(order)
