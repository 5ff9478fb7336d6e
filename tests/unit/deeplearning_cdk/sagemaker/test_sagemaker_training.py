"""Training jobs on SageMaker: the submission document, the containers' settings, the models, and the dependencies."""

import importlib.util
import json
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import Duration, Size
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import (
    DataSource,
    InstanceTypeFacts,
    JobEnvironment,
    Lustre,
    LustreFileSystem,
    Network,
    SageMakerTraining,
    Software,
    Storage,
)
from deeplearning_cdk.warnings import KEPT_WARM
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import FileSystemFolder, submission_parameter
from deeplearning_contract.jobs.training_job import SHARED_FOLDER, make_training_request, name_training_job
from tests.unit.deeplearning_cdk.conftest import read_submission
from tests.unit.deeplearning_cdk.sagemaker.conftest import read_member, read_training

ROOT = Path(__file__).parents[4]
IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/team/train:1"
DATA = (
    DataSource("train", "team-data", "train/"),
    DataSource("copied", "other-data", target="local"),
    DataSource("streamed", "other-data", "s/", target="stream"),
    DataSource("linked", "more-data", target="lustre"),
)


# --- Submission document ------------------------------------------------------------------------------


def test_document_names_what_a_job_needs_and_the_template_names_no_job(make):
    synthesis = make()
    submission, training = read_submission(synthesis), read_training(synthesis)
    (role,), (bucket,) = (
        [name for name in synthesis.of_type(kind) if part in name]
        for kind, part in (("AWS::IAM::Role", "TrainingRole"), ("AWS::S3::Bucket", "ModelBucket"))
    )
    (key,) = synthesis.of_type("AWS::KMS::Key")
    (file_system,) = synthesis.of_type("AWS::EFS::FileSystem")
    assert (submission.platform, submission.login_user, submission.cluster_id) == ("sagemaker", "root", "")
    assert training.role_arn == f"<{role}.Arn>"
    assert (training.instance_type, training.gpu_count, training.members) == ("ml.g5.12xlarge", 4, 2)
    assert (training.output, training.key_arn) == (f"s3://<{bucket}>/models/", f"<{key}.Arn>")
    assert training.shared == FileSystemFolder(f"<{file_system}>", "EFS", "/")
    assert ["PrivateSubnet1" in subnet for subnet in training.subnets] == [True]
    assert ["NodesSecurityGroup" in group for group in training.security_groups] == [True]
    assert (training.max_seconds, training.max_wait_seconds) == (86_400, 0)
    assert (training.max_pending_seconds, training.keep_alive_seconds) == (0, 0)
    parameter = synthesis.part("AWS::SSM::Parameter", "Submission")["Properties"]
    assert parameter["Name"] == submission_parameter(submission.cluster)
    assert not [each for each in synthesis.template["Resources"].values() if "SageMaker" in each["Type"]]


def test_choices_of_the_user_are_in_the_document(make):
    training = read_training(
        make(
            instance_type="m5.xlarge",
            members=5,
            image=IMAGE,
            volume_size=Size.gibibytes(200),
            max_run=Duration.hours(2),
            spot_wait=Duration.hours(3),
        )
    )
    assert (training.instance_type, training.gpu_count, training.members) == ("ml.m5.xlarge", 0, 5)
    assert (training.image, training.volume_gibibytes) == (IMAGE, 200)
    assert (training.max_seconds, training.max_wait_seconds) == (7200, 10_800)


@pytest.mark.parametrize(
    ("instance_type", "name", "volume"),
    [
        # SageMaker API reference, ResourceConfig: the storage of a type with NVMe disks is fixed.
        ("ml.g5.12xlarge", "ml.g5.12xlarge", 0),
        (ec2.InstanceType("g5.12xlarge"), "ml.g5.12xlarge", 0),
        (ec2.InstanceType("ml.g5.12xlarge"), "ml.g5.12xlarge", 0),
        ("m5.xlarge", "ml.m5.xlarge", 100),
        (InstanceTypeFacts(name="g9.12xlarge", gpu_count=4, compute_capability="12.0"), "ml.g9.12xlarge", 100),
    ],
    ids=str,
)
def test_a_type_may_have_sagemakers_name_and_a_volume_unless_it_has_disks(make, instance_type, name, volume):
    training = read_training(make(instance_type=instance_type, image=IMAGE))
    assert (training.instance_type, training.volume_gibibytes) == (name, volume)


def test_a_job_of_the_document_is_a_request_with_only_the_data_that_it_names(make):
    synthesis = make(image=IMAGE, storage=Storage(data=DATA, lustre=Lustre()))
    submission, training = read_submission(synthesis), read_training(synthesis)
    job = JobDefinition(name="train", program=("python", "train.py"), data=("train", "linked"))
    request = make_training_request(
        submission, job, name_training_job(training, job.name, "20261127000000"), secret="5e" * 32
    )
    _, _, train, linked = request["InputDataConfig"]
    assert train["DataSource"]["S3DataSource"]["S3Uri"] == "s3://team-data/train/"
    (lustre,) = synthesis.of_type("AWS::FSx::FileSystem")
    assert linked["DataSource"]["FileSystemDataSource"] == {
        "FileSystemId": f"<{lustre}>",
        "FileSystemType": "FSxLustre",
        "FileSystemAccessMode": "ro",
        "DirectoryPath": f"/<{lustre}.LustreMountName>/linked",
    }


