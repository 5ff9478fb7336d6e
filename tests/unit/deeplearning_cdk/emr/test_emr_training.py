"""Clusters on EMR: the cluster's properties, its dependencies, and the programs and settings of its members."""

import hashlib
import re
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import Duration, Size

from deeplearning_cdk import DataSource, JobEnvironment, Software, Storage
from deeplearning_cdk.coordination.payload import Archive, keep_file
from deeplearning_cdk.emr import programs
from deeplearning_cdk.emr.programs import render_bootstrap
from deeplearning_cdk.emr.training import EmrTraining
from deeplearning_cdk.warnings import NEVER_STOPS
from deeplearning_cli.changes.effects import Effect
from deeplearning_cli.changes.templates import compare_templates
from deeplearning_contract.jobs.submission import SubmissionSettings
from tests.unit.deeplearning_cdk.conftest import render
from tests.unit.deeplearning_cdk.emr.conftest import CLUSTER, read_release, read_settings

ROOT = Path(__file__).parents[4]


# --- The cluster --------------------------------------------------------------------------------------


def test_cluster_has_uniform_groups_of_one_type_in_the_private_subnet_and_stays_without_steps(make):
    properties = make().only(CLUSTER)
    instances = properties["Instances"]
    primary = {"InstanceCount": 1, "InstanceType": "g5.12xlarge", "Market": "ON_DEMAND", "Name": "primary"}
    assert instances["MasterInstanceGroup"] == primary
    assert instances["CoreInstanceGroup"] == {**primary, "InstanceCount": 2, "Name": "core"}
    assert "PrivateSubnet1" in instances["Ec2SubnetId"]["Ref"]
    assert instances["KeepJobFlowAliveWhenNoSteps"] is True
    # Or a core instance with a full disk is replaced under its job: EMR API Reference, SetUnhealthyNodeReplacement, a
    # node with more than 90 % of its disk in use is unhealthy.
    assert instances["UnhealthyNodeReplacement"] is False
    assert properties["ReleaseLabel"] == "emr-7.14.0"
    assert properties["Applications"] == [{"Name": "Hadoop"}]
    assert properties["EbsRootVolumeSize"] == 100
    assert "AutoTerminationPolicy" not in properties
    # The step waits for the members, and ends a cluster that cannot train.
    wait = ["sudo", "-n", "/usr/local/bin/deeplearning-member", "wait"]
    step = {"Args": wait, "Jar": "command-runner.jar"}
    assert properties["Steps"] == [{"ActionOnFailure": "TERMINATE_CLUSTER", "HadoopJarStep": step, "Name": "metadata"}]


def test_members_with_gpus_install_the_driver_only_where_the_release_has_none(make):
    driver = ("nvidia-release", "kernel-devel-{kernel}", "kernel-modules-extra-{kernel}", "nvidia-open")
    assert read_settings(make()).packages["nvidia-smi"] == driver
    for props in ({"instance_type": "m5.xlarge"}, {"image": "ami-0123456789abcdef0"}):
        assert "nvidia-smi" not in read_settings(make(**props)).packages


def test_choices_of_the_user_are_in_the_cluster(make):
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


def test_a_deadline_is_in_the_settings_and_ends_the_warning_that_nothing_stops_the_cluster(make):
    assert {warning.rpartition("[ack: ")[2] for warning in make().warnings} == {f"{NEVER_STOPS}]"}
    synthesis = make(stop_after=Duration.hours(12), image="ami-0123456789abcdef0")
    assert read_settings(synthesis).stop_after_seconds == 43200
    assert synthesis.warnings == []


def test_cluster_waits_for_mount_targets_network_rules_rights_and_backup(make):
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


def test_bootstrap_action_gets_the_parameter_of_the_release_with_the_place_of_the_agent(make):
    synthesis = make()
    (action,) = synthesis.only(CLUSTER)["BootstrapActions"]
    parameter, region = action["ScriptBootstrapAction"]["Args"]
    assert synthesis.template["Resources"][parameter["Ref"]]["Properties"]["Tier"] == "Intelligent-Tiering"
    assert region == {"Ref": "AWS::Region"}
    assert re.fullmatch(r"s3://<cdk-\S+>/[0-9a-f]{64}\.sh", render(action["ScriptBootstrapAction"]["Path"]))
    agent = read_release(synthesis)["agent"]
    assert agent["bucket"] == "<cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}>"
    assert re.fullmatch(r"[0-9a-f]{64}\.zip", agent["key"])
    assert re.fullmatch(r"[0-9a-f]{64}", agent["sha256"])


def test_bootstrap_script_stays_as_it_is_because_another_one_replaces_every_cluster():
    """Change the digest only on purpose, and say in the changelog that clusters on EMR are replaced."""
    digest = hashlib.sha256(render_bootstrap().encode()).hexdigest()
    assert digest == "6d2107f6dded2e5bf2a8d23b06cfa7cd420107a1955ca47b51df671b3f4154fb"


def test_next_release_and_one_more_data_set_replace_nothing(make_app, read_stack, monkeypatch):
    def synthesize(storage):
        stack = cdk.Stack(make_app(), "Stack")
        EmrTraining(stack, "Training", storage=storage)
        return read_stack(stack).template

    before = synthesize(Storage())
    path = keep_file("agent.zip", b"the agent of the next release")
    monkeypatch.setattr(programs, "pack_agent", lambda: Archive(path, hashlib.sha256(b"next").hexdigest()))
    after = synthesize(Storage(data=(DataSource("coco", "images", "coco/"),)))
    changes = compare_templates(before, after)
    assert {change.effect for change in changes} == {Effect.UPDATE}
    assert "AWS::EMR::Cluster" not in {change.resource_type for change in changes}
    assert [change.resource_type for change in changes if "ProgramsRelease" in change.logical_id] == [
        "AWS::SSM::Parameter"
    ]


