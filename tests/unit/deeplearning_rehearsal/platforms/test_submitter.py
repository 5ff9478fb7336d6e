"""A rehearsal submits jobs as a role of the stack that may create them, and prepares a cluster as its administrator."""

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest

from cdk_rehearsal.kubernetes.api_client import ApiClient
from deeplearning_rehearsal.job_hosts import NO_ADMINISTRATOR, JobHosts
from deeplearning_rehearsal.kubernetes_jobs import KubernetesJobs
from deeplearning_rehearsal.platforms.eks import find_job_submitter, has_administrator
from deeplearning_rehearsal.platforms.sagemaker import find_submitter


def make_template(action, kind, **holders):
    """Return a template with a policy, and with a role."""
    document = {"Statement": [{"Effect": "Allow", "Action": ["sqs:SendMessage", action], "Resource": "*"}]}
    policy = {"Type": kind, "Properties": {"PolicyDocument": document, **holders}}
    return {"Resources": {"Researchers": {"Type": "AWS::IAM::Role"}, "Rights": policy}}


@pytest.mark.parametrize("kind", ["AWS::IAM::ManagedPolicy", "AWS::IAM::Policy"])
def test_a_role_that_may_create_training_jobs_is_the_submitter(kind):
    template = make_template("sagemaker:CreateTrainingJob", kind, Roles=[{"Ref": "Researchers"}])
    assert find_submitter(template) == "Researchers"


def test_other_roles_users_and_stacks_without_either_have_no_submitter():
    kind = "AWS::IAM::ManagedPolicy"
    other = make_template("sagemaker:DescribeTrainingJob", kind, Roles=[{"Ref": "Researchers"}])
    user = make_template("sagemaker:CreateTrainingJob", kind, Users=[{"Ref": "Anna"}])
    foreign = make_template("sagemaker:CreateTrainingJob", kind, Roles=["imported", {"Ref": "Parameter"}])
    assert [find_submitter(each) for each in (other, user, foreign, {"Resources": {}})] == [""] * 4


def make_entry(policy, principal):
    """Return a template with an access entry of a cluster."""
    arn = {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, f":eks::aws:cluster-access-policy/{policy}"]]}
    properties = {"PrincipalArn": principal, "AccessPolicies": [{"PolicyArn": arn}]}
    return {"Resources": {"Entry": {"Type": "AWS::EKS::AccessEntry", "Properties": properties}}}


RESEARCHERS = {"Fn::GetAtt": ["Researchers", "Arn"]}
SUBMITS = make_entry("AmazonEKSEditPolicy", RESEARCHERS)
PREPARES = make_entry("AmazonEKSClusterAdminPolicy", "arn:aws:iam::111122223333:role/Admin")


def test_a_role_that_has_access_to_a_namespace_is_the_submitter_on_eks():
    foreign = make_entry("AmazonEKSEditPolicy", "arn:aws:iam::111122223333:role/Others")
    found = [find_job_submitter(each) for each in (SUBMITS, foreign, PREPARES, {"Resources": {}})]
    assert found == ["Researchers", "", "", ""]


def test_a_principal_that_has_access_to_the_whole_cluster_is_its_administrator():
    assert [has_administrator(each) for each in (PREPARES, SUBMITS, {"Resources": {}})] == [True, False, False]


def find_senders(**names):
    """Return the access keys, or the plain tokens, with which a rehearsal prepares a cluster and submits to it."""

    def sign_in(key):
        return lambda service: boto3.client(service, "us-east-1", aws_access_key_id=key, aws_secret_access_key="any")

    class Jobs(KubernetesJobs):
        settings: Any = SimpleNamespace(cluster_name="training", region="us-east-1")

    host = SimpleNamespace(cluster=SimpleNamespace(api=ApiClient("https://127.0.0.1", Path(), "own")))
    jobs = Jobs(sign_in("submitter"), sign_in("operator"), None, host, None, **names)  # type: ignore[arg-type]
    return read_key(jobs.administrator.token), read_key(jobs.api.token)


def read_key(token):
    """Return the access key of a token; another one as it is."""
    if not token.startswith("k8s-aws-v1."):
        return token
    text = token.removeprefix("k8s-aws-v1.")
    url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    return parse_qs(urlsplit(url).query)["X-Amz-Credential"][0].partition("/")[0]


@pytest.mark.parametrize(
    ("has_administrator", "has_submitter", "senders"),
    [
        (True, True, ("operator", "submitter")),
        (True, False, ("operator", "operator")),
        (False, True, ("own", "submitter")),
        (False, False, ("own", "own")),
    ],
)
def test_a_cluster_is_prepared_by_its_administrator_and_used_by_its_submitter(
    *, has_administrator, has_submitter, senders
):
    assert find_senders(has_administrator=has_administrator, has_submitter=has_submitter) == senders


def test_the_report_names_the_administrator_that_a_stack_lacks():
    host = SimpleNamespace(stand_in=None)
    pods = SimpleNamespace(images=[])
    found = {each: NO_ADMINISTRATOR in JobHosts(None, host, pods, each).stand_ins for each in (True, False)}
    assert found == {True: False, False: True}
