"""The policy of the cluster's key, statement by statement, and what is said of a key whose policy is another's."""

import json
import re
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_kms as kms

from deeplearning_cdk import Purchase, TrainingCluster
from deeplearning_cdk.emr.training import EmrTraining
from deeplearning_cdk.security.encryption import IMPORTED_KEY_POLICY, ClusterEncryption
from tests.unit.deeplearning_cdk.clusters import EVERYTHING, plan, props_of

DOCUMENT = Path(__file__).parents[4] / "docs" / "encryption.md"
ROLE = "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
IMPORTED = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
DATA_ACTIONS = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
TOPIC_ACTIONS = ["kms:Decrypt", "kms:GenerateDataKey*"]


def _plain(value):
    """Return a part of a template with the values of an account that the documentation uses."""
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if "Fn::Join" in value:
        return value["Fn::Join"][0].join(_plain(value["Fn::Join"][1]))
    if "Ref" in value:
        names = {"AWS::Partition": "aws", "AWS::Region": "us-east-1", "AWS::AccountId": "111122223333"}
        return names[value["Ref"]]
    return {name: _plain(entry) for name, entry in value.items()}


def _policy(synthesis, part):
    key = synthesis.part("AWS::KMS::Key", part)["Properties"]
    return list(_plain(key["KeyPolicy"]["Statement"]))


def _allow(sid, principal, actions, **condition):
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Principal": principal,
        "Action": actions,
        "Resource": "*",
        "Condition": condition,
    }


ADMINISTRATION = {
    "Effect": "Allow",
    "Principal": {"AWS": "arn:aws:iam::111122223333:root"},
    "Action": "kms:*",
    "Resource": "*",
}
IS_SCALING = {"aws:PrincipalArn": f"arn:aws:iam::111122223333:{ROLE}", "kms:CallerAccount": "111122223333"}
SCALING = [
    _allow("AutoScalingUsesTheKey", {"AWS": "*"}, DATA_ACTIONS, StringEquals=IS_SCALING),
    _allow(
        "AutoScalingAttachesVolumes",
        {"AWS": "*"},
        "kms:CreateGrant",
        StringEquals=IS_SCALING,
        Bool={"kms:GrantIsForAWSResource": "true"},
    ),
]
TOPICS = [
    _allow(
        "AlarmsReachTopics",
        {"Service": ["budgets.amazonaws.com", "cloudwatch.amazonaws.com"]},
        TOPIC_ACTIONS,
        StringEquals={"aws:SourceAccount": "111122223333"},
    ),
    _allow(
        "EventsReachTopics",
        {"Service": "events.amazonaws.com"},
        TOPIC_ACTIONS,
        ArnLike={"kms:EncryptionContext:aws:sns:topicArn": "arn:aws:sns:us-east-1:111122223333:*"},
    ),
    _allow(
        "UndeliveredReachesQueues",
        {"Service": ["events.amazonaws.com", "sns.amazonaws.com"]},
        TOPIC_ACTIONS,
        ArnLike={"kms:EncryptionContext:aws:sqs:arn": "arn:aws:sqs:us-east-1:111122223333:*"},
    ),
]
LOGS = _allow(
    "LogGroupsUseTheKey",
    {"Service": "logs.us-east-1.amazonaws.com"},
    DATA_ACTIONS,
    ArnLike={"kms:EncryptionContext:aws:logs:arn": "arn:aws:logs:us-east-1:111122223333:log-group:*"},
)


def test_the_clusters_own_key_allows_auto_scaling_by_condition_and_publishers(synthesize):
    # Its log groups have CloudWatch's key, since they must outlive it.
    assert _policy(synthesize(), "Encryption") == [ADMINISTRATION, *SCALING, *TOPICS]


@pytest.mark.parametrize(("is_kept", "policy"), [(True, "RetainExceptOnCreate"), (False, "Delete")])
def test_the_clusters_own_key_is_rotated_and_stays_while_it_encrypts_what_stays(
    make_stack, read_stack, is_kept, policy
):
    stack = make_stack()
    ClusterEncryption(stack, "Encryption", is_kept=is_kept)
    key = read_stack(stack).part("AWS::KMS::Key", "Key")
    assert (key["Properties"]["EnableKeyRotation"], key["DeletionPolicy"]) == (True, policy)


def test_a_key_of_the_same_app_gets_the_statements_without_a_warning(make_stack, read_stack):
    stack = make_stack()
    key = kms.Key(stack, "Mine")
    TrainingCluster(stack, "Cluster", **props_of({"encryption_key": key, "workers.instance_type": "m5.large"}))
    synthesis = read_stack(stack)
    assert _policy(synthesis, "Mine") == [ADMINISTRATION, *SCALING, *TOPICS, LOGS]
    assert not synthesis.warnings


