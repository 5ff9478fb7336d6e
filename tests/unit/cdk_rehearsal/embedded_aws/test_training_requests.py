"""Requests of training jobs that SageMaker or the rehearsal refuses name the parameter that is wrong."""

import copy

import pytest

from cdk_rehearsal.embedded_aws.sagemaker.request import RequestError, check_request
from cdk_rehearsal.referees.service_models import judge_request

DAY = 86_400
S3 = {"S3DataType": "S3Prefix", "S3Uri": "s3://data/train/", "S3DataDistributionType": "FullyReplicated"}
SYSTEM = {
    "FileSystemId": "fs-0123456789abcdef0",
    "FileSystemType": "EFS",
    "FileSystemAccessMode": "rw",
    "DirectoryPath": "/",
}
REQUEST = {
    "TrainingJobName": "0123-digits",
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "AlgorithmSpecification": {
        "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/training:1",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["/bin/sh", "-c"],
        "ContainerArguments": ["true"],
        "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    },
    "HyperParameters": {"epochs": "3"},
    "Environment": {"TEAM": "learning"},
    "InputDataConfig": [
        {"ChannelName": "train", "InputMode": "FastFile", "DataSource": {"S3DataSource": S3}},
        {"ChannelName": "shared", "DataSource": {"FileSystemDataSource": SYSTEM}},
    ],
    "OutputDataConfig": {"S3OutputPath": "s3://models/"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 30},
    "VpcConfig": {"SecurityGroupIds": ["sg-0123456789abcdef0"], "Subnets": ["subnet-0123456789abcdef0"]},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    "Tags": [{"Key": "team", "Value": "learning"}],
}


def change(path, value):
    """Return the request with another value at a path; None removes it."""
    request = copy.deepcopy(REQUEST)
    *way, last = path.split("/")
    place = request
    for part in way:
        place = place[int(part)] if part.isdecimal() else place.setdefault(part, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return request


def refuse(request):
    with pytest.raises(RequestError) as caught:
        check_request(request)
    assert caught.value.code == "ValidationException"
    return str(caught.value)


def test_the_right_request_is_taken():
    check_request(REQUEST)
    check_request(change("EnableNetworkIsolation", value=False))


OUTSIDE_OF_THE_MODEL = {
    "TrainingJobName": ("under_score", "trainingJobName"),
    "TrainingJobName ": ("x" * 64, "trainingJobName"),
    "RoleArn": ("Training", "roleArn"),
    "ResourceConfig/InstanceType": ("ml.c5.large", "resourceConfig.instanceType"),
    "ResourceConfig/KeepAlivePeriodInSeconds": (21_601, "resourceConfig.keepAlivePeriodInSeconds"),
    "AlgorithmSpecification/ContainerArguments": (["x" * 300], "algorithmSpecification.containerArguments.1.member"),
    "AlgorithmSpecification/TrainingInputMode": ("Stream", "algorithmSpecification.trainingInputMode"),
    "HyperParameters": ({"epochs": "x" * 3000}, "hyperParameters.epochs"),
    "HyperParameters ": ({f"p{n}": "" for n in range(101)}, "hyperParameters"),
    "HyperParameters  ": ({"k" * 257: ""}, "hyperParameters." + "k" * 257),
    "Environment": ({"1TEAM": "x"}, "environment.1TEAM"),
    "Environment ": ({f"P{n}": "" for n in range(101)}, "environment"),
    "InputDataConfig/0/ChannelName": ("a channel", "inputDataConfig.1.member.channelName"),
    "StoppingCondition/MaxPendingTimeInSeconds": (60, "stoppingCondition.maxPendingTimeInSeconds"),
    "VpcConfig/SecurityGroupIds": ([], "vpcConfig.securityGroupIds"),
    "Surprise": (1, "surprise"),
    "ResourceConfig/Surprise": (1, "resourceConfig.surprise"),
}


@pytest.mark.parametrize(("path", "value", "place"), [(path, *rest) for path, rest in OUTSIDE_OF_THE_MODEL.items()])
def test_what_is_outside_of_the_service_model_is_refused(path, value, place):
    assert f"at '{place}' failed to satisfy constraint" in refuse(change(path.strip(), value))


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("TrainingJobName", "trainingJobName"),
        ("RoleArn", "roleArn"),
        ("OutputDataConfig", "outputDataConfig"),
        ("AlgorithmSpecification", "algorithmSpecification"),
        ("ResourceConfig", "resourceConfig"),
        ("StoppingCondition", "stoppingCondition"),
        ("ResourceConfig/InstanceType", "resourceConfig.instanceType"),
        ("ResourceConfig/InstanceCount", "resourceConfig.instanceCount"),
        ("ResourceConfig/VolumeSizeInGB", "resourceConfig.volumeSizeInGB"),
        ("InputDataConfig/0/DataSource", "inputDataConfig.1.member.dataSource"),
        ("InputDataConfig/1/DataSource/FileSystemDataSource/DirectoryPath", "fileSystemDataSource.directoryPath"),
    ],
)
def test_what_sagemaker_requires_must_be_there(path, place):
    assert f"{place}' failed to satisfy constraint" in refuse(change(path, None))


