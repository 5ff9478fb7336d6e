"""Rights of calls of SageMaker, and of what SageMaker does for a training job as its execution role."""

import pytest

from cdk_rehearsal.iam.operations import find_needs
from tests.unit.cdk_rehearsal.iam.test_operations import ACCOUNT, KEY, REGION, AccountWithKey

ROLE = f"arn:aws:iam::{ACCOUNT}:role/Training"
JOB = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/0123abcd-digits"
REQUEST = {
    "TrainingJobName": "0123abcd-Digits",
    "RoleArn": ROLE,
    "OutputDataConfig": {"S3OutputPath": "s3://models/", "KmsKeyId": KEY},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeKmsKeyId": KEY},
    "VpcConfig": {"Subnets": ["subnet-1", "subnet-2"], "SecurityGroupIds": ["sg-1"]},
    "Tags": [{"Key": "team", "Value": "learning"}],
}


class SampleAccount(AccountWithKey):
    def find_role(self, name):
        return name if name == ROLE else ""


def list_needs(operation, **parameters):
    return {need.action: need for need in find_needs(f"sagemaker.{operation}", parameters, SampleAccount())}


def test_a_training_job_is_created_on_its_arn_in_lower_case_with_the_keys_of_its_request():
    need = list_needs("CreateTrainingJob", **REQUEST)["sagemaker:CreateTrainingJob"]
    assert need.resource == JOB
    assert need.context["sagemaker:VpcSubnets"] == ("subnet-1", "subnet-2")
    assert need.context["sagemaker:VpcSecurityGroupIds"] == ("sg-1",)
    assert need.context["sagemaker:InstanceTypes"] == ("ml.m5.large",)
    assert need.context["sagemaker:OutputKmsKey"] == need.context["sagemaker:VolumeKmsKey"] == KEY
    assert need.context["aws:RequestTag/team"] == "learning"
    assert need.context["aws:TagKeys"] == ("team",)


def test_a_job_has_the_keys_of_its_limits_and_of_the_file_systems_of_all_its_channels():
    systems = [("fs-1", "EFS", "rw", "/"), ("fs-2", "FSxLustre", "ro", "/abc/train")]
    names = ("FileSystemId", "FileSystemType", "FileSystemAccessMode", "DirectoryPath")
    channels = [{"DataSource": {"FileSystemDataSource": dict(zip(names, each, strict=True))}} for each in systems]
    more = {
        "InputDataConfig": channels,
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "KeepAlivePeriodInSeconds": 600},
        "RemoteDebugConfig": {"EnableRemoteDebug": True},
    }
    context = list_needs("CreateTrainingJob", **REQUEST | more)["sagemaker:CreateTrainingJob"].context
    assert context["sagemaker:FileSystemId"] == ("fs-1", "fs-2")
    assert context["sagemaker:FileSystemType"] == ("EFS", "FSxLustre")
    assert context["sagemaker:FileSystemAccessMode"] == ("rw", "ro")
    assert context["sagemaker:FileSystemDirectoryPath"] == ("/", "/abc/train")
    assert (context["sagemaker:MaxRuntimeInSeconds"], context["sagemaker:KeepAlivePeriod"]) == ("60", "600")
    assert context["sagemaker:EnableRemoteDebug"] == "true"


def test_a_job_without_a_file_system_and_limits_has_none_of_their_keys():
    context = list_needs("CreateTrainingJob", **REQUEST)["sagemaker:CreateTrainingJob"].context
    absent = ("FileSystemId", "MaxRuntimeInSeconds", "KeepAlivePeriod", "EnableRemoteDebug")
    assert not {f"sagemaker:{key}" for key in absent} & set(context)


def test_a_job_outside_of_a_vpc_has_no_subnets_for_a_condition():
    context = list_needs("CreateTrainingJob", **REQUEST | {"VpcConfig": None})["sagemaker:CreateTrainingJob"].context
    assert not {"sagemaker:VpcSubnets", "sagemaker:VpcSecurityGroupIds"} & set(context)


def test_the_role_of_a_job_is_passed_to_sagemaker():
    need = list_needs("CreateTrainingJob", **REQUEST)["iam:PassRole"]
    assert (need.resource, need.context) == (ROLE, {"iam:PassedToService": "sagemaker.amazonaws.com"})


def test_tags_of_a_new_job_need_the_right_to_tag_it():
    assert list_needs("CreateTrainingJob", **REQUEST)["sagemaker:AddTags"].resource == JOB
    assert "sagemaker:AddTags" not in list_needs("CreateTrainingJob", **REQUEST | {"Tags": []})


@pytest.mark.parametrize("operation", ["DescribeTrainingJob", "StopTrainingJob", "DeleteTrainingJob"])
def test_a_call_about_a_job_knows_its_tags(operation):
    (need,) = list_needs(operation, TrainingJobName="0123abcd-Digits").values()
    assert (need.resource, need.context["aws:ResourceTag/team"]) == (JOB, "learning")


def test_a_volume_is_encrypted_by_a_grant_through_sagemaker():
    (need,) = list_needs("EncryptVolume", SSEKMSKeyId=KEY).values()
    assert (need.action, need.resource, need.is_implied) == ("kms:CreateGrant", KEY, True)
    assert need.context["kms:GrantIsForAWSResource"] == "true"
    assert need.context["kms:ViaService"] == "sagemaker.us-east-1.amazonaws.com"


def test_an_image_is_read_from_the_repository_of_its_uri():
    image = "763104351884.dkr.ecr.eu-west-1.amazonaws.com/team/training:1.2"
    (need,) = find_needs("ecr.BatchGetImage", {"Image": image}, SampleAccount())
    assert need.resource == "arn:aws:ecr:eu-west-1:763104351884:repository/team/training"


def test_a_submitter_finds_documents_by_the_right_to_their_path_alone():
    """Refusals name the path of the call, without what is below it (aws/aws-dotnet-extensions-configuration#108)."""
    (need,) = find_needs("ssm.GetParametersByPath", {"Path": "/deeplearning", "Recursive": True}, SampleAccount())
    assert (need.action, need.resource) == (
        "ssm:GetParametersByPath",
        f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/deeplearning",
    )


def test_a_log_is_read_by_the_right_to_its_stream():
    stream = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamName": "0123abcd-digits/algo-1-9"}
    (need,) = find_needs("logs.GetLogEvents", stream, SampleAccount())
    assert need.resource.endswith(":log-group:/aws/sagemaker/TrainingJobs:log-stream:0123abcd-digits/algo-1-9")
