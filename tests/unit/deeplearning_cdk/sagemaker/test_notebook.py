"""The notebook instance of a stack with training jobs: its network, its rights and what it installs."""

import base64
import re
import subprocess
import time
import zipfile
from pathlib import Path

import botocore.session
import pytest
from aws_cdk import aws_kms as kms

from cdk_rehearsal.errors import UnsupportedError
from cdk_rehearsal.referees.resource_support import require_support
from deeplearning_cdk import SageMakerTraining
from deeplearning_cdk.coordination.payload import find_payload, pack_notebook
from deeplearning_cdk.sagemaker.notebook import MOST_CHARACTERS
from tests.real_time import GENEROUS_SECONDS
from tests.unit.deeplearning_cdk.conftest import render
from tests.unit.deeplearning_cdk.sagemaker.conftest import read_training

IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/team/train:1"
KIND = "AWS::SageMaker::NotebookInstance"


@pytest.fixture
def synthesis(make):
    return make(image=IMAGE, instance_type="m5.xlarge", notebook=True)


def read_script(synthesis):
    """Return the script of the start, with `<LogicalId>` for what is known at deployment only."""
    (lifecycle,) = synthesis.of_type("AWS::SageMaker::NotebookInstanceLifecycleConfig").values()
    (hook,) = lifecycle["Properties"]["OnStart"]
    return render(hook["Content"]["Fn::Base64"])


def test_there_is_no_notebook_unless_it_is_asked_for(make):
    synthesis = make(image=IMAGE, instance_type="m5.xlarge")
    assert not [each for each in synthesis.template["Resources"].values() if "Notebook" in each["Type"]]


def test_the_notebook_is_in_the_private_subnet_without_root_and_with_the_key(synthesis):
    (instance,) = (each["Properties"] for each in synthesis.of_type(KIND).values())
    (subnet,) = read_training(synthesis).subnets
    assert render(instance["SubnetId"]) == subnet
    assert (instance["DirectInternetAccess"], instance["RootAccess"]) == ("Disabled", "Disabled")
    assert instance["InstanceMetadataServiceConfiguration"] == {"MinimumInstanceMetadataServiceVersion": "2"}
    assert render(instance["KmsKeyId"]) == read_training(synthesis).key_arn
    (group,) = instance["SecurityGroupIds"]
    name = group["Fn::GetAtt"][0]
    assert "SecurityGroupIngress" not in synthesis.template["Resources"][name]["Properties"]
    rules = synthesis.of_type("AWS::EC2::SecurityGroupIngress").values()
    assert name not in str([rule["Properties"]["GroupId"] for rule in rules])


def test_the_values_of_the_notebook_are_in_the_service_model_of_sagemaker(synthesis):
    (instance,) = synthesis.of_type(KIND).values()
    model = botocore.session.get_session().get_service_model("sagemaker")
    members = model.operation_model("CreateNotebookInstance").input_shape.members
    assert instance["Properties"]["InstanceType"] in members["InstanceType"].enum
    platform = instance["Properties"]["PlatformIdentifier"]
    assert re.fullmatch(members["PlatformIdentifier"].metadata["pattern"], platform)


def test_the_instance_waits_for_the_network_its_rights_and_the_key(synthesis):
    (name,) = synthesis.of_type(KIND)
    needed = synthesis.before(name)
    for kind in ("AWS::EC2::NatGateway", "AWS::EC2::VPCEndpoint", "AWS::KMS::Key"):
        assert set(synthesis.of_type(kind)) <= needed, kind
    rights = {each for each in synthesis.of_type("AWS::IAM::ManagedPolicy") if "NotebookRole" in each}
    assert len(rights) == 2
    assert rights <= needed


def test_the_role_submits_reads_models_and_nothing_of_the_data(synthesis):
    allowed: dict[str, list[str]] = {}
    statements = [
        statement
        for policy in synthesis.policies("NotebookRole")
        for statement in policy["PolicyDocument"]["Statement"]
    ]
    for statement in statements:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        for action in actions:
            allowed.setdefault(action, []).extend(map(render, resources))
    (programs, models, _) = allowed["s3:GetObject"]
    assert programs.endswith(".zip")
    assert models.endswith("/models/*")
    assert "deeplearning-jobs" in allowed["s3:PutObject"][0]
    assert [each for each in allowed if each.startswith("kms:")] == ["kms:Decrypt"]
    assert allowed["kms:Decrypt"] == [read_training(synthesis).key_arn]
    assert {"sagemaker:CreateTrainingJob", "iam:PassRole", "logs:GetLogEvents"} <= set(allowed)
    assert allowed["iam:PassRole"] == [read_training(synthesis).role_arn]


def test_the_role_writes_the_logs_of_its_own_instance_alone(synthesis):
    (instance,) = synthesis.of_type(KIND).values()
    name = instance["Properties"]["NotebookInstanceName"]
    assert re.fullmatch(r"[0-9a-f]{8}-notebook-[0-9a-f]{8}", name)
    written = [
        render(resource)
        for policy in synthesis.policies("NotebookRole")
        for statement in policy["PolicyDocument"]["Statement"]
        if "logs:PutLogEvents" in statement["Action"]
        for resource in [statement["Resource"]]
    ]
    assert [each.partition(":log-stream:")[2] for each in written] == [f"{name}/*"]