RULES = [
    ("AlgorithmSpecification/TrainingImage", None, "TrainingImage or AlgorithmName"),
    ("AlgorithmSpecification/AlgorithmName", "xgboost", "TrainingImage or AlgorithmName"),
    ("AlgorithmSpecification/ContainerEntrypoint", None, "ContainerEntrypoint"),
    ("AlgorithmSpecification/MetricDefinitions/0/Regex", "loss=(", "Regex of metric loss"),
    ("ResourceConfig/InstanceCount", 0, "resourceConfig.instanceCount"),
    ("ResourceConfig/VolumeSizeInGB", 0, "resourceConfig.volumeSizeInGB"),
    ("StoppingCondition/MaxRuntimeInSeconds", 28 * DAY + 1, "MaxRuntimeInSeconds must be at most"),
    (
        "StoppingCondition/MaxWaitTimeInSeconds",
        7200,
        "It is only supported when EnableManagedSpotTraining is set to true",
    ),
    ("EnableManagedSpotTraining", True, "Invalid MaxWaitTimeInSeconds. It must be present"),
    ("VpcConfig", None, "VpcConfig must be given where a channel has a FileSystemDataSource"),
    ("InputDataConfig/1/InputMode", "FastFile", "InputMode of a FileSystemDataSource must be File"),
    ("InputDataConfig/1/ChannelName", "train", "ChannelName must be unique"),
    ("InputDataConfig/1/DataSource/S3DataSource", S3, "DataSource of channel shared"),
    ("InputDataConfig/1/DataSource", {}, "DataSource of channel shared"),
]


@pytest.mark.parametrize(("path", "value", "said"), RULES)
def test_a_rule_of_sagemaker_refuses_its_wrong_request(path, value, said):
    assert said in refuse(change(path, value))


def test_spot_may_not_wait_less_than_it_runs():
    request = change("EnableManagedSpotTraining", value=True)
    request["StoppingCondition"]["MaxWaitTimeInSeconds"] = 3599
    assert "MaxWaitTimeInSeconds" in refuse(request)
    request["StoppingCondition"]["MaxWaitTimeInSeconds"] = 3600
    check_request(request)


def test_spot_keeps_no_instances():
    request = change("EnableManagedSpotTraining", value=True)
    request["StoppingCondition"]["MaxWaitTimeInSeconds"] = 3600
    request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = 60
    assert "KeepAlivePeriodInSeconds is not supported with EnableManagedSpotTraining" in refuse(request)


UNREAD = [
    ("RetryStrategy", {"MaximumRetryAttempts": 3}, "RetryStrategy"),
    ("CheckpointConfig", {"S3Uri": "s3://models/"}, "CheckpointConfig"),
    ("EnableNetworkIsolation", True, "EnableNetworkIsolation"),
    ("AlgorithmSpecification/EnableSageMakerMetricsTimeSeries", True, "EnableSageMakerMetricsTimeSeries"),
    ("OutputDataConfig/CompressionType", "NONE", "OutputDataConfig.CompressionType"),
    ("ResourceConfig/InstancePreferences", [{"InstanceType": "ml.m5.large"}], "ResourceConfig.InstancePreferences"),
    ("InputDataConfig/0/ShuffleConfig", {"Seed": 1}, "InputDataConfig.ShuffleConfig"),
    ("InputDataConfig/0/CompressionType", "Gzip", "InputDataConfig.CompressionType Gzip"),
    ("InputDataConfig/0/InputMode", "Pipe", "InputDataConfig.InputMode Pipe"),
    ("InputDataConfig/0/DataSource/S3DataSource/S3DataType", "ManifestFile", "S3DataSource.S3DataType ManifestFile"),
    (
        "InputDataConfig/0/DataSource/S3DataSource/S3DataDistributionType",
        "ShardedByS3Key",
        "S3DataSource.S3DataDistributionType ShardedByS3Key",
    ),
    ("InputDataConfig/0/DataSource/S3DataSource/AttributeNames", ["a"], "S3DataSource.AttributeNames"),
]


@pytest.mark.parametrize(("path", "value", "name"), UNREAD)
def test_a_parameter_upon_which_the_rehearsal_does_not_act_is_refused_by_name(path, value, name):
    assert f"the rehearsal does not act upon {name}" in refuse(change(path, value)).replace(
        "AlgorithmSpecification.", ""
    )


def test_a_job_outside_of_a_vpc_is_refused_by_name():
    request = change("VpcConfig", None)
    request["InputDataConfig"] = request["InputDataConfig"][:1]
    assert "VpcConfig" in refuse(request)


def test_a_template_is_not_judged_as_a_whole_request():
    assert list(judge_request("sagemaker", "CreateTrainingJob", {"trainingJobName": "a", "Surprise": 1}, "job")) == []
    assert list(judge_request("sagemaker", "CreateTrainingJob", {"Surprise": 1}, "job", is_whole=True))
