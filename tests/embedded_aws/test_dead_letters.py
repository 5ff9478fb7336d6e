"""Dead letters: failed messages are kept, encrypted, with the rights of the service that could not deliver them."""

import json

import pytest

RECEIPTS = 2
KEY = {"Fn::GetAtt": ["Key", "Arn"]}
ROOT = {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}


def encrypt(template, *, may_use_key, may_start=True):
    """Let the stack have a key and dead letters, which the function may send or not; it may read its environment."""
    resources = template["Resources"]
    statement = {"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": {"AWS": ROOT}}
    resources["Key"] = {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": {"Statement": [statement]}}}
    encryption = {"KmsMasterKeyId": KEY, "KmsDataKeyReusePeriodSeconds": 3600}
    resources["DeadLetters"] = {"Type": "AWS::SQS::Queue", "Properties": dict(encryption)}
    dead_letters = {"Fn::GetAtt": ["DeadLetters", "Arn"]}
    resources["FunctionQueue"]["Properties"] |= encryption
    redrive = {"deadLetterTargetArn": dead_letters, "maxReceiveCount": RECEIPTS}
    unhandled = encryption | {"VisibilityTimeout": 0, "RedrivePolicy": redrive}
    resources["UnhandledQueue"] = {"Type": "AWS::SQS::Queue", "Properties": unhandled}
    resources["Function"]["Properties"] |= {
        "KmsKeyArn": KEY,
        "Environment": {"Variables": {"SECRET": "for the function alone"}},
        "DeadLetterConfig": {"TargetArn": dead_letters},
    }
    resources["Table"]["Properties"] |= {
        "SSESpecification": {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY},
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
    }
    key_rights = {"Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey"], "Resource": KEY}
    if not may_use_key:
        key_rights["Condition"] = {
            "StringEquals": {"kms:ViaService": {"Fn::Sub": "lambda.${AWS::Region}.amazonaws.com"}}
        }
    if may_start:
        resources["FunctionRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"].append(key_rights)
    return template


def fail_for_good(cloud):
    """Let the function fail at an event as often as Lambda tries."""
    topic = cloud.physical_id("Topic")
    cloud.client("sns").publish(TopicArn=topic, Message=json.dumps({"Event": "broken", "Fail": True}))
    for _ in range(3):
        cloud.observation("RuntimeError: asked to fail")


@pytest.fixture(scope="module")
def deploy(start_cloud, sample_assembly, assemble, tmp_path_factory):
    def deploy(*, may_use_key, may_start=True):
        cloud = start_cloud(minute_seconds=3600, retry_seconds=[0.05, 0.05])
        template = json.loads((sample_assembly / "sample.template.json").read_text())
        folder = tmp_path_factory.mktemp("encrypted") / "cdk.out"
        cloud.deploy(assemble(folder, encrypt(template, may_use_key=may_use_key, may_start=may_start)))
        cloud.observation("Subscription CREATE_COMPLETE")
        cloud.observation("TopicPermission CREATE_COMPLETE")
        return cloud

    return deploy


@pytest.fixture(scope="module")
def cloud(deploy):
    return deploy(may_use_key=True)


def receive(cloud, queue, **options):
    """Wait for a message of a queue with its attributes."""
    attributes = {"MessageSystemAttributeNames": ["SenderId"], "MessageAttributeNames": ["All"]}
    return cloud.receive(cloud.physical_id(queue), **attributes, **options)


def is_empty(cloud, queue):
    return "Messages" not in cloud.client("sqs").receive_message(QueueUrl=cloud.physical_id(queue))


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
    cloud.client("sqs").send_message(QueueUrl=cloud.physical_id("UnhandledQueue"), MessageBody="deadly")
    for _ in range(RECEIPTS):
        assert [message["Body"] for message in receive(cloud, "UnhandledQueue", VisibilityTimeout=0)] == ["deadly"]
    assert is_empty(cloud, "UnhandledQueue")
    assert [message["Body"] for message in receive(cloud, "DeadLetters")] == ["deadly"]


def test_key_and_recovery_are_set_where_the_template_sets_them(cloud):
    key = cloud.client("kms").describe_key(KeyId=cloud.physical_id("Key"))["KeyMetadata"]["Arn"]
    for queue in ("FunctionQueue", "UnhandledQueue", "DeadLetters"):
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


def test_a_dead_letter_that_the_functions_role_may_not_encrypt_is_lost_and_reported(deploy):
    cloud = deploy(may_use_key=False)
    fail_for_good(cloud)
    cloud.observation("a dead letter of")
    assert is_empty(cloud, "DeadLetters")


def test_a_function_whose_role_may_not_decrypt_its_environment_does_not_start(deploy):
    """
    Lambda decrypts the environment as the execution role, with `aws:lambda:FunctionArn` as context.

    terraform-aws-gitlab-runner issue 1253: "no identity-based policy allows the kms:Decrypt action", and no start.
    """
    cloud = deploy(may_use_key=False, may_start=False)
    cloud.client("sns").publish(TopicArn=cloud.physical_id("Topic"), Message=json.dumps({"Event": "held"}))
    told = cloud.observation("Lambda was unable to decrypt the environment variables")
    assert "no identity-based policy allows the kms:Decrypt action" in told["text"]