def test_an_instance_that_is_replaced_gets_another_name(make_stack, read_stack):
    names = set()
    for key in (None, "mine"):
        stack = make_stack()
        own = kms.Key(stack, key) if key else None
        SageMakerTraining(stack, "Training", image=IMAGE, instance_type="m5.xlarge", notebook=True, encryption_key=own)
        (instance,) = read_stack(stack).of_type(KIND).values()
        names.add(instance["Properties"]["NotebookInstanceName"])
    assert len(names) == 2


def test_sagemaker_takes_the_role_as_it_documents_for_notebook_instances(synthesis):
    """SageMaker developer guide, "Cross-service confused deputy prevention", which does not name them."""
    role = synthesis.part("AWS::IAM::Role", "NotebookRole")
    (statement,) = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert statement == {
        "Action": "sts:AssumeRole",
        "Effect": "Allow",
        "Principal": {"Service": "sagemaker.amazonaws.com"},
    }


@pytest.fixture
def start(tmp_path):
    """Return a function that runs the script of the start with programs of the test, and waits for its installation."""
    programs, home = tmp_path / "bin", tmp_path / "SageMaker"
    for folder in (programs, home):
        folder.mkdir()
    script = find_payload("notebook_start.sh").read_text()
    for path, moved in {
        "/opt/deeplearning": tmp_path / "opt",
        "/home/ec2-user/SageMaker": home,
        "/var/log": tmp_path,
        "/usr/local/bin": programs,
    }.items():
        script = script.replace(path, str(moved))

    def start(aws):
        for name, body in {"aws": aws, "chown": "exit 0", "dnf": "exit 0"}.items():
            (programs / name).write_text(f"#!/bin/sh\n{body}\n")
            (programs / name).chmod(0o755)
        ended = tmp_path / "ended"
        watch = f"(tail --pid=$! -f /dev/null; touch {ended}) >/dev/null 2>&1 &"
        watched = script.replace("\ndisown", f"\n{watch}\ndisown")
        words = ["bash", "-c", watched, "start", "region", "bucket", "key", "0" * 64]
        subprocess.run(words, check=True, env={"PATH": f"{programs}:/usr/bin:/bin"}, timeout=GENEROUS_SECONDS)
        deadline = time.monotonic() + GENEROUS_SECONDS
        while not ended.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return home / "INSTALLATION-FAILED.txt"

    return start


@pytest.mark.parametrize(
    ("aws", "said"),
    [
        ("echo no route >&2; exit 1", "no route"),
        ("echo other bytes >programs.zip", "did NOT match"),
    ],
)
def test_an_installation_that_fails_ends_no_start_and_is_a_message_to_the_user(start, aws, said):
    """Developer guide, "Customization of a notebook instance": a script that fails keeps an instance from starting."""
    message = start(aws).read_text()
    assert said in message
    assert "then stop and start the instance" in message


def test_the_script_fits_into_a_lifecycle_configuration_and_is_a_program_of_bash(synthesis):
    """SageMaker API reference, NotebookInstanceLifecycleHook: at most 16,384 characters of base64."""
    script = read_script(synthesis)
    assert len(base64.b64encode(script.encode())) < MOST_CHARACTERS / 2
    assert script.startswith("#!/bin/bash\nset -- '<AWS::Region>' '")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_script_installs_locked_packages_and_no_package_of_this_name():
    """The name is on no index: whoever claims it would decide what the notebook installs (docs/releasing.md)."""
    script = find_payload("notebook_start.sh").read_text()
    (install,) = re.findall(r"pip install .*", script)
    assert install == "pip install --quiet --only-binary :all: --require-hashes --requirement notebook.lock"
    locked = find_payload("notebook.lock").read_text()
    names = set(re.findall(r"^([a-z0-9-]+)==", locked, re.MULTILINE))
    assert {"boto3", "ipykernel", "matplotlib", "rich"} <= names
    assert "deeplearning-cdk" not in names


def test_the_programs_are_the_notebook_its_job_and_the_command_and_always_the_same(tmp_path):
    first = Path(pack_notebook())
    with zipfile.ZipFile(first) as archive:
        names = set(archive.namelist())
    assert names >= {
        "sagemaker/mask_rcnn.ipynb",
        "mask_rcnn/rank.py",
        "mask_rcnn/stage_data.sh",
        "notebook.lock",
        "deeplearning_cli/main.py",
        "deeplearning_contract/version.py",
    }
    assert {name.partition("/")[0] for name in names} == {
        *("cdk_rehearsal", "deeplearning_cli", "deeplearning_contract", "deeplearning_view"),
        *("mask_rcnn", "notebook.lock", "sagemaker"),
    }
    assert Path(pack_notebook()) == first


def test_the_rehearsal_refuses_a_notebook_by_its_types(synthesis):
    with pytest.raises(UnsupportedError) as error:
        require_support(synthesis.template)
    kinds = {finding.rpartition(" ")[2] for finding in error.value.findings}
    assert kinds == {KIND, "AWS::SageMaker::NotebookInstanceLifecycleConfig"}
