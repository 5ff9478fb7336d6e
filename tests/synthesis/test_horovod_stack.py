"""The stack that is deployed: one a region, the same every time, and without a template error."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import aws_cdk as cdk
import pytest

from cdk_rehearsal.referees.lint import lint_template
from stacks.cluster_stack import HorovodStack
from stacks.context import read_choices
from tests.synthesis.golden import TEMPLATE, WRITE, find_differences, flatten, read_settings

ROOT = Path(__file__).parents[2]
CPU = {"workers.instance_type": "m5.large"}
HAS_PACKAGES = {"kind": "ubuntu", "has_packages": True}
VPC = {
    "vpc_id": "vpc-0123456789abcdef0",
    "availability_zones": ["us-east-1a"],
    "private_subnet_ids": ["subnet-0123456789abcdef0"],
    "private_subnet_route_table_ids": ["rtb-0123456789abcdef0"],
}
CASES = {
    "default": {},
    "misleading-name": {"stack_name": "master-WorkerAutoScalingGroup", **CPU},
    "one-worker": {"workers.desired_capacity": 1, **CPU},
    "no-worker": {"workers.desired_capacity": 0, **CPU},
    "forty-workers": {"workers.desired_capacity": 40, **CPU},
    "own-private-vpc": {
        "network.vpc": VPC,
        "network.isolated": True,
        "software.image": HAS_PACKAGES,
        "software.environment": "none",
        "regions": "us-east-1",
        **CPU,
    },
    "existing-file-system": {"storage.file_system": "fs-0123456789abcdef0", **CPU},
    "public-master": {"master.ssh_peer": "203.0.113.7/32", "key_pair": "mine", **CPU},
    "data-and-lustre": {
        "storage.data": [
            {"name": "coco", "bucket": "team-data", "key": "coco/train.tar.gz"},
            {"name": "images", "bucket": "team-data", "key": "images/", "target": "lustre"},
            {"name": "more-data", "bucket": "more-data", "target": "lustre"},
        ],
        "storage.lustre.storage": "2400GiB",
        "software.environment": str(ROOT / "requirements.lock"),
        "storage.throughput": "256MiB",
        **CPU,
    },
}
CASES["everything"] = {
    **CASES["data-and-lustre"],
    **CASES["public-master"],
    "software.image": "deep-learning-amazon-linux",
    "workers.instance_type": "p5.48xlarge",
    "master.instance_type": "m5.large",
}


def _errors(template, regions):
    matches = lint_template(template, regions=regions)
    return [f"{match.rule.id} {match.message}" for match in matches if match.rule.id.startswith("E")]


def test_stack_is_what_it_was(synthesize):
    (template,) = synthesize({}).values()
    differences = find_differences(json.loads(TEMPLATE.read_text()), flatten(template))
    assert not differences, "\n".join([WRITE, *differences])


# Together they have every type of resource, and all that choices add to them; linting takes two seconds.
@pytest.mark.parametrize("case", ["own-private-vpc", "everything"])
def test_stack_has_no_lint_errors(synthesize, case):
    (template,) = synthesize(CASES[case]).values()
    assert _errors(template, ["us-east-1"]) == []


def test_three_regions_are_three_equal_stacks_without_lint_errors(synthesize):
    regions = ["us-east-1", "eu-west-1", "ap-northeast-1"]
    templates = synthesize({"regions": regions})
    assert sorted(templates) == sorted(f"deeplearning-cluster-{region}" for region in regions)
    digits = re.compile(r"deeplearning-cluster-[a-z]+-[a-z]+-\d-[0-9a-f]{8}|(?<=dl-)[0-9a-f]{8}|in us-east-1 only")
    texts = {
        digits.sub("<cluster>", json.dumps(templates[f"deeplearning-cluster-{region}"])).replace(region, "<region>")
        for region in regions
    }
    assert len(texts) == 1
    assert _errors(templates["deeplearning-cluster-us-east-1"], regions) == []


def test_lint_errors_would_be_seen():
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"Colour": "blue"}}
    assert _errors({"Resources": {"Queue": queue}}, ["us-east-1"])


@pytest.mark.parametrize(
    ("case", "workers"),
    [("default", "3"), ("misleading-name", "3"), ("one-worker", "1"), ("no-worker", "0"), ("forty-workers", "40")],
)
def test_choices_reach_the_workers_group(synthesize, case, workers):
    (template,) = synthesize(CASES[case]).values()
    requests = [entry for entry in template["Resources"].values() if entry["Type"] == "Custom::RequestedCapacity"]
    assert [(each["Properties"]["Master"], each["Properties"]["Workers"]) for each in requests] == [("1", workers)]


def test_existing_file_system_and_own_vpc_reach_the_template(synthesize):
    (template,) = synthesize(CASES["existing-file-system"]).values()
    assert template["Outputs"]["FileSystemId"]["Value"] == "fs-0123456789abcdef0"
    (own,) = synthesize(CASES["own-private-vpc"]).values()
    assert not [entry for entry in own["Resources"].values() if entry["Type"] in {"AWS::EC2::VPC", "AWS::EC2::Subnet"}]


def test_data_lustre_and_environment_reach_the_nodes(synthesize):
    (template,) = synthesize(CASES["data-and-lustre"]).values()
    kinds = {entry["Type"]: entry.get("Properties", {}) for entry in template["Resources"].values()}
    assert kinds["AWS::FSx::FileSystem"]["StorageCapacity"] == 2400
    links = {
        entry["Properties"]["FileSystemPath"]: entry["Properties"]["DataRepositoryPath"]
        for entry in template["Resources"].values()
        if entry["Type"] == "AWS::FSx::DataRepositoryAssociation"
    }
    assert links == {"/images": "s3://team-data/images/", "/more-data": "s3://more-data/"}
    assert kinds["AWS::EFS::FileSystem"]["ProvisionedThroughputInMibps"] == 256
    needs = json.loads(read_settings(kinds["AWS::EC2::LaunchTemplate"]["LaunchTemplateData"]["UserData"]["Fn::Base64"]))
    assert {entry["name"]: entry["target"] for entry in needs["needs"]["data"]} == {
        "coco": "efs",
        "images": "lustre",
        "more-data": "lustre",
    }
    assert needs["needs"]["lustre"]["mount_point"] == "/fsx"
    assert needs["needs"]["environment"]["kind"] == "requirements"


@pytest.mark.parametrize(("policy", "deletion"), [(None, "RetainExceptOnCreate"), ("destroy", "Delete")])
def test_lustre_in_the_users_vpc_stays_or_goes_like_the_shared_file_system(synthesize, policy, deletion):
    context = {**CASES["own-private-vpc"], "storage.lustre": {}}
    (template,) = synthesize(context | ({"storage.removal_policy": policy} if policy else {})).values()
    found = {
        entry["Type"]: entry["DeletionPolicy"] for entry in template["Resources"].values() if "DeletionPolicy" in entry
    }
    assert found["AWS::FSx::FileSystem"] == found["AWS::EFS::FileSystem"] == deletion


def test_outputs_have_the_commands_to_log_in(synthesize):
    (template,) = synthesize(CASES["public-master"]).values()
    assert set(template["Outputs"]) == {"AlarmTopic", "ClusterName", "FileSystemId", "LogIn", "LogInWithSsh"}
    (private,) = synthesize(CPU).values()
    assert set(private["Outputs"]) == {"AlarmTopic", "ClusterName", "FileSystemId", "LogIn"}


def test_tags_are_the_stacks_own(tmp_path):
    app = cdk.App(context={"aws:cdk:disable-asset-staging": True}, outdir=str(tmp_path), analytics_reporting=False)
    (choice,) = read_choices({"tags": "team=vision", **CPU})
    stack = HorovodStack(app, choice)
    assert stack.tags.tag_values() == {"application": "deeplearning-cdk", "team": "vision"}


def test_template_contains_no_resource_of_the_cli_and_no_bootstrap_rule(synthesize):
    (template,) = synthesize({"regions": "us-east-1", **CPU}).values()
    assert "Rules" not in template
    assert not [entry for entry in template["Resources"].values() if entry["Type"] == "AWS::CDK::Metadata"]


def test_app_writes_the_same_template_without_the_cli(synthesize, tmp_path):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "CDK_"))}
    command = [sys.executable, str(ROOT / "app.py"), "-c", "workers.instance_type=m5.large"]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True)
    written = json.loads((tmp_path / "cdk.out" / "deeplearning-cluster.template.json").read_text())
    (expected,) = synthesize(CPU).values()
    assert written == expected
