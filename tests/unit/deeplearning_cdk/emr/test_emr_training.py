"""Clusters on EMR: the cluster's properties, its dependencies, and the programs and settings of its members."""

import re
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import Duration, Size

from deeplearning_cdk import JobEnvironment, Software
from deeplearning_cdk.emr.training import EmrTraining
from deeplearning_contract.job_definition import SubmissionSettings
from tests.unit.deeplearning_cdk.conftest import render
from tests.unit.deeplearning_cdk.emr.conftest import CLUSTER, read_settings

ROOT = Path(__file__).parents[4]


# --- The cluster --------------------------------------------------------------------------------------


def test_cluster_has_uniform_groups_of_one_type_in_the_private_subnet_and_stays_without_steps(make: Any) -> None:
    properties = make().only(CLUSTER)
    instances = properties["Instances"]
    assert instances["MasterInstanceGroup"] == {
        "InstanceCount": 1,
        "InstanceType": "g5.12xlarge",
        "Market": "ON_DEMAND",
        "Name": "primary",
    }
    assert instances["CoreInstanceGroup"] == {**instances["MasterInstanceGroup"], "InstanceCount": 2, "Name": "core"}
    assert "PrivateSubnet1" in instances["Ec2SubnetId"]["Ref"]
    assert instances["KeepJobFlowAliveWhenNoSteps"] is True
    assert properties["ReleaseLabel"] == "emr-7.14.0"
    assert properties["Applications"] == [{"Name": "Hadoop"}]
    assert properties["EbsRootVolumeSize"] == 100
    assert "AutoTerminationPolicy" not in properties


def test_members_start_from_the_latest_base_image_with_the_open_driver(make: Any) -> None:
    synthesis = make()
    parameter = synthesis.template["Parameters"][synthesis.only(CLUSTER)["CustomAmiId"]["Ref"]]
    assert parameter == {
        "Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
        "Default": "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id",
    }


def test_choices_of_the_user_are_in_the_cluster(make: Any) -> None:
    synthesis = make(
        instance_type="m5.xlarge",
        members=5,
        release="emr-7.13.0",
        image="ami-0123456789abcdef0",
        applications=("Hadoop", "Spark"),
        root_volume=Size.gibibytes(80),
        stop_when_idle=Duration.hours(1),
    )
    properties = synthesis.only(CLUSTER)
    assert properties["Instances"]["CoreInstanceGroup"]["InstanceCount"] == 4
    assert properties["ReleaseLabel"] == "emr-7.13.0"
    assert properties["CustomAmiId"] == "ami-0123456789abcdef0"
    assert properties["Applications"] == [{"Name": "Hadoop"}, {"Name": "Spark"}]
    assert properties["EbsRootVolumeSize"] == 80
    assert properties["AutoTerminationPolicy"] == {"IdleTimeout": 3600}
    assert read_settings(synthesis).stop_after_seconds == 0
    assert synthesis.warnings == []


def test_a_deadline_is_in_the_settings_and_ends_the_warning_that_nothing_stops_the_cluster(make: Any) -> None:
    synthesis = make(stop_after=Duration.hours(12), image="ami-0123456789abcdef0")
    assert read_settings(synthesis).stop_after_seconds == 43200
    assert synthesis.warnings == []


def test_emrs_own_image_has_no_ami_id_and_another_python(make: Any) -> None:
    properties = make(image="emr", root_volume=15).only(CLUSTER)
    assert "CustomAmiId" not in properties
    assert properties["EbsRootVolumeSize"] == 15
    assert properties["BootstrapActions"][0]["ScriptBootstrapAction"]["Args"][4] == "/usr/bin/python3.11"


def test_a_type_of_arm_starts_from_the_image_for_arm(make: Any) -> None:
    synthesis = make(instance_type="m6g.xlarge")
    parameter = synthesis.template["Parameters"][synthesis.only(CLUSTER)["CustomAmiId"]["Ref"]]
    assert parameter["Default"].startswith("/aws/service/deeplearning/ami/arm64/base-oss-")


def test_step_metadata_waits_for_the_members_and_ends_a_cluster_that_cannot_train(make: Any) -> None:
    assert make().only(CLUSTER)["Steps"] == [
        {
            "ActionOnFailure": "TERMINATE_CLUSTER",
            "HadoopJarStep": {
                "Args": ["sudo", "-n", "/usr/local/bin/deeplearning-member", "wait"],
                "Jar": "command-runner.jar",
            },
            "Name": "metadata",
        }
    ]


