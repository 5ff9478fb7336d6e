"""Synthesizes clusters in this process, with the template validator and the copying of assets off."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import jsii
import pytest
from jsii._runtime import python_jsii_mapping

from deeplearning_cdk import TrainingCluster
from deeplearning_contract.jobs.submission import SubmissionSettings
from deeplearning_contract.names import NodeRole
from deeplearning_contract.settings import NodeSettings
from tests.unit.deeplearning_cdk.clusters import props_of


@dataclass
class Synthesis:
    """A synthesized stack with one cluster, and readers of what tests ask about."""

    template: Mapping[str, Any]
    warnings: list[str]

    def of_type(self, kind: str) -> dict[str, Any]:
        """Return the resources of a type by logical id."""
        return {name: entry for name, entry in self.template["Resources"].items() if entry["Type"] == kind}

    @property
    def cluster_name(self) -> str:
        """The cluster's name, as its adjuster is told."""
        function = self.part("AWS::Lambda::Function", "CapacityAdjuster")
        name: str = function["Properties"]["Environment"]["Variables"]["DEEPLEARNING_CLUSTER"]
        return name

    def only(self, kind: str) -> Any:
        """Return the properties of the one resource of a type."""
        (entry,) = self.of_type(kind).values()
        return entry.get("Properties", {})

    def part(self, kind: str, part: str) -> Any:
        """Return the one resource of a type whose logical id has a part."""
        (entry,) = (entry for name, entry in self.of_type(kind).items() if part in name)
        return entry

    def group(self, role: NodeRole) -> Any:
        """Return the Auto Scaling group of a role, found by its tag."""
        (entry,) = (
            entry
            for entry in self.of_type("AWS::AutoScaling::AutoScalingGroup").values()
            if {"Key": "deeplearning:role", "PropagateAtLaunch": True, "Value": role.value}
            in entry["Properties"]["Tags"]
        )
        return entry

    def launch_data(self, role: NodeRole) -> Any:
        """Return the launch template data of a role."""
        template = self.group(role)["Properties"]["LaunchTemplate"]["LaunchTemplateId"]["Ref"]
        return self.template["Resources"][template]["Properties"]["LaunchTemplateData"]

    def user_data(self, role: NodeRole) -> str:
        """Return the user data of a role, with `<LogicalId>` for what is known at deployment only."""
        return render(self.launch_data(role)["UserData"]["Fn::Base64"])

    def settings(self, role: NodeRole) -> NodeSettings:
        """Return the settings that a node of a role reads."""
        match = re.search(r"<<'SETTINGS'\n(.*)\nSETTINGS\n", self.user_data(role))
        assert match is not None
        return NodeSettings.from_json(match[1])

    def group_id(self, role: NodeRole) -> str:
        """Return the logical id of a role's group."""
        group = self.group(role)
        return next(name for name, entry in self.template["Resources"].items() if entry is group)

    def before(self, name: str) -> set[str]:
        """Return the logical ids of everything that CloudFormation makes before a resource, and deletes after it."""
        resources = self.template["Resources"]
        found: set[str] = set()
        ahead = [name]
        while ahead:
            entry = resources[ahead.pop()]
            near = (references(entry.get("Properties", {})) | set(entry.get("DependsOn", []))) & set(resources)
            ahead += near - found
            found |= near
        return found

    def statements(self, part: str) -> list[Any]:
        """Return the statements of the one policy of the role whose logical id has a part."""
        (policy,) = self.policies(part)
        return list(policy["PolicyDocument"]["Statement"])

    def policies(self, part: str) -> list[Any]:
        """Return the properties of all policies of the role whose logical id has a part, which has none inside."""
        (name,) = (name for name in self.of_type("AWS::IAM::Role") if part in name)
        assert not self.template["Resources"][name]["Properties"].keys() & {"Policies", "ManagedPolicyArns"}
        kinds = self.of_type("AWS::IAM::ManagedPolicy") | self.of_type("AWS::IAM::Policy")
        return [entry["Properties"] for entry in kinds.values() if {"Ref": name} in entry["Properties"]["Roles"]]

    def policy_of(self, kind: str, part: str) -> list[Any]:
        """Return the statements of the policy of the queue or topic whose logical id has a part."""
        (name,) = (name for name in self.of_type(kind) if part in name)
        policies = self.of_type(f"{kind}Policy").values()
        (found,) = (entry for entry in policies if name in references(entry["Properties"]))
        return list(found["Properties"]["PolicyDocument"]["Statement"])


def references(value: Any) -> set[str]:
    """Return every logical id that a part of a template names."""
    if isinstance(value, dict):
        found = set().union(*(references(inner) for inner in value.values()))
        if isinstance(value.get("Ref"), str):
            found.add(value["Ref"])
        if isinstance(value.get("Fn::GetAtt"), list):
            found.add(value["Fn::GetAtt"][0])
        return found
    if isinstance(value, list):
        return set().union(*(references(inner) for inner in value))
    return set(re.findall(r"\$\{(\w+)[.}]", value)) if isinstance(value, str) else set()


