"""Custom resources of any type: what their functions receive, and what the template reads of the answer."""

import json
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.base.signals import PresignedUrls
from cdk_rehearsal.embedded_aws.resources import CREATORS
from cdk_rehearsal.embedded_aws.resources.creation import Creation, Properties
from cdk_rehearsal.referees.resource_support import find_row

TOKEN = "arn:aws:lambda:us-east-1:123456789012:function:thing"


class AnsweringFunctions:
    """Answers each event with what it was given."""

    def __init__(self, **answer):
        self.presigned = PresignedUrls(Observations(None))
        self.answer = answer
        self.events = []

    def invoke_for_operator(self, function_arn, event, *, source):
        """Answer at once."""
        self.events.append(event)
        parts = urlsplit(event["ResponseURL"])
        body = json.dumps({"Status": "SUCCESS", "PhysicalResourceId": "made", **self.answer}).encode()
        assert self.presigned.answer("PUT", parts.path, parts.query, {}, body)[0] == 200


def order(functions, kind, **properties):
    """Return the order to create a resource with these properties."""
    place = SimpleNamespace(region="us-east-1", endpoint="http://aws")
    services = SimpleNamespace(place=place, presigned=functions.presigned, functions=functions)
    return Creation("Thing", Properties(properties), "stack", "arn:stack", services, kind)


def create(creation):
    return CREATORS[find_row(creation.resource_type)](creation)


@pytest.mark.parametrize("kind", ["Custom::Thing", "AWS::CloudFormation::CustomResource"])
def test_the_function_sees_texts_and_its_data_are_the_attributes(kind):
    functions = AnsweringFunctions(Data={"Address": "one"})
    creation = order(functions, kind, ServiceToken=TOKEN, Size=3, Deep={"On": True, "List": [1, "a"]})
    created = create(creation)
    assert created.settle is not None
    verdict = created.settle()
    assert verdict is not None
    assert (verdict.reason, verdict.physical_id) == ("", "made")
    assert created.attributes == {"Address": "one"}
    assert creation.properties.unread == frozenset()
    (event,) = functions.events
    assert (event["RequestType"], event["ResourceType"]) == ("Create", kind)
    assert event["ResourceProperties"] == {
        "ServiceToken": TOKEN,
        "Size": "3",
        "Deep": {"On": "true", "List": ["1", "a"]},
    }


def test_an_update_replaces_the_attributes_and_a_deletion_names_the_latest_id():
    functions = AnsweringFunctions(Data={"Address": "one", "Old": "gone"})
    created = create(order(functions, "Custom::Thing", ServiceToken=TOKEN))
    assert created.settle
    assert created.update
    assert created.delete
    created.settle()
    functions.answer = {"PhysicalResourceId": "newer", "Data": {"Address": "two"}}
    assert created.update({"ServiceToken": TOKEN, "Size": 4}, {"ServiceToken": TOKEN}).reason == ""
    assert created.attributes == {"Address": "two"}
    created.delete()
    _, update, deletion = functions.events
    assert (update["PhysicalResourceId"], update["OldResourceProperties"]) == ("made", {"ServiceToken": TOKEN})
    assert (deletion["RequestType"], deletion["PhysicalResourceId"]) == ("Delete", "newer")


@pytest.mark.parametrize("token", ["", "arn:aws:sns:us-east-1:123456789012:topic"])
def test_a_service_token_that_is_no_function_is_refused(token):
    with pytest.raises(ValueError, match="ServiceToken must be the ARN of a function"):
        create(order(AnsweringFunctions(), "Custom::Thing", ServiceToken=token))
