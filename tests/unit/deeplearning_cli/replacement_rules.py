"""
Writes which property replaces its resource, from CloudFormation's own schemas, as cfn-lint brings them.

    python -m tests.unit.deeplearning_cli.replacement_rules
"""

import json
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[3]
TARGET = ROOT / "cli/deeplearning_cli/changes/replacement_rules.json"
SUPPORT = ROOT / "rehearsal/cdk_rehearsal/referees/resource_support.toml"
CUSTOM = {
    name: {"always": ["ServiceToken"], "sometimes": [], "name": []}
    for name in ("Custom::PinnedImage", "Custom::RequestedCapacity")
}
"""CloudFormation has no schema for these; its user guide says that another function is another resource."""
BESIDE = ["AWS::SageMaker::NotebookInstance", "AWS::SageMaker::NotebookInstanceLifecycleConfig"]
"""Types of our stacks that no rehearsal creates."""
_GROUP = ("BidPrice", "Configurations", "EbsConfiguration", "InstanceType", "Market", "Name")
FORMER = {
    "AWS::EMR::Cluster": [
        *(
            f"Instances.{name}"
            for name in (
                "AdditionalMasterSecurityGroups",
                "AdditionalSlaveSecurityGroups",
                "Ec2KeyName",
                "Ec2SubnetId",
                "EmrManagedMasterSecurityGroup",
                "EmrManagedSlaveSecurityGroup",
                "Placement",
                "ServiceAccessSecurityGroup",
                *(f"{group}InstanceGroup.{name}" for group in ("Core", "Master") for name in _GROUP),
            )
        )
    ]
}
"""
Properties that replaced their resource by CloudFormation's resource specification of 2018, and by its schema do not.

Both agree that EMR resizes a group in place (`InstanceCount`, update type Mutable).
"""


def make_rules():
    """Return a type's properties that replace it always, that may, and that name it: for every type of our stacks."""
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER  # noqa: PLC0415 - slow

    types = [name for name in tomllib.loads(SUPPORT.read_text()) if name.startswith("AWS::")]
    types += BESIDE
    rules = {}
    for name in types:
        schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", name).schema
        rules[name] = {
            "always": _paths(schema.get("createOnlyProperties", [])),
            "sometimes": sorted(_paths(schema.get("conditionalCreateOnlyProperties", [])) + FORMER.get(name, [])),
            "name": _read_name(schema),
        }
    return {name: rule for name, rule in sorted((rules | CUSTOM).items()) if rule["always"] or rule["sometimes"]}


def _read_name(schema):
    """Return the properties by which a template names a resource; none if AWS makes the name."""
    name = schema.get("primaryIdentifier", [])
    return [] if set(name) & set(schema.get("readOnlyProperties", [])) else _paths(name)


def _paths(pointers):
    return sorted(pointer.removeprefix("/properties/").replace("/", ".") for pointer in pointers)


if __name__ == "__main__":
    TARGET.write_text(json.dumps(make_rules(), indent=1) + "\n")
