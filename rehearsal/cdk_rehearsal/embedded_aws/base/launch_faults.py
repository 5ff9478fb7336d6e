"""Launches that fail on purpose, in the words of EC2."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_WORDING = {
    "InsufficientInstanceCapacity": (
        "We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested ({zone}). "
        "Our system will be working on provisioning additional capacity."
    ),
    "VcpuLimitExceeded": (
        "You have requested more vCPU capacity than your current vCPU limit of {limit:g} allows for the instance "
        "bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request "
        "to request an adjustment to this limit."
    ),
    "PendingVerification": (
        "Your request for accessing resources in this region is being validated, and you will not be able to launch "
        "additional resources in this region until the validation is complete. We will notify you by email once your "
        "request has been validated. While normally resolved within minutes, please allow up to 4 hours for this "
        "process to complete."
    ),
    "Unsupported": (
        "Your requested instance type ({instance_type}) is not supported in your requested Availability Zone ({zone})."
    ),
    "UnauthorizedOperation": "You are not authorized to perform this operation.",
    "Client.InvalidKMSKey.InvalidState": "The KMS key provided is in an incorrect state",
    "Client.VolumeLimitExceeded": "Volume limit exceeded",
    "Client.InternalError": "Client error on launch",
    "Server.InternalError": "Internal error on launch",
}
KEY_REFUSED = "Client.InvalidKMSKey.InvalidState"
_STATE_REASONS = ("Client.", "Server.")
"""Start of the codes with which EC2 ends an instance that it had taken the order for (EC2 API, StateReason)."""


class LaunchError(Exception):
    """A launch that EC2 refused, with EC2's code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True)
class LaunchFault:
    """
    Makes launches of a group, or of an EMR cluster, fail.

    Attributes:
        code: EC2's error code, with which it refuses the launch; or, with `Client.` or `Server.` before it, the reason
            for which it ends the instance before that is in service.
        tags: Tags of the group or cluster, key -> value. Default: any.
        group: Name of the group or cluster. Default: any.
        ordinals: Which launch attempts of it fail, counted from 1. Default: every one from `from_ordinal` on.
        from_ordinal: First attempt that fails. Default: 1.
        at_creation: Whether the dry run for a new group finds it, so that there is no group to launch for. Default: no,
            it happens to launches.
        message: EC2's message. Default: EC2's wording for the code.
    """

    code: str
    tags: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    ordinals: frozenset[int] | None = None
    from_ordinal: int = 1
    at_creation: bool = False
    message: str = ""

    def __post_init__(self) -> None:
        if not self.message and self.code not in _WORDING:
            raise ValueError(f"message must be given for code {self.code}; known codes are {sorted(_WORDING)}")

    @property
    def ends_instance(self) -> bool:
        """True where EC2 accepts the launch, and ends the instance before it is in service."""
        return self.code.startswith(_STATE_REASONS)

    def strikes(self, *, tags: Mapping[str, str], group: str, ordinal: int) -> bool:
        """Return whether this launch attempt fails."""
        if self.at_creation or not self.concerns(tags=tags, group=group):
            return False
        return ordinal >= self.from_ordinal and (self.ordinals is None or ordinal in self.ordinals)

    def concerns(self, *, tags: Mapping[str, str], group: str) -> bool:
        """Return whether it is about a group."""
        return self.tags.items() <= tags.items() and self.group in (None, group)

    def to_error(self, *, instance_type: str, zone: str) -> LaunchError:
        """Return the error that EC2 would give."""
        message = self.message or _WORDING[self.code].format(instance_type=instance_type, zone=zone, limit=0)
        return LaunchError(self.code, message)


def quota_refusal(limit: float) -> LaunchError:
    """Return the refusal of an on-demand launch that exceeds a quota, in vCPUs."""
    return LaunchError("VcpuLimitExceeded", _WORDING["VcpuLimitExceeded"].format(limit=limit))


def key_refusal() -> LaunchError:
    """Return the reason for which EC2 ends an instance whose volume's key refuses its use."""
    return LaunchError(KEY_REFUSED, _WORDING[KEY_REFUSED])


def find_fault(
    faults: Sequence[LaunchFault], *, tags: Mapping[str, str], group: str, ordinal: int
) -> LaunchFault | None:
    """Return the first fault that makes this launch attempt fail, None when it succeeds."""
    return next((fault for fault in faults if fault.strikes(tags=tags, group=group, ordinal=ordinal)), None)
