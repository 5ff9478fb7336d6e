"""Finds what a user can do about a failure whose reason has no remedy of its own."""

import re

from deeplearning_contract.launch_failures import LAUNCH_FAILURE_KINDS, QUOTAS, UNKNOWN_QUOTA, find_remedy

_LAST_LINES = "; last lines: "
_SILENCE = (
    "no node reported in time how the formation ended: read the last lines of each node, below or with "
    "`deeplearning-cdk logs`; a node without a line did not get past its boot, see: "
    "aws ec2 get-console-output --instance-id ID"
)
_USED_NETWORK = (
    "delete what the stack did not make in its network; where GuardDuty watches EC2, that is an endpoint and, a minute "
    "later, a security group, with the commands below; then delete the stack again\n"
    "aws ec2 delete-vpc-endpoints --vpc-endpoint-ids $(aws ec2 describe-vpc-endpoints --filters "
    "Name=vpc-id,Values={vpc} Name=tag:GuardDutyManaged,Values=true --query 'VpcEndpoints[].VpcEndpointId' "
    "--output text)\n"
    "aws ec2 delete-security-group --group-id $(aws ec2 describe-security-groups --filters "
    "Name=vpc-id,Values={vpc} Name=group-name,Values=GuardDutyManagedSecurityGroup-{vpc} "
    "--query 'SecurityGroups[].GroupId' --output text)"
)
"""GuardDuty user guide, "How Runtime Monitoring works with Amazon EC2"; hashicorp/terraform-provider-aws#46747."""
_RESOURCE_REMEDIES = (
    (r"(subnet|vpc) '.+' has dependencies and cannot be deleted", _USED_NETWORK),
    (
        r"WaitCondition timed out",
        _SILENCE,
    ),
    (
        r"not authorized to perform|AccessDenied|UnauthorizedOperation|is not authorized",
        "let the principal that the message names do what it was refused, then deploy again",
    ),
    (
        r"LimitExceeded|limit.*(reached|exceeded)|quota|maximum number",
        "request an increase of that quota in Service Quotas or delete what is not needed, then deploy again",
    ),
    (r"already exists", "delete or rename what exists already, then deploy again"),
    (
        r"does not exist|not ?found|NotFound|Invalid.*(ID|Id|Arn|ARN)",
        "correct the id that the message names, or create what it names in this region, then deploy again",
    ),
)
_OWN_WORDS = "from custom resource. Message returned: "
"""What CloudFormation puts before the reason that one of this project's functions gave, which ends with the remedy."""
_ANY_RESOURCE = "correct what the message names, then deploy again"


def split_reason(text: str, said: str = "") -> tuple[str, str]:
    """
    Split a reason of adjuster or agent, which ends with the remedy, into cause and remedy; it may have no remedy.

    The words of AWS, and remedies, may have a semicolon themselves, so a remedy that is known is looked for first:
    `said`, the one of a log line, or one of those that the contract lists.
    """
    cause, marker, rest = text.partition(_LAST_LINES)
    if said:
        return cause.replace(f"; {said}", "") + marker + rest, said
    known = [kind.remedy for kind in LAUNCH_FAILURE_KINDS if "{quota}" not in kind.remedy]
    quotas = [f'"{name}"' for _, name in (*QUOTAS, ("", UNKNOWN_QUOTA))]
    known += [
        kind.remedy.format(quota=name) for kind in LAUNCH_FAILURE_KINDS if "{quota}" in kind.remedy for name in quotas
    ]
    for remedy in known:
        head, found, tail = cause.partition(f"; {remedy}")
        if found:
            return head + marker + rest, remedy + tail
    head, found, remedy = cause.rpartition("; ")
    return (head + marker + rest, remedy) if found else (text, "")


def advise_on_resource(reason: str, vpc: str = "") -> str:
    """Return what to do about a resource that CloudFormation could not create or delete; `vpc` is the stack's."""
    found = (remedy for pattern, remedy in _RESOURCE_REMEDIES if re.search(pattern, reason, re.IGNORECASE))
    own = split_reason(reason)[1] if _OWN_WORDS in reason else ""
    return next(found, own or _ANY_RESOURCE).replace("{vpc}", vpc or "VPC")


def advise_on_launch(message: str, instance_type: str) -> str:
    """Return what to do about a failed launch."""
    return find_remedy(message, [instance_type] if instance_type else [])


def advise_on_node(cause: str, instance_id: str) -> str:
    """Return what to do about a node that failed without a remedy."""
    if re.search(r"health check|terminated or stopped|powered off|Spot", cause, re.IGNORECASE):
        return (
            "nothing: its group replaces it; when it happens again, see the instance's state reason in the EC2 console"
        )
    if re.search(r"No space left|disk is full|ENOSPC", cause, re.IGNORECASE):
        return "raise workers.volume_size, or free what fills the disk"
    return f"read the rest of its log: deeplearning-cdk logs --node {instance_id}"
