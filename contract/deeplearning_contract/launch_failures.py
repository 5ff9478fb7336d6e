"""
Kinds of failed launches, as data: Auto Scaling's message, the meaning and the remedy.

Status messages contain EC2's sentence and only sometimes its code, so each pattern matches either.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

_PASSING_SECONDS = 45
"""A new role or profile usually propagates in ten; the reason should follow within a minute of its cause."""
_THROTTLED_SECONDS = 180
_VALIDATION_SECONDS = 600
"""AWS: "normally resolved within minutes", and up to 4 hours; Auto Scaling retries meanwhile."""


class Scope(str, Enum):
    """Scope of a refused launch: the candidates for capacity, of a zone, type and purchase each, that it rules out."""

    CANDIDATE = "candidate"  # This one alone: another zone, instance type or purchase may launch
    QUOTA = "quota"  # This one, and those of the same quota that need no fewer vCPUs
    CLUSTER = "cluster"  # Every candidate, which have the same key, image, profile and volumes
    REGION = "region"  # Every candidate, for a while


@dataclass(frozen=True)
class LaunchFailureKind:
    """Kind of a failed launch."""

    name: str  # EC2's error code, or the most similar one
    pattern: str  # Matches the status message, in any case
    remedy: str  # What the user can do
    is_configuration: bool = False  # A mistake that no retry corrects
    grace_seconds: int = 0  # Time for which retries may still succeed, from the first failure of the kind
    scope: Scope = Scope.CANDIDATE  # Candidates that it rules out

    def matches(self, message: str) -> bool:
        """Return whether a status message is of this kind."""
        return re.search(self.pattern, message, re.IGNORECASE) is not None


UNKNOWN_FAILURE = LaunchFailureKind("LaunchFailed", "", "see the group's activity history in the Auto Scaling console")

LAUNCH_FAILURE_KINDS = (
    LaunchFailureKind(
        "PendingVerification",
        r"PendingVerification|being (validated|verified)",
        "wait for AWS's mail that the account is validated in this region, then deploy again if the stack has failed",
        grace_seconds=_VALIDATION_SECONDS,
        scope=Scope.REGION,
    ),
    # Before the quotas, whose patterns match these messages too.
    LaunchFailureKind(
        "RequestLimitExceeded",
        r"RequestLimitExceeded|request limit exceeded|request rate limit",
        "wait until the account calls EC2 less often, then deploy again if the stack has failed",
        grace_seconds=_THROTTLED_SECONDS,
        scope=Scope.REGION,
    ),
    LaunchFailureKind(
        "MaxSpotInstanceCountExceeded",
        r"MaxSpotInstanceCountExceeded|max spot instance count",
        "raise the quota for Spot instance requests of this type, or use on-demand instances",
        scope=Scope.QUOTA,
    ),
    LaunchFailureKind(
        "SpotPriceTooLow",
        r"SpotMaxPriceTooLow|spot (request )?price .*(lower|minimum)",
        "raise or remove the maximum Spot price, or use on-demand instances",
    ),
    LaunchFailureKind(
        "InsufficientSpotCapacity",
        r"UnfulfillableCapacity|no spot capacity|capacity-not-available",
        "try again later, choose another zone or instance type, or use on-demand instances",
    ),
    LaunchFailureKind(
        "VolumeLimitExceeded",
        r"VolumeLimitExceeded|maximum .*(volume|storage)|MaxIOPSLimitExceeded",
        "request an increase of the EBS quota of gp3 storage in Service Quotas, or lower workers.volume_size",
        scope=Scope.CLUSTER,
    ),
    LaunchFailureKind(
        "VcpuLimitExceeded",
        r"VcpuLimitExceeded|vCPU (capacity|limit)",
        "request an increase of the EC2 quota {quota} in Service Quotas, or use fewer or smaller instances",
        scope=Scope.QUOTA,
    ),
    LaunchFailureKind(
        "InstanceLimitExceeded",
        r"InstanceLimitExceeded|more instances \([0-9]+\) than your current instance limit"
        r"|quota.*exceeded|quota allows for|limit exceeded",
        "request an increase of the EC2 quota {quota} in Service Quotas, or use fewer instances",
        scope=Scope.QUOTA,
    ),
    LaunchFailureKind(
        "InsufficientFreeAddressesInSubnet",
        r"InsufficientFreeAddressesInSubnet|not enough free addresses",
        "free addresses in the subnet, or use a larger one",
    ),
    # Before the reservations and missing capacity, whose patterns match its message and its code too. No other region
    # has the block.
    LaunchFailureKind(
        "CapacityBlockNotActive",
        r"capacity block .*not active",
        "deploy again once the block is active; beside a master outside of the block, workers in it wait for its start",
        scope=Scope.REGION,
    ),
    LaunchFailureKind(
        "ReservationCapacityExceeded",
        r"ReservationCapacityExceeded|capacity (reservation|block)",
        "check that the reservation is active, in the zone of the nodes, and has as many instances left",
    ),
    LaunchFailureKind(
        "InsufficientInstanceCapacity",
        r"InsufficientInstanceCapacity|InsufficientCapacity|(do not|not) have (sufficient|enough) .*capacity"
        r"|insufficient capacity|no longer available.*availability zone",
        "try again later, choose another network.availability_zone, region or instance type, or reserve capacity",
    ),
    LaunchFailureKind(
        "InvalidIamInstanceProfile",
        r"iamInstanceProfile|invalid iam instance profile",
        "check that the instance profile exists and has its role",
        is_configuration=True,
        grace_seconds=_PASSING_SECONDS,
        scope=Scope.CLUSTER,
    ),
    LaunchFailureKind(
        "UnauthorizedOperation",
        r"UnauthorizedOperation|not authorized|AccessDenied|access denied|OptInRequired",
        "check the permissions of the Auto Scaling service-linked role, and the organization's policies",
        is_configuration=True,
        grace_seconds=_PASSING_SECONDS,
        scope=Scope.CLUSTER,
    ),
    LaunchFailureKind(
        "InvalidKmsKey",
        r"Client\.InternalError|client error on launch|KMS|InvalidKMSKey",
        "allow in the policy of {key} the service-linked role AWSServiceRoleForAutoScaling to kms:CreateGrant (with "
        "kms:GrantIsForAWSResource), kms:Decrypt, kms:DescribeKey, kms:Encrypt, kms:GenerateDataKey* and "
        "kms:ReEncrypt*, and check that the key is enabled",
        is_configuration=True,
        scope=Scope.CLUSTER,
    ),
    LaunchFailureKind(
        "InvalidAMIID",
        r"InvalidAMIID|image id .*(does not exist|not valid|invalid)|AMI .*(does not exist|not found|pending|invalid)"
        r"|not authorized for images",
        "choose an image that exists in this region",
        is_configuration=True,
        scope=Scope.CLUSTER,
    ),
    LaunchFailureKind(
        "InvalidKeyPair",
        r"InvalidKeyPair|key pair .*does not exist",
        "choose a key_pair that exists in this region, or none",
        is_configuration=True,
        scope=Scope.CLUSTER,
    ),
    LaunchFailureKind(
        "InvalidGroup",
        r"InvalidGroup|InvalidSecurityGroup|security group .*(does not exist|not valid)"
        r"|placement group .*(unknown|does not exist)",
        "check that the security groups and the placement group exist in the VPC of the nodes",
        is_configuration=True,
        scope=Scope.CLUSTER,
    ),
    LaunchFailureKind(
        "InvalidLaunchTemplate",
        r"InvalidLaunchTemplate|launch template|InvalidSubnetID|subnet ID .*does not exist",
        "check that the launch template, its version and the subnet still exist",
        is_configuration=True,
        scope=Scope.CLUSTER,
    ),
    LaunchFailureKind(
        "Unsupported",
        r"Unsupported|(not|no longer) supported|Invalid value .* for InstanceType|does not match .*architecture",
        "choose another network.availability_zone, instance type or image, which go together",
        is_configuration=True,
    ),
    LaunchFailureKind(
        "InvalidParameter",
        r"InvalidParameter|InvalidBlockDeviceMapping|invalid device name|value .* for parameter .* is invalid",
        "correct the launch template",
        is_configuration=True,
        scope=Scope.CLUSTER,
    ),
    LaunchFailureKind(
        "UnhealthyInstance",
        r"became unhealthy while waiting|InstanceFailure|server\.internalerror",
        "try again; when it happens again, see the instance's state reason in the EC2 console",
    ),
)

QUOTAS = (
    (r"p[0-9]", "Running On-Demand P instances"),
    (r"(g|vt)[0-9]", "Running On-Demand G and VT instances"),
    (r"inf[0-9]", "Running On-Demand Inf instances"),
    (r"trn[0-9]", "Running On-Demand Trn instances"),
    (r"dl[0-9]", "Running On-Demand DL instances"),
    (r"f[0-9]", "Running On-Demand F instances"),
    (r"x[0-9]", "Running On-Demand X instances"),
    (r"u-", "Running On-Demand High Memory instances"),
    (r"hpc[0-9]", "Running On-Demand HPC instances"),
    (r"(a|c|d|h|i|im|is|m|mac|r|t|z)[0-9]", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
)
"""Start of an instance type -> name of the EC2 quota of its vCPUs in Service Quotas."""
UNKNOWN_QUOTA = "Running On-Demand instances of the type's family"

_UNKNOWN_KEY = "the KMS key that encrypts the volumes"

_INSTANCE_TYPE = re.compile(
    r"\b[a-z][a-z0-9-]*[0-9][a-z0-9-]*\.(?:[0-9]*x?large|metal[a-z0-9-]*|medium|small|micro|nano)\b"
)


_NOISE = re.compile(r"\s*(Launching EC2 instance failed\.?|Encoded authorization failure message: \S+)")
"""Text without information, and text that differs between attempts."""


def clean_message(message: str) -> str:
    """Return a status message in one line, without text that says nothing or differs between attempts."""
    return " ".join(_NOISE.sub("", message).split())


def classify_failure(message: str) -> LaunchFailureKind:
    """Return the kind of a failed launch by its status message."""
    return next((kind for kind in LAUNCH_FAILURE_KINDS if kind.matches(message)), UNKNOWN_FAILURE)


def find_instance_type(text: str) -> str:
    """Return the first instance type that a text names; empty without one."""
    found = _INSTANCE_TYPE.search(text)
    return found.group() if found else ""


def find_quota(instance_type: str) -> str:
    """Return the name of the on-demand quota of an instance type; empty when unknown."""
    return next((quota for pattern, quota in QUOTAS if re.match(pattern, instance_type)), "")


def find_remedy(message: str, instance_types: Iterable[str] = (), key: str = "") -> str:
    """
    Return the remedy of a failed launch with this status message.

    The group's instance types name the quota where the message names no type, and `key` the KMS key of the nodes'
    volumes.
    """
    named = find_instance_type(message) or min(instance_types, default="")
    quota = f'"{find_quota(named) or UNKNOWN_QUOTA}"'
    return classify_failure(message).remedy.format(quota=quota, key=key or _UNKNOWN_KEY)