def test_a_warning_names_every_statement_that_an_imported_key_needs_until_it_is_acknowledged(make_stack, read_stack):
    stack = make_stack()
    encryption = ClusterEncryption(stack, "Encryption", key=kms.Key.from_key_arn(stack, "Mine", IMPORTED))
    assert encryption.key.key_arn == encryption.log_key.key_arn == IMPORTED
    (warning,) = read_stack(stack).warnings
    assert warning.endswith(f"[ack: {IMPORTED_KEY_POLICY}]")
    for statement in [*SCALING, *TOPICS, LOGS]:
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        services = statement["Principal"].get("Service", [])
        named = [services] if isinstance(services, str) else services
        conditions = [key for keys in statement["Condition"].values() for key in keys]
        wanted = [statement["Sid"], *actions, *(name.replace("us-east-1", "<region>") for name in named), *conditions]
        said = {"aws:PrincipalArn": ROLE.removeprefix("role/"), "kms:CallerAccount": "of this account"}
        assert not [text for text in wanted if said.get(text, text) not in warning]
    cdk.Annotations.of(encryption).acknowledge_warning(IMPORTED_KEY_POLICY, "our policy says so")
    assert not read_stack(stack).warnings


def test_the_documented_statements_are_those_that_the_library_writes():
    (block,) = re.findall(r"```json\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert json.loads(block)["Statement"] == [*SCALING, *TOPICS, LOGS]


@pytest.mark.parametrize("part", ["queue", "topic", "table", "volume", "log group", "backup"])
def test_the_document_names_everything_that_is_encrypted(part):
    assert part in DOCUMENT.read_text()


@pytest.mark.parametrize("buyer", ["workers.purchase", "master.purchase"])
def test_either_role_may_buy_spot_instances(buyer):
    assert plan({buyer: Purchase.spot()}).has_spot
    assert not plan({buyer: Purchase.on_demand()}).has_spot


def test_with_spot_instances_the_key_allows_the_role_that_launches_them(synthesize):
    """EC2 user guide, "Grant access to customer managed keys for use with encrypted AMIs and EBS snapshots"."""
    spot = "arn:aws:iam::111122223333:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    _, *scaling = _policy(synthesize(**EVERYTHING), "Encryption")[: 1 + len(SCALING)]
    for statement, without_spot in zip(scaling, SCALING, strict=True):
        named = statement["Condition"]["StringEquals"].pop("aws:PrincipalArn")
        assert named == [IS_SCALING["aws:PrincipalArn"], spot]
        statement["Condition"]["StringEquals"]["aws:PrincipalArn"] = named[0]
        assert statement == without_spot


@pytest.mark.parametrize(
    "choice",
    [
        {"key_spec": kms.KeySpec.RSA_4096, "key_usage": kms.KeyUsage.ENCRYPT_DECRYPT},
        {"key_spec": kms.KeySpec.RSA_2048, "key_usage": kms.KeyUsage.SIGN_VERIFY},
        {"key_spec": kms.KeySpec.ECC_NIST_P256, "key_usage": kms.KeyUsage.SIGN_VERIFY},
        {"key_spec": kms.KeySpec.HMAC_256, "key_usage": kms.KeyUsage.GENERATE_VERIFY_MAC},
    ],
)
def test_only_a_symmetric_key_is_taken(make_stack, choice):
    """Source: KMS developer guide, "Asymmetric keys in AWS KMS"."""
    stack = make_stack()
    symmetric = kms.Key(stack, "Symmetric", key_spec=kms.KeySpec.SYMMETRIC_DEFAULT)
    assert ClusterEncryption(stack, "Taken", key=symmetric).key is symmetric
    key = kms.Key(stack, "Mine", **choice)
    for each in (key, kms.Alias(stack, "Alias", alias_name="alias/mine", target_key=key)):
        with pytest.raises(ValueError, match=r"^encryption_key must be a symmetric key for encryption, got an? "):
            TrainingCluster(stack, "Cluster", encryption_key=each)
        with pytest.raises(ValueError, match=r"^encryption_key must be a symmetric key for encryption, got an? "):
            EmrTraining(stack, "Emr", encryption_key=each)


def test_a_key_of_another_region_is_refused(make_stack):
    stack = make_stack(region="us-east-1")
    key = kms.Key.from_key_arn(stack, "Mine", "arn:aws:kms:eu-west-1:111122223333:key/mine")
    with pytest.raises(
        ValueError, match=r"^encryption_key must be in the region of the cluster's stack Stack, us-east-1"
    ):
        ClusterEncryption(stack, "Encryption", key=key)
