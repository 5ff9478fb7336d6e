"""What nobody could handle is kept, encrypted, and under the rights of who failed at it."""

import json

import pytest

RECEIPTS = 2
KEY = {"Fn::GetAtt": ["Key", "Arn"]}
ROOT = {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}


def encrypt(template, *, may_use_key):
    """Let the stack have a key and dead letters, which the function may send or not."""
    resources = template["Resources"]
    statement = {"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": {"AWS": ROOT}}
    resources["Key"] = {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": {"Statement": [statement]}}}
    encryption = {"KmsMasterKeyId": KEY, "KmsDataKeyReusePeriodSeconds": 3600}
    resources["DeadLetters"] = {"Type": "AWS::SQS::Queue", "Properties": dict(encryption)}
    dead_letters = {"Fn::GetAtt": ["DeadLetters", "Arn"]}
    resources["FunctionQueue"]["Properties"] |= encryption | {"VisibilityTimeout": 0}
    resources["FunctionQueue"]["Properties"]["RedrivePolicy"] = {
        "deadLetterTargetArn": dead_letters,
        "maxReceiveCount": RECEIPTS,
    }
    resources["Function"]["Properties"] |= {"KmsKeyArn": KEY, "DeadLetterConfig": {"TargetArn": dead_letters}}
    resources["Table"]["Properties"] |= {
        "SSESpecification": {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY},
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
    }
    if may_use_key:
        resources["FunctionRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"].append(
            {"Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey"], "Resource": KEY}
        )
    return template


def fail_for_good(cloud):
    """Let the function fail at an event as often as Lambda tries."""
    topic = cloud.physical_id("Topic")
    cloud.client("sns").publish(TopicArn=topic, Message=json.dumps({"Event": "broken", "Fail": True}))
    for _ in range(3):
        cloud.observation("RuntimeError: asked to fail")


@pytest.fixture(scope="module")
def deploy(start_cloud, sample_assembly, assemble, tmp_path_factory):
    def deploy(*, may_use_key):
        cloud = start_cloud(minute_seconds=3600, retry_seconds=[0.05, 0.05])
        template = json.loads((sample_assembly / "sample.template.json").read_text())
        folder = tmp_path_factory.mktemp("encrypted") / "cdk.out"
        cloud.deploy(assemble(folder, encrypt(template, may_use_key=may_use_key)))
        cloud.observation("Subscription CREATE_COMPLETE")
        cloud.observation("TopicPermission CREATE_COMPLETE")
        return cloud

    return deploy


@pytest.fixture(scope="module")
def cloud(deploy):
    return deploy(may_use_key=True)


def receive(cloud, queue, wait_seconds=5):
    answer = cloud.client("sqs").receive_message(
        QueueUrl=cloud.physical_id(queue),
        WaitTimeSeconds=wait_seconds,
        MessageSystemAttributeNames=["SenderId"],
        MessageAttributeNames=["All"],
    )
    return answer.get("Messages", [])


def test_an_event_that_failed_three_times_is_sent_to_the_dead_letters_as_the_functions_role(cloud):
    fail_for_good(cloud)
    (message,) = receive(cloud, "DeadLetters")
    assert json.loads(json.loads(message["Body"])["Records"][0]["Sns"]["Message"])["Event"] == "broken"
    assert "asked to fail" in message["MessageAttributes"]["ErrorMessage"]["StringValue"]
    role = cloud.client("iam").get_role(RoleName=cloud.physical_id("FunctionRole"))["Role"]["RoleId"]
    assert message["Attributes"]["SenderId"] == f"{role}:{cloud.physical_id('Function')}"
    cloud.client("sqs").delete_message(
        QueueUrl=cloud.physical_id("DeadLetters"), ReceiptHandle=message["ReceiptHandle"]
    )


def test_a_message_that_nobody_deletes_becomes_a_dead_letter(cloud):
    cloud.client("sqs").purge_queue(QueueUrl=cloud.physical_id("FunctionQueue"))
    cloud.client("sqs").send_message(QueueUrl=cloud.physical_id("FunctionQueue"), MessageBody="deadly")
    for _ in range(RECEIPTS):
        assert [message["Body"] for message in receive(cloud, "FunctionQueue")] == ["deadly"]
    assert receive(cloud, "FunctionQueue", wait_seconds=0) == []
    assert [message["Body"] for message in receive(cloud, "DeadLetters")] == ["deadly"]


def test_key_and_recovery_are_set_where_the_template_sets_them(cloud):
    key = cloud.client("kms").describe_key(KeyId=cloud.physical_id("Key"))["KeyMetadata"]["Arn"]
    for queue in ("FunctionQueue", "DeadLetters"):
        attributes = cloud.client("sqs").get_queue_attributes(
            QueueUrl=cloud.physical_id(queue), AttributeNames=["KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"]
        )["Attributes"]
        assert attributes == {"KmsMasterKeyId": key, "KmsDataKeyReusePeriodSeconds": "3600"}
    dynamodb, table = cloud.client("dynamodb"), cloud.physical_id("Table")
    assert dynamodb.describe_table(TableName=table)["Table"]["SSEDescription"]["KMSMasterKeyArn"] == key
    backups = dynamodb.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
    assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
    function = cloud.client("lambda").get_function_configuration(FunctionName=cloud.physical_id("Function"))
    assert function["KMSKeyArn"] == key


def test_a_dead_letter_that_the_functions_role_may_not_encrypt_is_lost_and_told(deploy):
    cloud = deploy(may_use_key=False)
    fail_for_good(cloud)
    cloud.observation("a dead letter of")
    assert receive(cloud, "DeadLetters", wait_seconds=0) == []
