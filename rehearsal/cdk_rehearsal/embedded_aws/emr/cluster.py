"""An EMR cluster as data: its request, groups, instances and steps, in the forms of the API."""

import json
import secrets
import string
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from cdk_rehearsal.embedded_aws.base.scaling_group import now

ClusterState = Literal[
    "STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING", "TERMINATING", "TERMINATED", "TERMINATED_WITH_ERRORS"
]
InstanceState = Literal["PROVISIONING", "BOOTSTRAPPING", "RUNNING", "TERMINATED"]
StepState = Literal["PENDING", "CANCEL_PENDING", "RUNNING", "COMPLETED", "CANCELLED", "FAILED"]
Role = Literal["MASTER", "CORE"]
ENDED = ("TERMINATED", "TERMINATED_WITH_ERRORS")
READY = ("RUNNING", "WAITING")
ACTIVE_STEPS = ("PENDING", "CANCEL_PENDING", "RUNNING")
_FULL_PERCENT = 90
"""Fill of a disk above which a node is unhealthy (EMR API Reference, SetUnhealthyNodeReplacement)."""
_ATTRIBUTES = (
    *("EmrManagedMasterSecurityGroup", "EmrManagedSlaveSecurityGroup", "ServiceAccessSecurityGroup"),
    *("AdditionalMasterSecurityGroups", "AdditionalSlaveSecurityGroups", "Ec2KeyName", "Ec2SubnetId"),
)
_ECHOED = (
    *("Name", "LogUri", "LogEncryptionKmsKeyId", "ReleaseLabel", "Applications", "Configurations", "ServiceRole"),
    *("SecurityConfiguration", "CustomAmiId", "EbsRootVolumeSize", "OSReleaseLabel", "VisibleToAllUsers"),
)
"""Fields of RunJobFlow that DescribeCluster returns as they were given."""


def make_id(prefix: str) -> str:
    """Make up an id as EMR's: `j-` a cluster, `ig-` a group, `ci-` an instance, `s-` a step."""
    return prefix + "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(13))


def drop_unset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what has a value."""
    return {name: value for name, value in values.items() if value not in (None, "", {})}


@dataclass
class StateReason:
    """Reason of a state; EMR leaves the code out where nothing went wrong."""

    code: str = ""
    message: str = ""

    def to_api(self) -> dict[str, str]:
        """Return the API's form."""
        return drop_unset({"Code": self.code, "Message": self.message})


@dataclass
class ClusterInstance:
    """An instance of a cluster."""

    group_id: str
    role: Role
    ec2_id: str
    address: str
    private_dns: str
    instance_type: str
    zone: str
    id: str = field(default_factory=lambda: make_id("ci-"))
    state: InstanceState = "PROVISIONING"
    reason: StateReason = field(default_factory=StateReason)
    created: datetime = field(default_factory=now)
    ready: datetime | None = None
    ended: datetime | None = None

    def to_api(self) -> dict[str, Any]:
        """Return the API's form."""
        times = {"CreationDateTime": self.created, "ReadyDateTime": self.ready, "EndDateTime": self.ended}
        return {
            "Id": self.id,
            "Ec2InstanceId": self.ec2_id,
            "PrivateDnsName": self.private_dns,
            "PrivateIpAddress": self.address,
            "PublicDnsName": "",
            "InstanceGroupId": self.group_id,
            "InstanceType": self.instance_type,
            "Market": "ON_DEMAND",
            "Status": {
                "State": self.state,
                "StateChangeReason": self.reason.to_api(),
                "Timeline": drop_unset(times),
            },
        }


@dataclass
class InstanceGroup:
    """A uniform instance group."""

    role: Role
    instance_type: str
    count: int
    name: str
    id: str = field(default_factory=lambda: make_id("ig-"))
    created: datetime = field(default_factory=now)


@dataclass
class Step:
    """A step; `log` is the folder of its logs in S3, empty without one."""

    name: str
    jar: str
    arguments: list[str]
    action_on_failure: str
    log: str
    id: str = field(default_factory=lambda: make_id("s-"))
    state: StepState = "PENDING"
    created: datetime = field(default_factory=now)
    started: datetime | None = None
    ended: datetime | None = None

    def to_api(self) -> dict[str, Any]:
        """Return the API's form."""
        times = {"CreationDateTime": self.created, "StartDateTime": self.started, "EndDateTime": self.ended}
        status: dict[str, Any] = {"State": self.state, "StateChangeReason": {}, "Timeline": drop_unset(times)}
        if self.state == "FAILED":
            log = f"{self.log}{self.id}/stderr.gz" if self.log else ""
            status["FailureDetails"] = drop_unset({"Reason": "Unknown Error.", "LogFile": log})
        return {
            "Id": self.id,
            "Name": self.name,
            "Config": {"Jar": self.jar, "Args": self.arguments, "Properties": {}},
            "ActionOnFailure": self.action_on_failure,
            "Status": status,
        }


