"""Limits of the roles of training jobs: each refuses what it is there for, and what IAM cannot limit is known."""

import pytest

from cdk_rehearsal.errors import RehearsalError
from deeplearning_rehearsal.privileges.must_deny import judge_call
from deeplearning_rehearsal.privileges.template_rights import read_template_rights
from tests.gates.presets import PRESETS
from tests.submitting_app import SUBMITTER, add_submitter
from tests.synthesis.altered_rights import allow, call, check_denials, drop, edit, list_allowed, loosen

EXECUTION = "ClusterRole"
CREATE = "create a training job"
KEYS = (
    *("VpcSubnets", "VpcSecurityGroupIds", "OutputKmsKey", "InstanceTypes", "MaxRuntimeInSeconds"),
    *("FileSystemId", "FileSystemType", "FileSystemAccessMode", "FileSystemDirectoryPath"),
)
TAGGED = {"aws:RequestTag/deeplearning:cluster": "{cluster}", "aws:TagKeys": "deeplearning:cluster"}
OWN_JOB = {**{f"sagemaker:{key}": f"{{condition:sagemaker:{key}}}" for key in KEYS}, **TAGGED}
JOBS = "arn:{partition}:logs:{region}:{account}:log-group:/aws/sagemaker/TrainingJobs:log-stream:"
INTERFACE = "arn:{partition}:ec2:{region}:{account}:network-interface/eni-0123456789abcdef0"
ANY_JOB = "arn:aws:sagemaker:us-east-1:123456789012:training-job/*"


PERMITTED = (
    call("create a job", SUBMITTER, "sagemaker:CreateTrainingJob", "{granted:sagemaker:CreateTrainingJob}", **OWN_JOB),
    call("tag it", SUBMITTER, "sagemaker:AddTags", "{granted:sagemaker:AddTags}", **TAGGED),
    call(
        "create a job that takes no sessions",
        SUBMITTER,
        "sagemaker:CreateTrainingJob",
        "{granted:sagemaker:CreateTrainingJob}",
        **OWN_JOB,
        **{"sagemaker:EnableRemoteDebug": "false", "sagemaker:KeepAlivePeriod": "0"},
    ),
    call("read it", SUBMITTER, "sagemaker:DescribeTrainingJob", "{granted:sagemaker:CreateTrainingJob}"),
    call(
        "hand the role to SageMaker",
        SUBMITTER,
        "iam:PassRole",
        "{granted:iam:PassRole}",
        **{"iam:PassedToService": "sagemaker.amazonaws.com"},
    ),
    call(
        "upload a source",
        SUBMITTER,
        "s3:PutObject",
        "arn:{partition}:s3:::cdk-hnb659fds-assets-{account}-{region}/deeplearning-jobs/{cluster}/source.tar.gz",
    ),
    call("write a model", EXECUTION, "s3:PutObject", "{bucket:ModelBucket}/models/any/output/model.tar.gz"),
    call(
        "delete an interface of the stack's own VPC",
        EXECUTION,
        "ec2:DeleteNetworkInterface",
        INTERFACE,
        **{"ec2:Vpc": "{condition:ec2:Vpc}"},
    ),
    call(
        "encrypt a model",
        EXECUTION,
        "kms:GenerateDataKey",
        "{key:EncryptionKey}",
        **{"kms:ViaService": "s3.{region}.amazonaws.com"},
    ),
)
"""Calls that differ from forbidden ones by a name alone."""
BEYOND_IAM = (
    call(
        "run another image, which the request names, in a job of the stack",
        SUBMITTER,
        "sagemaker:CreateTrainingJob",
        "{granted:sagemaker:CreateTrainingJob}",
        **OWN_JOB,
    ),
    call("list the names of the account's training jobs", SUBMITTER, "sagemaker:ListTrainingJobs", "*"),
    call("list the log streams of the account's training jobs", SUBMITTER, "logs:DescribeLogStreams", JOBS),
    call("list them in a container", EXECUTION, "logs:DescribeLogStreams", JOBS),
    call(
        "write a metric about another stack's job",
        EXECUTION,
        "cloudwatch:PutMetricData",
        "*",
        **{"cloudwatch:namespace": "/aws/sagemaker/TrainingJobs"},
    ),
    call(
        "delete the interface of another program in the stack's own VPC",
        EXECUTION,
        "ec2:DeleteNetworkInterface",
        INTERFACE,
        **{"ec2:Vpc": "{condition:ec2:Vpc}"},
    ),
    call(
        "let another account use an interface of the stack's own subnet",
        EXECUTION,
        "ec2:CreateNetworkInterfacePermission",
        INTERFACE,
        **{"ec2:Subnet": "{condition:ec2:Subnet}", "ec2:AuthorizedUser": "arn:{partition}:iam::444455556666:root"},
    ),
    call(
        "pull an image of another asset of the account", EXECUTION, "ecr:BatchGetImage", "{granted:ecr:BatchGetImage}"
    ),
    call(
        "start a job that waits longer for spot capacity, or has another number of members",
        SUBMITTER,
        "sagemaker:CreateTrainingJob",
        "{granted:sagemaker:CreateTrainingJob}",
        **OWN_JOB,
    ),
)
"""
Rights of a submitter or a stolen container that nobody needs, and that IAM cannot bind.

CreateTrainingJob has no condition key for the image, the number of instances, the time with waits and the output's
place. EC2 has keys for whom an interface is given to, and AWS names their values for CodeBuild and not for SageMaker.
The CDK's assets have one repository. ListTrainingJobs has no resource, DescribeLogStreams the group as its
only resource, PutMetricData a namespace as its only key, and an interface of SageMaker's no tag by which it is known
(Service Authorization Reference of SageMaker AI, CloudWatch Logs, CloudWatch and EC2).
"""


