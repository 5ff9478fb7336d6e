"""Buckets of a stack: their settings reach S3, and their policies decide calls."""

import json
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

HERE = Path(__file__).parent


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


@pytest.fixture(scope="module")
def shared(start_cloud, assemble, tmp_path_factory):
    """Return the embedded AWS with a bucket, a master that may write objects, and a worker that may not."""
    template = json.loads((HERE / "sample_template.json").read_text())
    resources = template["Resources"]
    resources["Store"] = {"Type": "AWS::S3::Bucket", "Properties": {}}
    resources["MasterRole"]["Properties"]["Tags"] = [{"Key": "team", "Value": "vision"}]
    write = {"Effect": "Allow", "Action": ["s3:PutObject", "kms:*"], "Resource": "*"}
    resources["MasterRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"].append(write)
    cloud = start_cloud(minute_seconds=3600)
    assert isinstance(cloud.deploy(assemble(tmp_path_factory.mktemp("store") / "cdk.out", template)), dict)
    cloud.master, cloud.worker = cloud.machine("master"), cloud.machine("worker")
    cloud.observation("Store CREATE_COMPLETE")
    cloud.store = cloud.physical_id("Store")
    return cloud


def find_refusal(cloud, statement, machine, **upload):
    """Return why a node may not write an object, with a policy of the bucket; empty where it may."""
    operator = cloud.client("s3")
    operator.delete_bucket_policy(Bucket=cloud.store)
    if statement is not None:
        resource = f"arn:aws:s3:::{cloud.store}/*"
        statement = {"Principal": "*", "Action": "s3:PutObject", "Resource": resource} | statement
        policy = {"Version": "2012-10-17", "Statement": [statement]}
        operator.put_bucket_policy(Bucket=cloud.store, Policy=json.dumps(policy))
        assert json.loads(operator.get_bucket_policy(Bucket=cloud.store)["Policy"]) == policy
    try:
        cloud.client("s3", machine).put_object(Bucket=cloud.store, Key="a/b", Body=b"text", **upload)
    except ClientError as error:
        return error.response["Error"]["Message"]
    return ""


def deny(operator, key, value):
    return {"Effect": "Deny", "Condition": {operator: {key: value}}}


EXPLICIT = "with an explicit deny in a resource-based policy"


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        (None, ""),
        ({"Effect": "Deny"}, EXPLICIT),
        (deny("Bool", "aws:SecureTransport", "false"), ""),
        (deny("Bool", "aws:SecureTransport", "true"), EXPLICIT),
        (deny("StringEquals", "aws:PrincipalTag/team", "vision"), EXPLICIT),
        (deny("StringEquals", "aws:PrincipalTag/team", "speech"), ""),
        (deny("StringNotEquals", "s3:x-amz-server-side-encryption", "aws:kms"), EXPLICIT),
        (deny("StringEquals", "s3:x-amz-acl", "public-read"), ""),
        ({"Effect": "Deny", "Principal": {"AWS": "arn:aws:iam::123456789012:role/nobody"}}, ""),
        ({"Effect": "Deny", "Principal": {"AWS": "123456789012"}}, EXPLICIT),
        ({"Effect": "Deny", "Action": "s3:GetObject"}, ""),
        ({"Effect": "Deny", "Resource": "arn:aws:s3:::others/*"}, ""),
        (deny("StringNotEquals", "aws:SourceVpce", "vpce-1"), "got aws:sourcevpce"),
        (deny("NumericLessThan", "s3:TlsVersion", "1.2"), "got s3:tlsversion"),
        (deny("StringSoundsLike", "aws:PrincipalTag/team", "vision"), "one that IAM knows"),
    ],
)
def test_a_deny_of_a_bucket_refuses_where_its_principal_resource_and_condition_apply(shared, statement, refusal):
    """IAM user guide, "Policy evaluation logic"; a key or operator that is not known here is refused, not ignored."""
    found = find_refusal(shared, statement, shared.master)
    assert (refusal in found) if refusal else found == ""


def test_the_headers_of_an_upload_meet_the_conditions_of_a_bucket(shared):
    """S3 user guide, "Using server-side encryption with AWS KMS keys": the header is a condition key."""
    only_kms = deny("StringNotEquals", "s3:x-amz-server-side-encryption", "aws:kms")
    assert find_refusal(shared, only_kms, shared.master, ServerSideEncryption="AES256")
    assert find_refusal(shared, only_kms, shared.master, ServerSideEncryption="aws:kms") == ""
    private = deny("StringEquals", "s3:x-amz-acl", "public-read")
    assert EXPLICIT in find_refusal(shared, private, shared.master, ACL="public-read")


def test_a_copy_is_refused_without_the_right_to_read_its_source(shared):
    """S3 API Reference, "CopyObject": who may write everywhere cannot copy what he may not read."""
    master, source = shared.client("s3", shared.master), {"Bucket": shared.store, "Key": "a/b"}
    copy = {"Bucket": shared.store, "Key": "c", "CopySource": source}
    assert find_refusal(shared, {"Effect": "Deny", "Action": "s3:GetObject"}, shared.master) == ""
    with pytest.raises(ClientError, match=f"s3:GetObject on resource: arn:aws:s3:::{shared.store}/a/b {EXPLICIT}"):
        master.copy_object(**copy, TaggingDirective="REPLACE")
    find_refusal(shared, None, shared.master)
    with pytest.raises(ClientError, match="no identity-based policy allows the s3:GetObjectTagging action"):
        master.copy_object(**copy)
    master.copy_object(**copy, TaggingDirective="REPLACE")
    assert shared.client("s3").get_object(Bucket=shared.store, Key="c")["Body"].read() == b"text"


def test_a_bucket_may_allow_a_role_of_its_account_that_has_no_right_of_its_own(shared):
    """IAM user guide, "Policy evaluation logic": in an account, the policy of the identity or of the resource."""
    role = f"arn:aws:iam::123456789012:role/{shared.physical_id('WorkerRole')}"
    missing = "because no identity-based policy allows the s3:PutObject action"
    assert missing in find_refusal(shared, None, shared.worker)
    assert find_refusal(shared, {"Effect": "Allow", "Principal": {"AWS": role}}, shared.worker) == ""
    assert missing in find_refusal(shared, {"Effect": "Allow", "Principal": {"AWS": f"{role}2"}}, shared.worker)
    # To name the account hands the decision to the policies of its roles.
    assert missing in find_refusal(shared, {"Effect": "Allow", "Principal": {"AWS": "123456789012"}}, shared.worker)
