"""Buckets of a stack: their settings reach S3, and their policies decide calls."""

import json

import pytest


@pytest.fixture
def cloud(deploy_template):
    """Return the embedded AWS with a stack of one private bucket."""
    bucket = {
        "Type": "AWS::S3::Bucket",
        "Properties": {
            "BucketEncryption": {
                "ServerSideEncryptionConfiguration": [
                    {"BucketKeyEnabled": True, "ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
                ]
            },
            "LifecycleConfiguration": {"Rules": [{"Status": "Enabled", "ExpirationInDays": 90}]},
            "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
            "PublicAccessBlockConfiguration": {"BlockPublicAcls": True, "BlockPublicPolicy": "true"},
            "Tags": [{"Key": "team", "Value": "vision"}],
            "VersioningConfiguration": {"Status": "Enabled"},
        },
    }
    everything = {"Fn::Join": ["", [{"Fn::GetAtt": ["Logs", "Arn"]}, "/*"]]}
    statement = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": everything}
    policy = {
        "Type": "AWS::S3::BucketPolicy",
        "Properties": {
            "Bucket": {"Ref": "Logs"},
            "PolicyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        },
    }
    cloud = deploy_template({"Resources": {"Logs": bucket, "LogsPolicy": policy}})
    assert isinstance(cloud.answer, dict), cloud.answer
    cloud.observation("sample CREATE_COMPLETE")
    return cloud


def test_the_settings_of_a_bucket_reach_s3(cloud):
    s3, name = cloud.client("s3"), cloud.physical_id("Logs")
    assert name.startswith("sample-logs-")
    assert name == name.lower()
    assert s3.get_bucket_versioning(Bucket=name)["Status"] == "Enabled"
    block = s3.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]
    assert (block["BlockPublicAcls"], block["BlockPublicPolicy"]) == (True, True)
    (rule,) = s3.get_bucket_encryption(Bucket=name)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    assert {"Key": "team", "Value": "vision"} in s3.get_bucket_tagging(Bucket=name)["TagSet"]
    controls = s3.get_bucket_ownership_controls(Bucket=name)["OwnershipControls"]
    assert controls["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]


def test_the_policy_of_a_bucket_names_its_objects(cloud):
    name = cloud.physical_id("Logs")
    policy = json.loads(cloud.client("s3").get_bucket_policy(Bucket=name)["Policy"])
    assert policy["Statement"][0]["Resource"] == f"arn:aws:s3:::{name}/*"


def test_a_policy_of_a_bucket_that_is_not_there_fails_the_stack(deploy_template):
    policy = {"Version": "2012-10-17", "Statement": []}
    resource = {"Type": "AWS::S3::BucketPolicy", "Properties": {"Bucket": "nobodys", "PolicyDocument": policy}}
    cloud = deploy_template({"Resources": {"Policy": resource}})
    assert "bucket" in cloud.observation("Policy CREATE_FAILED")["text"].lower()
