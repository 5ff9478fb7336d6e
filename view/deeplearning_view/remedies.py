"""Remedies of failures whose reason names none."""

import re

_SILENCE = (
    "no node reported the end of the formation in time: read the last lines of each node, below or with "
    "`deeplearning-cdk logs`; a node without a line failed in its boot, see: "
    "aws ec2 get-console-output --instance-id ID"
)
_USED_NETWORK = (
    "delete the resources in its network that the stack did not create; with GuardDuty for EC2, these are an endpoint "
    "and, a minute later, a security group: run the commands below; then delete the stack again\n"
    "aws ec2 delete-vpc-endpoints --vpc-endpoint-ids $(aws ec2 describe-vpc-endpoints --filters "
    "Name=vpc-id,Values={vpc} Name=tag:GuardDutyManaged,Values=true --query 'VpcEndpoints[].VpcEndpointId' "
    "--output text)\n"
    "aws ec2 delete-security-group --group-id $(aws ec2 describe-security-groups --filters "
    "Name=vpc-id,Values={vpc} Name=group-name,Values=GuardDutyManagedSecurityGroup-{vpc} "
    "--query 'SecurityGroups[].GroupId' --output text)"
)
"""GuardDuty user guide, "How Runtime Monitoring works with Amazon EC2"; hashicorp/terraform-provider-aws#46747."""
_RESOURCE_REMEDIES = (
    # The response of one of this project's functions ends with its remedy.
    (r"from custom resource\. Message returned: ", "do what the message says, then deploy again"),
    (r"(subnet|vpc) '.+' has dependencies and cannot be deleted", _USED_NETWORK),
    (
        r"WaitCondition timed out",
        _SILENCE,
    ),
    (
        r"not authorized to perform|AccessDenied|UnauthorizedOperation|is not authorized",
        "grant the principal in the message the permission that it lacks, then deploy again",
    ),
    (
        r"LimitExceeded|limit.*(reached|exceeded)|quota|maximum number",
        "request an increase of that quota in Service Quotas or delete unused resources, then deploy again",
    ),
    (r"already exists", "delete or rename the existing resource, then deploy again"),
    (
        r"does not exist|not ?found|NotFound|Invalid.*(ID|Id|Arn|ARN)",
        "correct the id in the message, or create the resource in this region, then deploy again",
    ),
)
_ANY_RESOURCE = "correct the cause in the message, then deploy again"


def advise_on_resource(reason: str, vpc: str = "") -> str:
    """Return the remedy for a resource that CloudFormation could not create or delete; `vpc` is the stack's."""
    found = (remedy for pattern, remedy in _RESOURCE_REMEDIES if re.search(pattern, reason, re.IGNORECASE))
    return next(found, _ANY_RESOURCE).replace("{vpc}", vpc or "VPC")


def advise_on_node(cause: str, instance_id: str) -> str:
    """Return the remedy for a node that failed without naming one."""
    if re.search(r"health check|terminated or stopped|powered off|Spot", cause, re.IGNORECASE):
        return "nothing: its group replaces it; if it happens again, see the instance's state reason in the EC2 console"
    if re.search(r"No space left|disk is full|ENOSPC", cause, re.IGNORECASE):
        return "raise workers.volume_size, or free disk space"
    return f"read the rest of its log: deeplearning-cdk logs --node {instance_id}"