def render(value: Any) -> str:
    """Return an intrinsic as text."""
    if isinstance(value, str):
        return value
    ((kind, argument),) = value.items()
    if kind == "Fn::Join":
        return str(argument[0]).join(render(part) for part in argument[1])
    return f"<{argument if isinstance(argument, str) else '.'.join(map(str, argument))}>"


def read_submission(synthesis: Synthesis) -> SubmissionSettings:
    """Return the submission document, with `<LogicalId>` for what is known at deployment only."""
    parameter = synthesis.part("AWS::SSM::Parameter", "Submission")["Properties"]
    return SubmissionSettings.from_json(render(parameter["Value"]))


_CONTEXT_TAKERS = ("aws-cdk-lib.App", "aws-cdk-lib.Stage")
_PYTHON_NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)+")


def find_python_names(value: Any) -> list[str]:
    """Return the keys of plain dicts, at any depth, that are spelled as Python spells names."""
    if isinstance(value, dict):
        return [key for key in value if _PYTHON_NAME.fullmatch(key)] + find_python_names(list(value.values()))
    if isinstance(value, (list, tuple)):
        return [name for entry in value for name in find_python_names(entry)]
    mapping = python_jsii_mapping(value) if hasattr(value, "__jsii_type__") else None
    return find_python_names([getattr(value, name) for name in mapping]) if mapping else []


@pytest.fixture(scope="session", autouse=True)
def refuse_properties_that_jsii_drops() -> Iterator[None]:
    """
    Fail every construct that is given a plain dict with a key in Python's spelling.

    jsii translates such names in its typed property classes alone; in a dict it passes them on, and the CDK drops them.
    """
    create = jsii.create

    def check(klass: Any, obj: Any, args: list[Any] | None = None) -> Any:
        if klass.__jsii_type__ not in _CONTEXT_TAKERS and (names := find_python_names(args or [])):
            raise AssertionError(f"{klass.__name__} would lose {names}; use the typed property classes")
        return create(klass, obj, args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsii, "create", check)
        yield


@pytest.fixture(scope="session")
def make_app() -> Callable[..., cdk.App]:
    def make(**context: Any) -> cdk.App:
        return cdk.App(
            context={"aws:cdk:disable-asset-staging": True, **context},
            analytics_reporting=False,
            builtin_cloud_formation_validation=False,
        )

    return make


@pytest.fixture
def make_stack(make_app: Callable[..., cdk.App]) -> Callable[..., cdk.Stack]:
    def make(name: str = "Stack", region: str | None = None, **context: Any) -> cdk.Stack:
        return cdk.Stack(make_app(**context), name, env=cdk.Environment(region=region))

    return make


@pytest.fixture(scope="session")
def read_stack() -> Callable[[cdk.Stack], Synthesis]:
    def read(stack: cdk.Stack) -> Synthesis:
        # From the assembly's files: the CDK's `assertions` would synthesize twice, and carry all of it through jsii.
        app: Any = stack.node.root
        folder = Path(app.synth(force=True).directory)
        artifact = json.loads((folder / "manifest.json").read_text())["artifacts"][stack.artifact_id]
        template = json.loads((folder / artifact["properties"]["templateFile"]).read_text())
        metadata = artifact.get("metadata", {})
        if "additionalMetadataFile" in artifact:
            metadata |= json.loads((folder / artifact["additionalMetadataFile"]).read_text())
        found = [entry for entries in metadata.values() for entry in entries if entry["type"] == "aws:cdk:warning"]
        return Synthesis(template, [entry["data"] for entry in found])

    return read


@pytest.fixture(scope="session")
def synthesize(
    make_app: Callable[..., cdk.App], read_stack: Callable[[cdk.Stack], Synthesis]
) -> Callable[..., Synthesis]:
    """Return a function from props to a synthesis; equal plain props are synthesized once."""
    known: dict[str, Synthesis] = {}

    def make(*, stack_name: str = "Stack", region: str | None = None, **props: Any) -> Synthesis:
        key = repr((stack_name, region, sorted(props.items(), key=lambda item: item[0])))
        if key not in known:
            stack = cdk.Stack(make_app(), stack_name, env=cdk.Environment(region=region))
            TrainingCluster(stack, "Cluster", **props_of(props))
            known[key] = read_stack(stack)
        return known[key]

    return make


@pytest.fixture(scope="session")
def make_once(
    make_app: Callable[..., cdk.App], read_stack: Callable[[cdk.Stack], Synthesis]
) -> Callable[..., Callable[..., Synthesis]]:
    """Return a function from a kind and its defaults to one from props to a synthesis; equal ones happen once."""

    def make_kind(kind: Any, **defaults: Any) -> Callable[..., Synthesis]:
        known: dict[str, tuple[Synthesis, Any]] = {}

        def synthesize(**props: Any) -> Synthesis:
            if repr(props) not in known:
                stack = cdk.Stack(make_app(), "Stack")
                kind(stack, "Training", **(defaults | props))
                known[repr(props)] = read_stack(stack), props  # Kept: an object of jsii is named by its address.
            return known[repr(props)][0]

        return synthesize

    return make_kind
