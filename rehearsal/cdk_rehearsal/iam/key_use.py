"""What KMS is told when a service uses a customer's key on a caller's behalf."""

from collections.abc import Mapping

from cdk_rehearsal.iam.estate import Estate


def describe_key_use(service: str, action: str, arn: str, estate: Estate) -> Mapping[str, str | tuple[str, ...]]:
    """
    Return the condition keys of KMS for the use of a resource's key.

    The encryption contexts are those of the services' own pages about encryption at rest.

    Args:
        service: Signing name of the service.
        action: What it does with the key.
        arn: The encrypted resource.
        estate: The account.
    """
    name = arn.rpartition("/")[2]
    pairs = {
        "sqs": {"aws:sqs:arn": arn},
        "sns": {"aws:sns:topicArn": arn},
        "dynamodb": {"aws:dynamodb:tableName": name, "aws:dynamodb:subscriberId": estate.account},
        "s3": {"aws:s3:arn": arn},
        "logs": {"aws:logs:arn": arn},
        "lambda": {"aws:lambda:FunctionArn": arn},
        "backup": {"aws:backup:backup-vault": arn},
    }.get(service, {})
    # Of a service that asks on a caller's behalf, KMS knows that the grant is for a resource of AWS.
    is_for_resource = {"kms:GrantIsForAWSResource": "true"} if action == "kms:CreateGrant" else {}
    return {
        "kms:ViaService": f"{service}.{estate.region}.{estate.url_suffix}",
        "kms:CallerAccount": estate.account,
        **is_for_resource,
        "kms:EncryptionContextKeys": tuple(pairs),
        **{f"kms:EncryptionContext:{key}": value for key, value in pairs.items()},
    }