@pytest.fixture(scope="module")
def template(synthesize):
    """Return a stack of training jobs with a submitter."""
    (template,) = synthesize(PRESETS["sagemaker"], add_submitter).values()
    return template


@pytest.fixture
def rights(template):
    """Return its rights."""
    return read_template_rights(template)


@pytest.mark.parametrize("permitted", [*PERMITTED, *BEYOND_IAM], ids=lambda each: each.name)
def test_what_training_jobs_need_and_what_iam_cannot_limit_is_allowed(rights, permitted):
    (verdict,) = judge_call(rights, permitted)
    assert verdict.decision.is_allowed


@pytest.mark.parametrize(
    ("role", "change", "found"),
    [
        (
            SUBMITTER,
            drop("sagemaker:CreateTrainingJob", "Null"),
            {f"{CREATE} without a VPC", f"{CREATE} that names no instance type"},
        ),
        (
            SUBMITTER,
            loosen("sagemaker:CreateTrainingJob", "ForAllValues:StringEquals", "ForAllValues:StringLike"),
            {
                f"{CREATE} in another VPC",
                f"{CREATE} in another security group",
                f"{CREATE} on another instance type",
                f"{CREATE} with another file system",
                f"{CREATE} with a file system of another type",
                f"{CREATE} with another folder of the file system",
                f"{CREATE} with another access to the file system",
                f"{CREATE} with a tag of somebody else's",
            },
        ),
        (
            SUBMITTER,
            drop("sagemaker:CreateTrainingJob", "NumericLessThanEquals"),
            {f"{CREATE} that runs longer", f"{CREATE} without a longest run"},
        ),
        (
            SUBMITTER,
            drop("sagemaker:CreateTrainingJob", "NumericLessThanEqualsIfExists"),
            {f"{CREATE} that keeps its instances"},
        ),
        (
            SUBMITTER,
            drop("sagemaker:CreateTrainingJob", "BoolIfExists"),
            {f"{CREATE} whose containers take sessions"},
        ),
        (
            SUBMITTER,
            drop("sagemaker:CreateTrainingJob", "StringEquals"),
            {f"{CREATE} with the tag of another stack", f"{CREATE} without the tag of the stack"},
        ),
        (
            SUBMITTER,
            drop("sagemaker:AddTags", "StringEquals"),
            {"give a job of the stack the tag of another stack"},
        ),
        (
            SUBMITTER,
            drop("sagemaker:AddTags", "ForAllValues:StringEquals"),
            {"give a job of the stack a tag of somebody else's"},
        ),
        (
            SUBMITTER,
            loosen("sagemaker:CreateTrainingJob", "ArnEquals", "ArnLikeIfExists"),
            {f"{CREATE} whose model another key encrypts", f"{CREATE} whose model no key of the stack encrypts"},
        ),
        (
            SUBMITTER,
            allow("sagemaker:DescribeTrainingJob", ANY_JOB),
            {"read the hyperparameters of another stack's job"},
        ),
        (SUBMITTER, allow("sagemaker:StopTrainingJob", ANY_JOB), {"stop another stack's job"}),
        (SUBMITTER, drop("iam:PassRole", "StringEquals"), {"hand the role of jobs to another service"}),
        (SUBMITTER, allow("iam:PassRole", "arn:aws:iam::123456789012:role/adm*"), {"hand another role to SageMaker"}),
        (
            EXECUTION,
            drop("ec2:DeleteNetworkInterface", "ArnEquals"),
            {"delete an interface of another VPC"},
        ),
        (
            EXECUTION,
            drop("ec2:CreateNetworkInterfacePermission", "ArnEquals"),
            {"let another account use an interface of another subnet"},
        ),
        (
            EXECUTION,
            drop("kms:Decrypt", "StringEquals"),
            {"use the key without S3", "make a data key of the key without S3"},
        ),
        (
            EXECUTION,
            allow("s3:GetObject", "*"),
            {"read the source of another cluster's job", "read a model of another bucket"},
        ),
        (
            EXECUTION,
            allow("logs:*", "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/TrainingJobs:*"),
            {
                "write another cluster's log stream",
                "make a log stream of another cluster's name",
                "read another cluster's log stream",
                "search the logs of all training jobs",
                "delete the logs of training jobs",
            },
        ),
    ],
)
def test_a_limit_that_is_missing_is_found_by_the_forbidden_calls(rights, role, change, found):
    assert list_allowed(edit(rights, role, change)) == found


def test_a_condition_that_is_missing_altogether_is_an_error(rights):
    planted = edit(rights, "", drop("sagemaker:CreateTrainingJob", "ArnEquals"))  # That of the notebook, too.
    with pytest.raises(RehearsalError, match="a policy must ask for sagemaker:OutputKmsKey"):
        list_allowed(planted)


def test_each_forbidden_call_is_denied_for_want_of_the_right_alone(rights):
    check_denials(rights, SUBMITTER)
