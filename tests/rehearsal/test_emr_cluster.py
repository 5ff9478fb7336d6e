"""An EMR cluster of two nodes that boot: bootstrap action, steps and logs."""

import json
from pathlib import Path

import pytest

from cdk_rehearsal import Plan, rehearse
from tests.embedded_aws.emr_template import make_template

SETUP = """#!/bin/bash
set -eu
echo "set up on $(cat /var/lib/cloud/data/instance-id)"
echo "$(whoami) [$1] [$2] $(command -v yarn || echo no-yarn)" | sudo tee /setup-ran > /dev/null
"""


def make_policy(Action="s3:*", Condition=None):  # noqa: N803 - the names of a policy
    """Return the policy of the log bucket, which refuses plain HTTP as a bucket with `enforce_ssl` does."""
    statement = {
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": Action,
        "Resource": {"Fn::Sub": "${Logs.Arn}/*"},
        "Condition": Condition or {"Bool": {"aws:SecureTransport": "false"}},
    }
    document = {"Version": "2012-10-17", "Statement": [statement]}
    return {"Type": "AWS::S3::BucketPolicy", "Properties": {"Bucket": {"Ref": "Logs"}, "PolicyDocument": document}}


@pytest.fixture
def assembly(tmp_path):
    """Return a function that writes an assembly with one cluster and its bootstrap action."""

    def write(setup, **denied):
        folder = tmp_path / "cdk.out"
        folder.mkdir()
        uri = {"Fn::Sub": "s3://cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}/setup.sh"}
        action = {"Name": "setup", "ScriptBootstrapAction": {"Path": uri, "Args": ["one", "two words"]}}
        core = {"InstanceCount": 1, "InstanceType": "m5.xlarge"}
        logs = {"Fn::Sub": "s3://${Logs}/logs/"}
        template = make_template(BootstrapActions=[action], LogUri=logs, Instances={"CoreInstanceGroup": core})
        template["Resources"] |= {"Logs": {"Type": "AWS::S3::Bucket"}, "LogsPolicy": make_policy(**denied)}
        template["Outputs"]["Bucket"] = {"Value": {"Ref": "Logs"}}
        (folder / "sample.template.json").write_text(json.dumps(template))
        (folder / "setup.sh").write_text(setup)
        destination = {"bucketName": "cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}", "objectKey": "setup.sh"}
        asset = {"source": {"path": "setup.sh", "packaging": "file"}, "destinations": {"here": destination}}
        assets = {"version": "55.0.0", "files": {"setup": asset}}
        (folder / "sample.assets.json").write_text(json.dumps(assets))
        artifacts = {
            "sample.assets": {"type": "cdk:asset-manifest", "properties": {"file": "sample.assets.json"}},
            "sample": {
                "type": "aws:cloudformation:stack",
                "environment": "aws://unknown-account/unknown-region",
                "properties": {"templateFile": "sample.template.json"},
                "dependencies": ["sample.assets"],
            },
        }
        (folder / "manifest.json").write_text(json.dumps({"version": "55.0.0", "artifacts": artifacts}))
        return folder

    return write


def test_a_cluster_bootstraps_and_runs_steps(assembly, tmp_path):
    checks = Path(__file__).with_name("emr_checks.py")
    report = rehearse(Plan(assembly(SETUP), check=checks, out=tmp_path / "out"))
    assert report.problems == ()
    assert (report.verdict, report.stack.status) == ("pass", "CREATE_COMPLETE")
    (stand_ins,) = (section for section in report.sections if section.title == "stand-in")
    assert any("emr-instance-controller, yarn for EMR's AMI" in row for row in stand_ins.rows)


def test_a_log_bucket_that_refuses_the_nodes_fails_the_rehearsal(assembly, tmp_path):
    denied = {"Action": "s3:PutObject", "Condition": {"Bool": {"aws:SecureTransport": "true"}}}
    report = rehearse(Plan(assembly(SETUP, **denied), out=tmp_path / "out"))
    assert report.verdict == "fail"
    assert any(problem.startswith("s3:PutObject was denied: ") for problem in report.problems), report.problems