def test_an_existing_lustre_is_mounted_by_the_id_in_its_dns_name(make_stack, read_stack):
    stack = make_stack()
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-east-1a"], private_subnet_ids=["subnet-1"]
    )
    lustre = LustreFileSystem.from_attributes(
        stack,
        "Lustre",
        dns_name="fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com",
        mount_name="abcdefgh",
        security_group=ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1"),
    )
    SageMakerTraining(stack, "Training", image=IMAGE, network=Network(vpc=vpc), storage=Storage(lustre=lustre))
    found = read_training(read_stack(stack)).lustre
    assert found == FileSystemFolder("fs-0123456789abcdef0", "FSxLustre", "/abcdefgh")


def test_document_of_much_data_takes_an_advanced_parameter_and_too_much_is_refused(make, make_stack):
    """Systems Manager user guide, "Managing parameter tiers": at most 4 KB, or 8 KB in the advanced tier."""
    parameter = make().part("AWS::SSM::Parameter", "Submission")["Properties"]
    assert parameter["Tier"] == "Intelligent-Tiering"
    data = [DataSource(f"set-{number}", "images", f"{'x' * 600}/{number}/") for number in range(18)]
    with pytest.raises(ValueError, match=r"^submission document must be at most 8192 bytes, got about [0-9]+; give "):
        SageMakerTraining(make_stack(), "Training", storage=Storage(data=data))


def test_two_stacks_with_one_path_have_other_names_of_jobs(make_app, read_stack):
    found = set()
    for name in ("first", "second"):
        stack = cdk.Stack(make_app(), "Stack", stack_name=name)
        nested = cdk.NestedStack(stack, "Nested")
        for scope in (stack, nested):
            found.add(SageMakerTraining(scope, "Training", image=IMAGE)._name_prefix)
    assert len(found) == 4
    assert all(len(prefix) == 9 and prefix.endswith("-") for prefix in found)


def test_a_job_that_is_submitted_as_soon_as_the_document_exists_finds_all(make):
    synthesis = make(image=IMAGE, storage=Storage(data=DATA, lustre=Lustre()))
    (document,) = synthesis.of_type("AWS::SSM::Parameter")
    needed = synthesis.before(document)
    for kind in (
        "AWS::EFS::MountTarget",
        "AWS::EC2::NatGateway",
        "AWS::EC2::VPCEndpoint",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::FSx::FileSystem",
        "AWS::FSx::DataRepositoryAssociation",
        "AWS::S3::BucketPolicy",
        "AWS::Events::Rule",
    ):
        assert synthesis.of_type(kind), kind
        assert set(synthesis.of_type(kind)) <= needed, kind
    assert {name for name in synthesis.of_type("AWS::IAM::ManagedPolicy") if "TrainingRole" in name} <= needed


# --- Containers ---------------------------------------------------------------------------------------


def test_containers_get_settings_without_services_and_without_tokens(tmp_path):
    app = cdk.App(outdir=str(tmp_path), analytics_reporting=False, builtin_cloud_formation_validation=False)
    stack = cdk.Stack(app, "Stack")
    bucket = cdk.Fn.import_value("Bucket")
    storage = Storage(data=(DataSource("train", bucket, "train/"), *DATA[1:]), lustre=Lustre(), mount_point="/mnt/efs")
    SageMakerTraining(stack, "Training", storage=storage)
    app.synth()
    settings = read_member(tmp_path)
    assert (settings.login_user, settings.cluster, settings.region) == ("root", "", "")
    assert (settings.file_system.kind, settings.file_system.source) == ("channel", SHARED_FOLDER)
    assert settings.file_system.mount_point == "/mnt/efs"
    assert [source.name for source in settings.needs.data] == ["train", "copied", "streamed", "linked"]
    assert settings.needs.environment is not None
    assert settings.needs.environment.kind == "horovod"
    hardware = settings.needs.hardware["master"]
    assert (settings.expected_gpu_count, hardware.gpu_count, hardware.efa_cards) == (4, 4, 0)
    services = (settings.state_table, settings.master_queue_url, settings.worker_queue_url, settings.report_queue_url)
    assert {*services, settings.report_sender, settings.signal_url, settings.log_group} == {""}
    assert (settings.packages, settings.setup_seconds) == ({}, 900)