@dataclass(frozen=True)
class DiskKey:
    """The key of a cluster's disks; `encrypts_volumes` where EBS uses it for all volumes."""

    arn: str
    encrypts_volumes: bool

    @classmethod
    def read(cls, security_configuration: str) -> "DiskKey | None":
        """Read a security configuration; None where disks are not encrypted with a key of KMS."""
        encryption = json.loads(security_configuration).get("EncryptionConfiguration", {})
        disks = encryption.get("AtRestEncryptionConfiguration", {}).get("LocalDiskEncryptionConfiguration", {})
        if disks.get("EncryptionKeyProviderType") != "AwsKms":
            return None
        return cls(disks["AwsKmsKey"], bool(disks.get("EnableEbsEncryption", False)))


@dataclass
class Cluster:
    """State of a cluster; the driver's lock guards it."""

    request: Mapping[str, Any]
    arn_prefix: str
    disk_key: DiskKey | None = None
    id: str = field(default_factory=lambda: make_id("j-"))
    state: ClusterState = "STARTING"
    reason: StateReason = field(default_factory=StateReason)
    groups: list[InstanceGroup] = field(default_factory=list)
    instances: list[ClusterInstance] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    created: datetime = field(default_factory=now)
    ready: datetime | None = None
    ended: datetime | None = None
    active: float = 0.0
    """Time of the monotonic clock at which it was last known not to be idle."""
    launches: int = 0
    """Number of launches that were tried."""
    interface_id: str = ""
    """EMR's own network interface in a private subnet; empty without one."""

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.request["Name"])

    @property
    def settings(self) -> Mapping[str, Any]:
        """The `Instances` of its request."""
        settings: Mapping[str, Any] = self.request["Instances"]
        return settings

    @property
    def tags(self) -> dict[str, str]:
        """Its tags, key -> value."""
        return {tag["Key"]: str(tag["Value"]) for tag in self.request.get("Tags", [])}

    @property
    def user_tags(self) -> dict[str, str]:
        """Its tags without those of AWS's own."""
        return {key: value for key, value in self.tags.items() if not key.startswith("aws:")}

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"{self.arn_prefix}{self.id}"

    @property
    def log_uri(self) -> str:
        """The folder of its logs, `s3://bucket/prefix/j-…/`; empty without logs."""
        uri = str(self.request.get("LogUri", ""))
        return f"{uri.replace('s3n://', 's3://').rstrip('/')}/{self.id}/" if uri else ""

    def place_log(self, step: Step) -> Step:
        """Give a step the folder of its logs; return it."""
        step.log = f"{self.log_uri}steps/" if self.log_uri else ""
        return step

    @property
    def is_ending(self) -> bool:
        """True if it terminates or has ended."""
        return self.state in ("TERMINATING", *ENDED)

    @property
    def master(self) -> ClusterInstance | None:
        """The primary, while there is one."""
        return next((entry for entry in self.alive if entry.role == "MASTER"), None)

    @property
    def alive(self) -> list[ClusterInstance]:
        """Instances that have not ended."""
        return [entry for entry in self.instances if entry.state != "TERMINATED"]

    def find_instance(self, ec2_id: str) -> ClusterInstance | None:
        """Return an instance that has not ended, by its EC2 id."""
        return next((entry for entry in self.alive if entry.ec2_id == ec2_id), None)

    def find_step(self, step_id: str) -> Step | None:
        """Return a step."""
        return next((step for step in self.steps if step.id == step_id), None)

    def count_alive(self, group: InstanceGroup, state: str = "") -> int:
        """Count the instances of a group that have not ended, of one state or of all."""
        return sum(entry.group_id == group.id and state in ("", entry.state) for entry in self.alive)

    def touch(self, seconds_ago: float = 0.0) -> None:
        """Take it that the cluster was not idle some seconds ago."""
        self.active = max(self.active, time.monotonic() - seconds_ago)

    def is_idle(self, busy_seconds: float | None, second: float = 1.0) -> bool:
        """
        Return whether the cluster has been idle for the time of its auto-termination policy, if it has one.

        Management Guide, "Using an auto-termination policy": it is idle without an active application of YARN and
        without a pending step, and programs outside of YARN touch `/emr/metricscollector/isbusy` on the primary, here
        `busy_seconds` ago. Whether a step that runs counts as pending is not documented; here it does not. No node has
        applications of YARN or files in HDFS. `second` is the length of a second of the policy, in seconds.
        """
        if busy_seconds is not None:
            self.touch(busy_seconds)
        if any(step.state == "PENDING" for step in self.steps):
            self.touch()
        limit = self.request.get("AutoTerminationPolicy", {}).get("IdleTimeout")
        return limit is not None and time.monotonic() - self.active >= int(limit) * second

    def replaces_unhealthy(self, instance: ClusterInstance, disk_percent: float) -> bool:
        """
        Return whether EMR ends an instance for its full disk.

        EMR API Reference, SetUnhealthyNodeReplacement: it ends unhealthy core nodes at once where replacement is on and
        the cluster is not protected. The default is documented nowhere; this one is the hardest on a job.
        """
        is_on = self.settings.get("UnhealthyNodeReplacement", True) and not self.settings.get("TerminationProtected")
        return bool(is_on) and instance.role == "CORE" and disk_percent > _FULL_PERCENT

    def summarize(self) -> dict[str, Any]:
        """Return the API's short form."""
        times = {"CreationDateTime": self.created, "ReadyDateTime": self.ready, "EndDateTime": self.ended}
        status = {"State": self.state, "StateChangeReason": self.reason.to_api(), "Timeline": drop_unset(times)}
        return {"Id": self.id, "Name": self.name, "Status": status, "ClusterArn": self.arn}

    def to_api(self) -> dict[str, Any]:
        """Return the API's form."""
        # The first one, which keeps its name when the cluster has ended.
        master = next((entry for entry in self.instances if entry.role == "MASTER"), None)
        attributes = {name: self.settings.get(name) for name in _ATTRIBUTES}
        attributes |= {
            "IamInstanceProfile": self.request["JobFlowRole"],
            "Ec2AvailabilityZone": master.zone if master else None,
        }
        return self.summarize() | drop_unset(
            {name: self.request.get(name) for name in _ECHOED}
            | {
                "Ec2InstanceAttributes": drop_unset(attributes),
                "InstanceCollectionType": "INSTANCE_GROUP",
                "AutoTerminate": not self.settings.get("KeepJobFlowAliveWhenNoSteps", False),
                "TerminationProtected": self.settings.get("TerminationProtected", False),
                "UnhealthyNodeReplacement": self.settings.get("UnhealthyNodeReplacement"),
                "Tags": self.request.get("Tags", []),
                "StepConcurrencyLevel": self.request.get("StepConcurrencyLevel", 1),
                "MasterPublicDnsName": master.private_dns if master else None,
            }
        )

    def describe_group(self, group: InstanceGroup) -> dict[str, Any]:
        """Return the API's form of a group."""
        running = self.count_alive(group, "RUNNING")
        state = "RUNNING" if running == group.count else "RESIZING" if self.ready else "BOOTSTRAPPING"
        if self.state == "STARTING":
            state = "PROVISIONING"
        if self.is_ending:
            state = "TERMINATED" if self.state in ENDED else "TERMINATING"
        return {
            "Id": group.id,
            "Name": group.name,
            "Market": "ON_DEMAND",
            "InstanceGroupType": group.role,
            "InstanceType": group.instance_type,
            "RequestedInstanceCount": group.count,
            "RunningInstanceCount": running,
            "Status": {"State": state, "StateChangeReason": {}, "Timeline": {"CreationDateTime": group.created}},
        }


def word_bootstrap_failure(instance: ClusterInstance, report: Mapping[str, Any]) -> str:
    """
    Return EMR's message for a bootstrap action that failed on a node.

    Wittline/pyspark-on-aws-emr#4 and aws-samples/emr-bootstrap-actions#220 have the two about a primary. Those about
    core nodes count them, as `On 2 slave instances (including i-1 and i-2)` (mrjob); this one has the first alone. A
    cluster may survive a few of them; bootstrap actions that fail on one node mostly fail on its replacement, too.
    """
    number, name = report["action"], instance.ec2_id
    if report["cause"] == "download":
        who = f"Master instance ({name})" if instance.role == "MASTER" else f"1 slave instance (including {name})"
        return f"{who} failed attempting to download bootstrap action {number} file from S3"
    where = f"the master instance ({name})" if instance.role == "MASTER" else f"1 slave instance (including {name})"
    return f"On {where}, bootstrap action {number} returned a non-zero return code"