@pytest.mark.parametrize(
    "props", [{"restart": "2"}, {"release": "emr-7.13.0"}, {"image": "ami-0123456789abcdef0"}, {"root_volume": 50}]
)
def test_what_emr_cannot_change_replaces_the_cluster_and_one_more_member_does_not(make, props):
    changes = compare_templates(make().template, make(**props).template)
    assert [change.effect for change in changes if change.ends_jobs] == [Effect.REPLACE]
    (change,) = compare_templates(make().template, make(members=4).template)
    assert (change.effect, change.properties) == (Effect.UPDATE, ("Instances.CoreInstanceGroup.InstanceCount",))


def test_settings_that_do_not_fit_into_a_parameter_are_refused(make_stack):
    """Systems Manager user guide, "Managing parameter tiers": an advanced parameter has at most 8 KB."""
    data = [DataSource(f"set-{number}", "images", f"{'x' * 60}/{number}/") for number in range(90)]
    with pytest.raises(
        ValueError, match=r"settings of the members must be at most 8192 bytes, got about \d+; give sto"
    ):
        EmrTraining(make_stack(), "Training", storage=Storage(data=data))


def test_bootstrap_script_contains_the_program_that_fetches_the_agent(tmp_path):
    app = cdk.App(outdir=str(tmp_path), analytics_reporting=False, builtin_cloud_formation_validation=False)
    EmrTraining(cdk.Stack(app, "Stack"), "Training")
    app.synth()
    (script,) = tmp_path.glob("asset.*.sh")
    assert (ROOT / "userdata/fetch_agent.py").read_text().rstrip("\n") in script.read_text()
    assert (ROOT / "userdata/prepare_member.py").read_text().rstrip("\n") in script.read_text()
    assert "__FETCH_AGENT__" not in script.read_text()
    assert "__PREPARE_MEMBER__" not in script.read_text()


def test_settings_are_those_of_a_worker_without_the_services_of_ec2(make):
    settings = read_settings(make())
    assert settings.login_user == "hadoop"
    assert settings.expected_gpu_count == 4
    assert (settings.file_system.kind, settings.file_system.mount_point) == ("efs", "/efs")
    assert settings.needs.environment is not None
    assert settings.needs.environment.kind == "horovod"
    services = (settings.state_table, settings.master_queue_url, settings.worker_queue_url, settings.report_queue_url)
    assert {*services, settings.report_sender, settings.signal_url, settings.log_group} == {""}


@pytest.mark.parametrize(("image", "python"), [("emr", "3.11"), ("ami-0123456789abcdef0", "3.12")])
def test_members_start_from_the_image_whose_python_runs_agent_and_jobs(make, image, python):
    # The python3 of Amazon Linux is 3.9 for its life: AL2023 user guide, "Python in AL2023".
    synthesis = make(image=image)
    assert synthesis.only(CLUSTER).get("CustomAmiId", "emr") == image
    assert not [name for name in synthesis.template["Parameters"] if "ami" in name.lower()]
    environment = read_settings(synthesis).needs.environment
    assert environment is not None
    assert environment.interpreter == read_release(synthesis)["interpreter"] == f"/usr/bin/python{python}"


def test_a_framework_without_a_wheel_for_the_images_interpreter_is_refused(make):
    early = Software(environment=JobEnvironment.with_horovod(framework="tensorflow==2.15.1"))
    with pytest.raises(ValueError, match=r"^framework must have a wheel for the image's Python 3\.12, got 'tensorflow"):
        make(software=early, image="ami-0123456789abcdef0")
    assert make(software=early).only(CLUSTER)


def test_members_have_no_efa_and_no_second_card(make):
    hardware = read_settings(make(instance_type="p4d.24xlarge")).needs.hardware
    assert {(each.efa_cards, each.network_cards) for each in hardware.values()} == {(0, 1)}


def test_submission_document_names_the_platform_and_emrs_id(make):
    synthesis = make()
    parameter = synthesis.part("AWS::SSM::Parameter", "Submission")["Properties"]
    (cluster,) = synthesis.of_type(CLUSTER)
    settings = SubmissionSettings.from_json(render(parameter["Value"]))
    assert (settings.platform, settings.login_user, settings.cluster_id) == ("emr", "hadoop", f"<{cluster}>")
    assert parameter["Name"] == f"/deeplearning/{settings.cluster}/submission"
    assert {"Key": "deeplearning:cluster", "Value": settings.cluster} in synthesis.only(CLUSTER)["Tags"]


# --- Notifications ------------------------------------------------------------------------------------


def test_failed_steps_and_a_failed_end_of_this_cluster_reach_the_topic(make):
    """EMR management guide, "Monitoring Amazon EMR events with CloudWatch"."""
    synthesis = make()
    rule, (cluster,) = synthesis.only("AWS::Events::Rule"), synthesis.of_type(CLUSTER)
    assert rule["EventPattern"] == {
        "source": ["aws.emr"],
        "detail-type": ["EMR Cluster State Change", "EMR Step Status Change"],
        "detail": {"clusterId": [{"Ref": cluster}], "state": ["FAILED", "TERMINATED_WITH_ERRORS"]},
    }
    (topic,) = synthesis.of_type("AWS::SNS::Topic")
    (target,) = rule["Targets"]
    assert target["Arn"] == {"Ref": topic}
    publish = next(
        statement
        for statement in synthesis.policy_of("AWS::SNS::Topic", "Alarms")
        if statement.get("Principal") == {"Service": "events.amazonaws.com"}
    )
    assert publish["Action"] == "sns:Publish"
    assert "Condition" not in publish
