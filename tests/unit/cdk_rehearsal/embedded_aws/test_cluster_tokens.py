"""Tokens of a cluster's API end after 15 minutes, whatever their URL says, and hold for botocore's own signature."""

import base64
from datetime import datetime, timezone

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials

from cdk_rehearsal.embedded_aws.base.principals import Principal
from cdk_rehearsal.embedded_aws.eks.tokens import CLUSTER_HEADER, TokenReader
from cdk_rehearsal.place import Credentials, Place

SENDER = Principal("other", "", "me", "arn:aws:iam::123456789012:role/Researchers")
LIFE = 15 * 60


class OnePrincipal:
    """Knows one access key."""

    def find(self, access_key_id):
        return (Credentials(access_key_id, "secret", "token"), SENDER) if access_key_id == "ASIAKEY" else None


def make_token():
    """Return a token that botocore signs now, and that second."""
    request = AWSRequest(
        "GET",
        "https://sts.us-east-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15",
        headers={CLUSTER_HEADER: "sample"},
    )
    SigV4QueryAuth(BotocoreCredentials("ASIAKEY", "secret", "token"), "sts", "us-east-1", expires=60).add_auth(request)
    stamp = datetime.strptime(request.context["timestamp"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    return "k8s-aws-v1." + base64.urlsafe_b64encode(request.url.encode()).decode().rstrip("="), stamp.timestamp()


@pytest.mark.parametrize(
    ("age", "is_taken"), [(0, True), (61, True), (LIFE - 1, True), (LIFE, False), (LIFE * 9, False)]
)
def test_a_token_lasts_for_fifteen_minutes(age, is_taken):
    """aws-iam-authenticator, pkg/token/token.go: the 60 seconds of the URL are for STS."""
    token, begin = make_token()
    place = Place("123456789012", "us-east-1", "http://127.0.0.1:9")
    reader = TokenReader(place, OnePrincipal(), clock=lambda: begin + age)
    assert (reader.find_sender(token, "sample") == SENDER) is is_taken
    assert reader.find_sender(token, "other") is None
