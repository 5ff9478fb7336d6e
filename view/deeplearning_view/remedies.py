"""Finds what a user can do about a failure whose reason has no remedy of its own."""

import re

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
    # The answer of one of this project's functions, which ends with its remedy.
    (r"from custom resource\. Message returned: ", "do what the message says, then deploy again"),
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
_ANY_RESOURCE = "correct what the message names, then deploy again"


def advise_on_resource(reason: str, vpc: str = "") -> str:
    """Return what to do about a resource that CloudFormation could not create or delete; `vpc` is the stack's."""
    found = (remedy for pattern, remedy in _RESOURCE_REMEDIES if re.search(pattern, reason, re.IGNORECASE))
    return next(found, _ANY_RESOURCE).replace("{vpc}", vpc or "VPC")


def advise_on_node(cause: str, instance_id: str) -> str:
    """Return what to do about a node that failed without a remedy."""
    if re.search(r"health check|terminated or stopped|powered off|Spot", cause, re.IGNORECASE):
        return (
            "nothing: its group replaces it; when it happens again, see the instance's state reason in the EC2 console"
        )
    if re.search(r"No space left|disk is full|ENOSPC", cause, re.IGNORECASE):
        return "raise workers.volume_size, or free what fills the disk"
    return f"read the rest of its log: deeplearning-cdk logs --node {instance_id}"
