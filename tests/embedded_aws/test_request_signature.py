"""Signatures are verified as AWS does: botocore's own are the reference."""

from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from cdk_rehearsal.embedded_aws.base.request import Authorization, SignedRequest, is_signature_valid


def sign(service, url, body=b"", method="GET"):
    """Sign a request with botocore, as it would arrive."""
    signer = S3SigV4Auth if service == "s3" else SigV4Auth
    request = AWSRequest(method, url, data=body, headers={"Host": urlsplit(url).netloc})
    signer(Credentials("ASIAKEY", "secret", "token"), service, "us-east-1").add_auth(request)
    headers = {name.lower(): value for name, value in request.headers.items()}
    parts = urlsplit(url)
    return SignedRequest(method, parts.path, parts.query, headers, body), Authorization.parse(headers["authorization"])


REQUESTS = [
    ("s3", "http://127.0.0.1:4566/bucket/a%20b/c%2Bd.zip", b"", "GET"),
    ("s3", "http://bucket.s3.us-east-1.amazonaws.com/key?list-type=2&prefix=a%2Fb", b"", "GET"),
    ("sqs", "http://127.0.0.1:4566/", b'{"QueueUrl": "x"}', "POST"),
    ("elasticfilesystem", "http://127.0.0.1:4566/2015-02-01/a%20b?Marker=", b"", "GET"),
]


@pytest.mark.parametrize(("service", "url", "body", "method"), REQUESTS)
def test_accepts_what_botocore_signs(service, url, body, method):
    request, authorization = sign(service, url, body, method)
    assert authorization.access_key_id == "ASIAKEY"
    assert is_signature_valid(request, authorization, "secret")


@pytest.mark.parametrize(("service", "url", "body", "method"), REQUESTS)
def test_refuses_another_secret_path_body_or_header(service, url, body, method):
    request, authorization = sign(service, url, body, method)
    tampered = [
        SignedRequest(request.method, request.path + "x", request.query, request.headers, request.body),
        SignedRequest(request.method, request.path, request.query, request.headers, request.body + b"x"),
        SignedRequest("DELETE", request.path, request.query, request.headers, request.body),
        SignedRequest(
            request.method, request.path, request.query, {**request.headers, "host": "elsewhere"}, request.body
        ),
    ]
    assert not is_signature_valid(request, authorization, "another")
    assert not any(is_signature_valid(entry, authorization, "secret") for entry in tampered)


@pytest.mark.parametrize("header", ["", "Basic x", "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/s3"])
def test_does_not_take_another_scheme_for_a_signature(header):
    assert Authorization.parse(header) is None


def test_refuses_a_credential_of_another_date():
    request, authorization = sign("sqs", "http://127.0.0.1:4566/")
    assert not is_signature_valid(request, replace(authorization, date="20200101"), "secret")


def test_takes_a_query_that_was_sent_less_encoded_than_it_was_signed():
    request, authorization = sign("s3", "http://bucket.s3.us-east-1.amazonaws.com/?prefix=a%2Fb&list-type=2")
    sent = replace(request, query="list-type=2&prefix=a/b")
    assert request.query != sent.query
    assert is_signature_valid(sent, authorization, "secret")