def test_image_is_built_with_the_environment_unless_the_user_brings_one(make):
    built = read_training(make()).image
    assert built.startswith(
        "<${AWS::AccountId}.dkr.ecr.${AWS::Region}.${AWS::URLSuffix}/cdk-hnb659fds-container-assets"
    )
    environment = JobEnvironment.from_requirements(str(ROOT / "examples/environments/small.txt"))
    other = read_training(make(software=Software(environment=environment))).image
    assert other.startswith(built[:80])
    assert other != built
    assert read_training(make(image=IMAGE)).image == IMAGE


@pytest.mark.parametrize(
    ("instance_type", "framework"),
    [
        ("g5.12xlarge", "torch==2.7.1"),
        ("p5.48xlarge", "torch==2.7.1"),
        ("p6-b200.48xlarge", "torch==2.13.0"),
        ("m5.xlarge", "torch==2.13.0"),
    ],
)
def test_the_image_has_an_older_cuda_where_its_gpus_allow_it_because_nobody_chooses_the_driver_of_a_host(
    tmp_path, instance_type, framework
):
    """SageMaker API reference, CreateTrainingJob: no field chooses the image of the hosts."""
    app = cdk.App(outdir=str(tmp_path), analytics_reporting=False, builtin_cloud_formation_validation=False)
    SageMakerTraining(cdk.Stack(app, "Stack"), "Training", instance_type=instance_type)
    app.synth()
    (node,) = (json.loads(path.read_text()) for path in tmp_path.glob("asset.*/node.json"))
    assert node["needs"]["environment"]["framework"] == framework
    assert read_member(tmp_path).needs.environment.framework == framework


def test_members_admit_each_other_on_all_ports_and_the_file_system_admits_nfs_from_them(make):
    synthesis = make()
    rules = [entry["Properties"] for entry in synthesis.of_type("AWS::EC2::SecurityGroupIngress").values()]
    (nodes,) = read_training(synthesis).security_groups

    def admits(rule):
        group, source = (f"<{'.'.join(rule[name]['Fn::GetAtt'])}>" for name in ("GroupId", "SourceSecurityGroupId"))
        return group == nodes, source == nodes, rule["IpProtocol"], rule.get("FromPort")

    assert {admits(rule) for rule in rules} == {(True, True, "-1", None), (False, True, "tcp", 2049)}
    # The file system takes clients without TLS and IAM, because SageMaker mounts it: API reference,
    # FileSystemDataSource, it has neither an access point nor a choice of TLS or IAM.
    assert "FileSystemPolicy" not in synthesis.only("AWS::EFS::FileSystem")
    assert synthesis.of_type("AWS::EFS::AccessPoint") == {}


# --- Models and notifications -------------------------------------------------------------------------


def test_models_are_encrypted_private_have_versions_and_outlive_the_stack_with_their_key(make):
    synthesis = make()
    (key,), (name,) = synthesis.of_type("AWS::KMS::Key"), synthesis.of_type("AWS::S3::Bucket")
    bucket = synthesis.template["Resources"][name]
    properties = bucket["Properties"]
    (rule,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {
        "KMSMasterKeyID": {"Fn::GetAtt": [key, "Arn"]},
        "SSEAlgorithm": "aws:kms",
    }
    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    assert properties["VersioningConfiguration"] == {"Status": "Enabled"}
    (life,) = properties["LifecycleConfiguration"]["Rules"]
    assert "ExpirationInDays" not in life
    # All jobs write below one prefix; S3 keeps the former version, which their role can neither delete nor expire.
    assert life["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    (denial,) = synthesis.only("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    assert (denial["Effect"], denial["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    for entry in (bucket, synthesis.template["Resources"][key]):
        assert (entry["DeletionPolicy"], entry["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")


def test_failed_jobs_of_this_stack_reach_the_topic(make):
    """EventBridge event reference, "Amazon SageMaker AI events": the detail is that of DescribeTrainingJob."""
    synthesis = make()
    rule, prefix = synthesis.only("AWS::Events::Rule"), read_training(synthesis).name_prefix
    assert rule["EventPattern"] == {
        "source": ["aws.sagemaker"],
        "detail-type": ["SageMaker Training Job State Change"],
        "detail": {"TrainingJobStatus": ["Failed"], "TrainingJobName": [{"prefix": prefix}]},
    }
    (topic,) = synthesis.of_type("AWS::SNS::Topic")
    (target,) = rule["Targets"]
    assert target["Arn"] == {"Ref": topic}
    assert json.loads(target["InputTransformer"]["InputTemplate"]) == "<kind>: <name> is <state>. <message>"


def test_user_is_warned_of_the_price_of_instances_that_are_kept_and_of_nothing_else(make):
    assert make().warnings == []
    (warning,) = make(image=IMAGE, keep_warm=Duration.minutes(30)).warnings
    assert "keeps its g5.12xlarge for 30 minutes after its end" in warning
    assert KEPT_WARM in warning


# --- Types --------------------------------------------------------------------------------------------


def test_the_list_of_types_is_the_output_of_its_script():
    path = ROOT / "constructs" / "write_training_types.py"
    spec = importlib.util.spec_from_file_location("writer", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.TARGET.read_text() == script.render()
