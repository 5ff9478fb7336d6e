"""Every consumer app of the examples synthesizes as it stands, without a template error, and shows what it is for."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdk_rehearsal.referees.judge import judge_template
from tests.foreign_dependencies import find_foreign_dependencies

EXAMPLES = Path(__file__).parents[2] / "examples"
APPS = sorted(path.parent.name for path in EXAMPLES.glob("*/app.py"))
GROUP = "AWS::AutoScaling::AutoScalingGroup"


@dataclass(frozen=True)
class Assembly:
    """Output of an app: templates by stack name, and the context keys that the CLI is to look up."""

    templates: Mapping[str, Mapping[str, Any]]
    missing: Sequence[str]


@pytest.fixture(scope="module")
def assemble(run_as_cli, tmp_path_factory):
    """Return a function that runs an app as the CDK CLI does; each app is run once."""
    known = {}

    def run(name, **context):
        key = json.dumps([name, context], sort_keys=True)
        if key not in known:
            out = tmp_path_factory.mktemp(name)
            run_as_cli(EXAMPLES / name / "app.py", out, context)
            manifest = json.loads((out / "manifest.json").read_text())
            known[key] = Assembly(
                {path.name.partition(".")[0]: json.loads(path.read_text()) for path in out.glob("*.template.json")},
                [entry["key"] for entry in manifest.get("missing", [])],
            )
        return known[key]

    return run


@pytest.fixture(scope="module")
def app(assemble):
    """Return a function that runs an app and returns its one template."""

    def run(name, **context):
        (template,) = assemble(name, **context).templates.values()
        return template

    return run


def _of_type(template, kind):
    return {name: entry for name, entry in template["Resources"].items() if entry["Type"] == kind}


def _settings(template, part):
    """Return the settings in the user data of the launch template whose logical id has a part."""
    (entry,) = (entry for name, entry in _of_type(template, "AWS::EC2::LaunchTemplate").items() if part in name)
    parts = entry["Properties"]["LaunchTemplateData"]["UserData"]["Fn::Base64"]["Fn::Join"][1]
    text = "".join(part if isinstance(part, str) else "<token>" for part in parts)
    found = re.search(r"<<'SETTINGS'\n(.*)\nSETTINGS\n", text)
    assert found is not None
    return json.loads(found[1])


def test_the_examples_are_those_that_are_tried_here():
    assert APPS == [
        "capacity_block_app",
        "capacity_experiment",
        "consumer_app",
        "data_from_s3_app",
        "fleet",
        "own_estate_app",
        "two_clusters_app",
    ]


@pytest.mark.parametrize("name", APPS)
def test_app_says_how_it_is_run_and_has_no_lint_errors(assemble, name):
    assert json.loads((EXAMPLES / name / "cdk.json").read_text())["app"] == "python app.py"
    assembly = assemble(name)
    if assembly.missing:
        assembly = assemble(name, **_look_up(assembly.missing))
    for template in assembly.templates.values():
        assert find_foreign_dependencies(template) == []
        assert [str(finding) for finding in judge_template(template, "us-east-1", {})] == []


def test_the_workers_of_a_capacity_block_wait_in_its_zone_until_it_begins(app):
    template = app("capacity_block_app", reservation="cr-0fedcba9876543210", zone="us-west-2b")
    zones = {subnet["Properties"]["AvailabilityZone"] for subnet in _of_type(template, "AWS::EC2::Subnet").values()}
    assert zones == {"us-west-2b"}
    launched = [
        entry["Properties"]["LaunchTemplateData"] for entry in _of_type(template, "AWS::EC2::LaunchTemplate").values()
    ]
    reserved = [data for data in launched if "InstanceMarketOptions" in data]
    assert [data["InstanceMarketOptions"]["MarketType"] for data in reserved] == ["capacity-block"]
    target = reserved[0]["CapacityReservationSpecification"]["CapacityReservationTarget"]
    assert target["CapacityReservationId"] == "cr-0fedcba9876543210"
    (request,) = (each["Properties"] for each in _of_type(template, "Custom::RequestedCapacity").values())
    assert (request["Master"], request["Workers"]) == ("1", "4")
    functions = [entry["Properties"] for entry in _of_type(template, "AWS::Lambda::Function").values()]
    variables = [each["Environment"]["Variables"] for each in functions if "Environment" in each]
    assert [each["DEEPLEARNING_WORKER_BLOCK_ID"] for each in variables if "DEEPLEARNING_WORKER_BLOCK_ID" in each] == [
        "cr-0fedcba9876543210"
    ]


def test_the_experiment_refuses_launches_of_its_own_group_in_its_zone_and_asks_for_none(app):
    template = app("capacity_experiment", zone="us-west-2b", type="c7i.large")
    (group,) = (each["Properties"] for each in _of_type(template, GROUP).values())
    assert "DesiredCapacity" not in group
    assert group["MinSize"] == "0"
    (subnet,) = group["VPCZoneIdentifier"]
    assert template["Resources"][subnet["Ref"]]["Properties"]["AvailabilityZone"] == "us-west-2b"
    (launched,) = _of_type(template, "AWS::EC2::LaunchTemplate").values()
    assert launched["Properties"]["LaunchTemplateData"]["InstanceType"] == "c7i.large"
    (experiment,) = (each["Properties"] for each in _of_type(template, "AWS::FIS::ExperimentTemplate").values())
    (action,) = experiment["Actions"].values()
    target = experiment["Targets"][action["Targets"]["AutoScalingGroups"]]
    assert target["ResourceTags"].items() <= {tag["Key"]: tag["Value"] for tag in group["Tags"]}.items()
    assert action["Parameters"]["availabilityZoneIdentifiers"] == "us-west-2b"
    granted = json.dumps(_of_type(template, "AWS::IAM::Policy"))
    assert action["ActionId"] in granted
    readme = (EXAMPLES / "capacity_experiment/README.md").read_text()
    assert set(re.findall(r"`([A-Z][a-z]+)`", readme)) == set(template["Outputs"])


def test_data_from_s3_is_declared_on_every_node_with_the_rights_and_the_environment(app):
    template = app("data_from_s3_app")
    for part in ("Master", "Workers"):
        needs = _settings(template, part)["needs"]
        assert {entry["name"]: (entry["key"], entry["target"]) for entry in needs["data"]} == {
            "coco": ("coco.tar.gz", "efs"),
            "backbone": ("backbone/", "local"),
        }
        assert (needs["environment"]["kind"], needs["environment"]["horovod"]) == ("requirements", "0.28.1")
    grants = {name: entry for name, entry in _of_type(template, "AWS::IAM::ManagedPolicy").items() if "Grants" in name}
    decrypting = [name for name, entry in grants.items() if "kms:Decrypt" in json.dumps(entry)]
    assert len(decrypting) == 2


def test_two_clusters_share_one_vpc_and_one_file_system(app):
    template = app("two_clusters_app")
    for kind in ("AWS::EC2::VPC", "AWS::EFS::FileSystem", "AWS::EFS::MountTarget"):
        assert len(_of_type(template, kind)) == 1, kind
    assert len(_of_type(template, GROUP)) == 4
    names = {_settings(template, part)["cluster"] for part in ("TrainingNodesWorkers", "EvaluationNodesWorkers")}
    assert len(names) == 2
    sources = {
        _settings(template, part)["file_system"]["source"]
        for part in ("TrainingNodesWorkers", "EvaluationNodesWorkers")
    }
    assert len(sources) == 1


_FILTER = "filter.vpc-id=vpc-0123456789abcdef0"
VPC_KEY = f"vpc-provider:account=111122223333:{_FILTER}:region=us-east-1:returnAsymmetricSubnets=true"


def _look_up(missing):
    """Return what the CLI would write to cdk.context.json."""
    (image_key,) = (key for key in missing if key.startswith("ami:"))
    subnets = [
        {
            "subnetId": f"subnet-0123456789abcdef{zone}",
            "routeTableId": f"rtb-0123456789abcdef{zone}",
            "availabilityZone": f"us-east-1{zone}",
            "cidr": f"10.0.{number}.0/24",
        }
        for number, zone in enumerate("ab")
    ]
    vpc = {
        "vpcId": "vpc-0123456789abcdef0",
        "vpcCidrBlock": "10.0.0.0/16",
        "availabilityZones": [],
        "subnetGroups": [{"name": "Private", "type": "Private", "subnets": subnets}],
    }
    return {VPC_KEY: vpc, image_key: "ami-0123456789abcdef0"}


def test_an_estate_is_looked_up_at_the_first_run_and_taken_at_the_next(assemble):
    first = assemble("own_estate_app")
    assert VPC_KEY in first.missing
    context = _look_up(first.missing)
    assert set(first.missing) == set(context)
    second = assemble("own_estate_app", **context)
    assert second.missing == []
    for assembly in (first, second):
        assert sorted(assembly.templates) == ["team-estate", "team-estate-training"]
        assert [find_foreign_dependencies(template) for template in assembly.templates.values()] == [[], []]
    training = second.templates["team-estate-training"]
    for part, groups in (("Master", 3), ("Workers", 2)):
        (data,) = (
            entry["Properties"]["LaunchTemplateData"]
            for name, entry in _of_type(training, "AWS::EC2::LaunchTemplate").items()
            if part in name
        )
        assert data["ImageId"] == "ami-0123456789abcdef0"
        (interface,) = data["NetworkInterfaces"]
        assert len(interface["Groups"]) == groups
        assert "team-estate:ExportsOutput" in json.dumps(interface["Groups"][-1])
    assert {json.dumps(entry["Properties"]["VPCZoneIdentifier"]) for entry in _of_type(training, GROUP).values()} == {
        '["subnet-0123456789abcdefa"]'
    }
    assert not _of_type(training, "AWS::EFS::FileSystem")
    profiles = _of_type(training, "AWS::IAM::InstanceProfile").values()
    assert [entry for entry in profiles if "team-estate:ExportsOutput" in json.dumps(entry["Properties"]["Roles"])]