def test_cluster_waits_for_mount_targets_network_rules_rights_and_backup(make: Any) -> None:
    synthesis = make()
    needed = set(synthesis.part(CLUSTER, "Cluster")["DependsOn"])
    for kind in (
        "AWS::EFS::MountTarget",
        "AWS::EFS::AccessPoint",
        "AWS::Backup::BackupSelection",
        "AWS::EC2::NatGateway",
        "AWS::EC2::VPCEndpoint",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::IAM::InstanceProfile",
        "AWS::S3::BucketPolicy",
    ):
        assert set(synthesis.of_type(kind)) <= needed, kind
    assert {name for name in synthesis.of_type("AWS::IAM::ManagedPolicy") if "Roles" in name} <= needed


# --- Programs and settings ----------------------------------------------------------------------------


def test_bootstrap_action_gets_the_agent_the_interpreter_and_theread_settings(make: Any) -> None:
    (action,) = make().only(CLUSTER)["BootstrapActions"]
    bucket, key, digest, region, python, _ = action["ScriptBootstrapAction"]["Args"]
    assert bucket == {"Fn::Sub": "cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}"}
    assert re.fullmatch(r"[0-9a-f]{64}\.zip", key)
    assert re.fullmatch(r"[0-9a-f]{64}", digest)
    assert region == {"Ref": "AWS::Region"}
    assert python == "/usr/bin/python3.12"
    assert re.fullmatch(r"s3://<cdk-\S+>/[0-9a-f]{64}\.sh", render(action["ScriptBootstrapAction"]["Path"]))


def test_bootstrap_script_contains_the_program_that_fetches_the_agent(tmp_path: Path) -> None:
    app = cdk.App(outdir=str(tmp_path), analytics_reporting=False, builtin_cloud_formation_validation=False)
    EmrTraining(cdk.Stack(app, "Stack"), "Training")
    app.synth()
    (script,) = tmp_path.glob("asset.*.sh")
    assert (ROOT / "userdata/fetch_agent.py").read_text().rstrip("\n") in script.read_text()
    assert "__FETCH_AGENT__" not in script.read_text()


def test_settings_are_those_of_a_worker_without_the_services_of_ec2(make: Any) -> None:
    settings = read_settings(make())
    assert settings.login_user == "hadoop"
    assert settings.expected_gpu_count == 4
    assert settings.worker_min_capacity == 2
    assert (settings.file_system.kind, settings.file_system.mount_point) == ("efs", "/efs")
    assert settings.needs.environment is not None
    assert settings.needs.environment.kind == "horovod"
    services = (settings.state_table, settings.master_queue_url, settings.worker_queue_url, settings.report_queue_url)
    assert {*services, settings.report_sender, settings.signal_url, settings.log_group} == {""}


@pytest.mark.parametrize(("image", "python"), [("dlami", "3.12"), ("emr", "3.11"), ("ami-0123456789abcdef0", "3.12")])
def test_jobs_run_on_the_interpreter_of_the_agent(make: Any, image: str, python: str) -> None:
    # The python3 of Amazon Linux is 3.9 for its life: AL2023 user guide, "Python in AL2023".
    synthesis = make(image=image)
    environment = read_settings(synthesis).needs.environment
    assert environment is not None
    assert environment.interpreter == f"/usr/bin/python{python}"
    (action,) = synthesis.only(CLUSTER)["BootstrapActions"]
    assert environment.interpreter in action["ScriptBootstrapAction"]["Args"]


def test_a_framework_without_a_wheel_for_the_images_interpreter_is_refused(make: Any) -> None:
    early = Software(environment=JobEnvironment.with_horovod(framework="tensorflow==2.15.1"))
    with pytest.raises(ValueError, match=r"^framework must have a wheel for the image's Python 3\.12, got 'tensorflow"):
        make(software=early)
    assert make(software=early, image="emr").only(CLUSTER)


def test_members_have_no_efa_and_no_second_card(make: Any) -> None:
    hardware = read_settings(make(instance_type="p4d.24xlarge")).needs.hardware
    assert {(each.efa_cards, each.network_cards) for each in hardware.values()} == {(0, 1)}


def test_submission_document_names_the_platform_and_emrs_id(make: Any) -> None:
    synthesis = make()
    parameter = synthesis.only("AWS::SSM::Parameter")
    (cluster,) = synthesis.of_type(CLUSTER)
    settings = SubmissionSettings.from_json(render(parameter["Value"]))
    assert (settings.platform, settings.login_user, settings.cluster_id) == ("emr", "hadoop", f"<{cluster}>")
    assert parameter["Name"] == f"/deeplearning/{settings.cluster}/submission"
    assert {"Key": "deeplearning:cluster", "Value": settings.cluster} in synthesis.only(CLUSTER)["Tags"]
