"""Words for the failures of stacks and of their resources."""

from botocore.exceptions import ClientError, ParamValidationError

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError
from cdk_rehearsal.embedded_aws.resources.creation import MissingPropertyError
from cdk_rehearsal.errors import AssemblyError

_OWN_FAULT = "InternalFailure"
"""Code with which the embedded AWS answers what it could not carry out; the message names the rehearsal."""
_OWN_WORDS = "the rehearsal could not "


def word_creation_failure(error: Exception, logical_id: str, resource_type: str) -> str:
    """Return why a resource was not created: a refusal in CloudFormation's words, a defect as the rehearsal's own."""
    invalid = f"Properties validation failed for resource {logical_id} with message:"
    if isinstance(error, MissingPropertyError):
        return f"{invalid} #: required key [{error.name}] not found"
    if isinstance(error, ParamValidationError):
        return f"{invalid} {' '.join(str(error).split())}"
    if isinstance(error, ClientError) and error.response["Error"]["Code"] == _OWN_FAULT:
        return str(error.response["Error"]["Message"])
    if isinstance(error, (ClientError, LaunchError, AssemblyError, ValueError, RuntimeError)):
        return str(error) or type(error).__name__
    return word_defect(f"create {resource_type}", error)


def word_deletion_failure(error: Exception, resource_type: str) -> str:
    """Return why a resource was not deleted, in the words of a resource type's provider."""
    if isinstance(error, ClientError):
        message = error.response["Error"]["Message"]
        return f'Resource handler returned message: "{message}" (HandlerErrorCode: InvalidRequest)'
    return str(error) if isinstance(error, RuntimeError) else word_defect(f"delete {resource_type}", error)


def word_defect(what: str, error: Exception) -> str:
    """Return an error of the rehearsal itself, which says nothing of AWS."""
    return f"{_OWN_WORDS}{what}, AWS may: {type(error).__name__}: {error}"


def is_defect(reason: str) -> bool:
    """Return whether a reason is an error of the rehearsal itself, of a function or a nested stack too."""
    return _OWN_WORDS in reason
