"""What KMS is told when a service uses a customer's key on a caller's behalf."""

from collections.abc import Mapping

from deeplearning_rehearsal.authorization.estate import Estate


def describe_key_use(service: str, arn: str, estate: Estate) -> Mapping[str, str | tuple[str, ...]]:
    """
    Return the condition keys of KMS for the use of a resource's key.

    The encryption contexts are those of the services' own pages about encryption at rest.

    Args:
        service: Signing name of the service.
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
    }.get(service, {})
    return {
        "kms:ViaService": f"{service}.{estate.region}.{estate.url_suffix}",
        "kms:CallerAccount": estate.account,
        "kms:EncryptionContextKeys": tuple(pairs),
        **{f"kms:EncryptionContext:{key}": value for key, value in pairs.items()},
    }