def admit(principal, source):
    """Return a statement that lets a service send to the dead letters for one source."""
    return {
        "Effect": "Allow",
        "Principal": {"Service": principal},
        "Action": "sqs:SendMessage",
        "Resource": {"Fn::GetAtt": ["DeadLetters", "Arn"]},
        "Condition": {"ArnEquals": {"aws:SourceArn": source}},
    }


def keep_undelivered(template, *, may_send=True, may_use_key=True):
    """Let topic and rules keep in the dead letters what they cannot deliver; no function admits them."""
    resources = encrypt(template, may_use_key=True)["Resources"]
    dead_letters = {"Fn::GetAtt": ["DeadLetters", "Arn"]}
    del resources["TopicPermission"]
    for entry in resources.values():
        entry.get("Properties", {}).pop("NotificationConfigurations", None)
        if "TopicPermission" in (needs := entry.get("DependsOn", [])):
            needs.remove("TopicPermission")
    resources["Subscription"]["Properties"]["RedrivePolicy"] = {"deadLetterTargetArn": dead_letters}
    resources["Closed"] = {"Type": "AWS::SNS::Topic"}
    for name, arn in (("ToFunction", {"Fn::GetAtt": ["Function", "Arn"]}), ("ToTopic", {"Ref": "Closed"})):
        target = {"Id": "Target0", "Arn": arn, "DeadLetterConfig": {"Arn": dead_letters}}
        pattern = {"source": ["mine"], "detail-type": [name]}
        resources[name] = {
            "Type": "AWS::Events::Rule",
            "Properties": {"EventPattern": pattern, "State": "ENABLED", "Targets": [target]},
        }
    rules = ("ToFunction", "ToTopic") if may_send else ("Rule",)
    statements = [
        admit("sns.amazonaws.com", {"Ref": "Topic" if may_send else "Closed"}),
        *(admit("events.amazonaws.com", {"Fn::GetAtt": [name, "Arn"]}) for name in rules),
    ]
    resources["DeadLettersPolicy"] = {
        "Type": "AWS::SQS::QueuePolicy",
        "Properties": {"Queues": [{"Ref": "DeadLetters"}], "PolicyDocument": {"Statement": statements}},
    }
    queues = {"Fn::Sub": "arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:*"}
    if may_use_key:
        resources["Key"]["Properties"]["KeyPolicy"]["Statement"].append(
            {
                "Effect": "Allow",
                "Principal": {"Service": ["events.amazonaws.com", "sns.amazonaws.com"]},
                "Action": ["kms:Decrypt", "kms:GenerateDataKey*"],
                "Resource": "*",
                "Condition": {"ArnLike": {"kms:EncryptionContext:aws:sqs:arn": queues}},
            }
        )
    return template


@pytest.fixture
def undeliverable(start_cloud, sample_assembly, assemble, tmp_path):
    """Deploy a stack whose topic and rules can deliver nothing, and let each of them try."""

    def deploy(**rights):
        cloud = start_cloud(minute_seconds=3600)
        template = json.loads((sample_assembly / "sample.template.json").read_text())
        cloud.deploy(assemble(tmp_path / "cdk.out", keep_undelivered(template, **rights)))
        for name in ("Subscription", "DeadLettersPolicy", "ToFunction", "ToTopic"):
            cloud.observation(f"{name} CREATE_COMPLETE")
        cloud.client("sns").publish(TopicArn=cloud.physical_id("Topic"), Message=json.dumps({"Event": "undelivered"}))
        for name in ("ToFunction", "ToTopic"):
            assert cloud.command("send_event", source="mine", detail_type=name, detail={"n": 1}) == 1
        return cloud

    return deploy


def test_undeliverable_messages_of_topics_and_rules_are_kept_unchanged(undeliverable):
    cloud = undeliverable()
    messages = [message for _ in range(3) for message in receive(cloud, "DeadLetters")]
    found = {}
    for message in messages:
        body = json.loads(message["Body"])
        found[body.get("detail-type") or json.loads(body["Message"])["Event"]] = message
    assert set(found) == {"undelivered", "ToFunction", "ToTopic"}
    function = cloud.client("lambda").get_function_configuration(FunctionName=cloud.physical_id("Function"))
    for name, target in (("ToFunction", function["FunctionArn"]), ("ToTopic", cloud.physical_id("Closed"))):
        attributes = found[name]["MessageAttributes"]
        assert attributes["TARGET_ARN"]["StringValue"] == target
        assert attributes["RULE_ARN"]["StringValue"].endswith(f"rule/{cloud.physical_id(name)}")
        assert json.loads(found[name]["Body"])["detail"] == {"n": 1}


@pytest.mark.parametrize(
    ("rights", "refused"), [({"may_send": False}, "sqs:SendMessage"), ({"may_use_key": False}, "kms:GenerateDataKey")]
)
def test_a_dead_letter_that_the_queue_or_its_key_refuses_is_lost_and_reported(undeliverable, rights, refused):
    cloud = undeliverable(**rights)
    for _ in range(3):
        cloud.observation(refused)
    assert is_empty(cloud, "DeadLetters")
