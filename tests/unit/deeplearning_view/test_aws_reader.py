"""AWS is asked with reads only, and what it refuses is said and left out."""

import json

import boto3
import pytest
from botocore.exceptions import ClientError

from deeplearning_contract.cluster_state import ClusterState, put_requests
from deeplearning_view import aws_reader as cloud
from deeplearning_view.aws_reader import read_responses
from deeplearning_view.aws_responses import ViewError
from deeplearning_view.selection import DESCRIPTION, choose_stack
from tests.unit.deeplearning_view.cluster_responses import make_item

TEMPLATE = """
{"Description": "A deep-learning training cluster: one master and its workers", "Resources": {
  "ClusterCoordinationStateTable1": {"Type": "AWS::DynamoDB::Table", "Properties": {
    "BillingMode": "PAY_PER_REQUEST", "KeySchema": [{"AttributeName": "cluster", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "cluster", "AttributeType": "S"}]}},
  "ClusterNodeLog1": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "node-log"}}}}
"""


@pytest.fixture
def deployed(aws):
    boto3.client("cloudformation").create_stack(StackName="training", TemplateBody=TEMPLATE)
    return boto3.client


class Denied:
    """A client whose calls of one operation AWS denies."""

    def __init__(self, client, operation):
        self._client, self._operation = client, operation

    def get_paginator(self, name):
        if name == self._operation:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, name)
        return self._client.get_paginator(name)

    def __getattr__(self, name):
        return getattr(self._client, name)


def test_the_only_cluster_is_found_and_its_parts_are_read(deployed):
    boto3.client("cloudformation").create_stack(
        StackName="other", TemplateBody='{"Resources": {"T": {"Type": "AWS::SNS::Topic"}}}'
    )
    boto3.client("logs").create_log_stream(logGroupName="node-log", logStreamName="worker/i-1")
    responses = read_responses(deployed, "us-east-1", None)
    assert responses.stack["StackName"] == "training"
    assert {entry["LogicalResourceId"] for entry in responses.resources} == {
        "ClusterCoordinationStateTable1",
        "ClusterNodeLog1",
    }
    assert responses.events
    assert (responses.groups, responses.item, responses.unread) == ([], None, [])


def test_a_cluster_on_emr_is_refused_with_what_reads_it(deployed):
    instances = {"MasterInstanceGroup": {"InstanceCount": 1, "InstanceType": "m5.xlarge"}}
    properties = {"Name": "c", "JobFlowRole": "r", "ServiceRole": "s", "Instances": instances}
    cluster = {"Type": "AWS::EMR::Cluster", "Properties": properties}
    body = json.dumps({"Resources": {"Cluster1": cluster}})
    boto3.client("cloudformation").create_stack(StackName="hadoop", TemplateBody=body)
    (resource,) = boto3.client("cloudformation").list_stack_resources(StackName="hadoop")["StackResourceSummaries"]
    with pytest.raises(ViewError, match=f"hadoop has a cluster on EMR, {resource['PhysicalResourceId']}, which"):
        read_responses(deployed, "us-east-1", "hadoop")


def test_a_deleted_stack_is_found_by_its_name(deployed):
    boto3.client("cloudformation").delete_stack(StackName="training")
    assert read_responses(deployed, "us-east-1", "training").stack["StackStatus"] == "DELETE_COMPLETE"


def test_a_name_that_no_stack_has_is_an_error_with_the_remedy(deployed):
    with pytest.raises(ViewError, match="STACK must name a stack of this account and region, got 'nothing'; see: aws"):
        read_responses(deployed, "us-east-1", "nothing")


@pytest.mark.parametrize(
    ("service", "operation", "line"),
    [
        ("cloudformation", "describe_stack_events", "the stack's events: describe_stack_events returned AccessDenied"),
        ("logs", "filter_log_events", "the nodes' log: filter_log_events returned AccessDenied"),
    ],
)
def test_without_a_right_the_rest_is_read(deployed, service, operation, line):
    def clients(name):
        return Denied(deployed(name), operation) if name == service else deployed(name)

    responses = read_responses(clients, "us-east-1", "training")
    assert responses.unread == [line]
    assert responses.resources


def test_without_the_right_to_see_the_stack_nothing_can_be_looked_at(deployed):
    with pytest.raises(ViewError, match=r"could not read the stack: .*AccessDenied.*; check credentials"):
        read_responses(lambda name: Denied(deployed(name), "describe_stacks"), "us-east-1", None)


def test_the_state_item_is_read_with_its_parts(deployed, monkeypatch):
    state = ClusterState.from_item(make_item())
    monkeypatch.setattr("deeplearning_contract.cluster_state.PART_CHARACTERS", 100)
    table = boto3.client("dynamodb").list_tables()["TableNames"][0]
    for request in put_requests(table, state):
        plain = {name: request[name] for name in ("TableName", "Item")}
        boto3.client("dynamodb").put_item(**plain)
    responses = read_responses(deployed, "us-east-1", "training")
    responses.groups = [{"AutoScalingGroupName": "g", "Tags": [{"Key": "deeplearning:cluster", "Value": "training-1"}]}]
    cloud._Reader(deployed, responses)._read_state()
    assert len(responses.parts) > 1
    assert ClusterState.from_item(responses.item, responses.parts) == state


def test_several_clusters_are_named_and_none_is_chosen():
    stacks = [{"StackName": name, "Description": f"{DESCRIPTION}: x"} for name in ("b", "a")]
    with pytest.raises(ViewError, match="STACK must be given where there are several clusters; name one of: a, b"):
        choose_stack(stacks)


@pytest.mark.parametrize(
    "stack",
    [
        {"Outputs": [{"OutputKey": "ClusterName", "OutputValue": "x"}]},
        {"Tags": [{"Key": "deeplearning:cluster", "Value": "x"}]},
        {"Description": DESCRIPTION},
    ],
)
def test_a_cluster_is_recognized_by_output_tag_or_description(stack):
    assert choose_stack([{"StackName": "other"}, {"StackName": "mine", **stack}])["StackName"] == "mine"


def test_where_no_stack_is_a_cluster_the_error_names_the_remedy():
    with pytest.raises(ViewError, match="no stack is marked as a cluster; name one, or choose another --region"):
        choose_stack([{"StackName": "other"}])
