"""What the refusals of S3 mean for a source of data, in its user's words."""

from deeplearning_node.aws_errors import error_code, is_denied, is_passing
from deeplearning_provision.steps import ProvisionFailure

_RULES = {
    "NoSuchKey": ("must exist", "upload it, or correct the key of the source and deploy"),
    "NoSuchBucket": ("must lie in a bucket that exists", "correct the bucket of the source and deploy"),
    "InvalidObjectState": ("must not be archived", "restore it from its storage class first"),
}
_DENIED = "let the node role have s3:GetObject on it and s3:ListBucket on its bucket, which also hides a missing key"


class SourceChangedError(Exception):
    """An object is not the one that was described: it was written anew meanwhile."""


def explain_error(error: Exception, what: str) -> ProvisionFailure:
    """
    Turn an error into a failure that names the object, the rule and the remedy.

    Args:
        error: What botocore raised, or a broken connection.
        what: The object or the prefix, as an URI.
    """
    code = error_code(error)
    if code in _RULES:
        rule, remedy = _RULES[code]
        return ProvisionFailure(f"{what} {rule}, got {code}: {error}", remedy)
    if is_denied(error):
        return ProvisionFailure(f"{what} must be readable by the nodes, got {code}: {error}", _DENIED)
    if code and not is_passing(error):
        return ProvisionFailure(f"{what} must be readable, got {code}: {error}", "mend what S3 says and stage again")
    cause = f"{what} could not be read: {error}"
    return ProvisionFailure(cause, "it is tried again; see whether the nodes reach S3", is_final=False)
