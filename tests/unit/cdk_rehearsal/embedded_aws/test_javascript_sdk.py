"""Packages of the AWS SDK for JavaScript: those that functions of Node.js name, and how they are fetched."""

import zipfile

import pytest

from cdk_rehearsal.assembly import AssemblyStack, FileAsset
from cdk_rehearsal.embedded_aws.functions import javascript_sdk
from cdk_rehearsal.embedded_aws.functions.javascript_sdk import find_packages, prepare_sdk
from cdk_rehearsal.errors import UnavailableError


def make_stack(*resources, assets=()):
    """Return a stack of resources."""
    template = {"Resources": {f"R{number}": resource for number, resource in enumerate(resources)}}
    return AssemblyStack("stack", "1", "us-east-1", template, assets)


def make_function(code, runtime="nodejs24.x"):
    """Return a function; its code is a text, or a key."""
    return {"Type": "AWS::Lambda::Function", "Properties": {"Runtime": runtime, "Code": code}}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('const s = require("@aws-sdk/client-s3");', {"@aws-sdk/client-s3"}),
        ("import {S3} from '@aws-sdk/client-s3'; import'@aws-sdk/lib-storage';", None),
        ('import{S3}from"@aws-sdk/client-s3";await import("@aws-sdk/lib-storage")', None),
        ('// "@aws-sdk/client-s3" is not needed', set()),
        ("require(`@aws-sdk/client-${name}`)", set()),
    ],
)
def test_inline_code_names_packages(text, names):
    expected = {"@aws-sdk/client-s3", "@aws-sdk/lib-storage"} if names is None else names
    assert find_packages(make_stack(make_function({"ZipFile": text}))) == expected


def test_scripts_of_assets_name_packages_unless_they_bring_them(tmp_path):
    folder, archive = tmp_path / "folder", tmp_path / "code.zip"
    for name, text in {
        "lib/a.mjs": 'import "@aws-sdk/client-sqs"; import "@aws-sdk/client-sns";',
        "node_modules/@aws-sdk/client-sns/index.js": 'require("@aws-sdk/client-sts")',
        "readme.md": 'require("@aws-sdk/client-s3")',
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("index.js", 'require("@aws-sdk/client-ec2")')
    assets = (FileAsset(folder, "zip", "b", "a.zip"), FileAsset(archive, "file", "b", "c.zip"))
    functions = [make_function({"S3Bucket": "b", "S3Key": key}) for key in ("a.zip", "c.zip")]
    assert find_packages(make_stack(*functions, assets=assets)) == {"@aws-sdk/client-sqs", "@aws-sdk/client-ec2"}
    python = [make_function({"S3Bucket": "b", "S3Key": "a.zip"}, "python3.13")]
    assert find_packages(make_stack(*python, assets=assets)) == set()


@pytest.mark.parametrize(
    ("service", "package"),
    [
        ("SQS", "@aws-sdk/client-sqs"),
        ("CloudWatchLogs", "@aws-sdk/client-cloudwatch-logs"),
        ("@aws-sdk/client-ssm", "@aws-sdk/client-ssm"),
    ],
)
def test_a_call_of_a_custom_resource_names_its_client_as_the_handler_does(service, package):
    """AWS CDK, `AwsSdkCall.service`: the name of version 2 or 3, which the handler's table maps."""
    call = {"Fn::Join": ["", [f'{{"action":"x","service":"{service}","p":"', {"Ref": "R"}, '"}']]}
    custom = {"Type": "Custom::AWS", "Properties": {"Create": call}}
    handler = make_function({"ZipFile": 'var t={sqsx:"no",cloudwatchlogs:"cloudwatch-logs",sqs:{iam:"sqs"}}'})
    assert find_packages(make_stack(custom, handler)) == {package}
    assert find_packages(make_stack(custom)) == set()


def test_nothing_is_fetched_where_nothing_is_named(tmp_path):
    assert prepare_sdk([make_stack(make_function({"ZipFile": "1"}))], tmp_path, print) is None
    assert list(tmp_path.iterdir()) == []


def test_packages_are_fetched_once_and_a_failure_says_what_to_do(tmp_path, monkeypatch):
    node = tmp_path / "bin" / "node"
    node.parent.mkdir()
    monkeypatch.setattr(javascript_sdk, "find_node", lambda: node)
    stack = make_stack(make_function({"ZipFile": 'require("@aws-sdk/client-s3")'}))

    def play(script):
        node.write_text(f"#!/bin/sh\n{script}\n")
        node.chmod(0o755)

    play("echo npm error network unreachable >&2; exit 1")
    with pytest.raises(UnavailableError, match=r"client-s3, npm says: .*unreachable; rehearse once where npm"):
        prepare_sdk([stack], tmp_path / "cache", lambda _: None)
    play('mkdir node_modules; echo "$@" > node_modules/arguments')
    lines = []
    folder = prepare_sdk([stack], tmp_path / "cache", lines.append)
    assert (folder / "arguments").read_text().split()[-1] == "@aws-sdk/client-s3@3"
    play("exit 1")
    assert prepare_sdk([stack], tmp_path / "cache", lines.append) == folder
    assert lines == ["fetching 1 packages of the AWS SDK for JavaScript, once: @aws-sdk/client-s3"]
