"""The embedded AWS: moto in process, with what it lacks, driven by a synthesized cloud assembly."""

from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.embedded_aws.cloud_options import CloudOptions, ScalingPace
from cdk_rehearsal.embedded_aws.cloudformation.stack_record import StackEvent, StackOutcome, StackResource
from cdk_rehearsal.embedded_aws.ec2.launch_faults import LaunchFault
from cdk_rehearsal.embedded_aws.functions.runner import Invocation
from cdk_rehearsal.embedded_aws.messaging.message_faults import MessageFaults
from cdk_rehearsal.embedded_aws.observation import Observation
from cdk_rehearsal.embedded_aws.server.call_log import Call, CallCounts
from cdk_rehearsal.errors import AssemblyError, UnsupportedError

__all__ = [
    "AssemblyError",
    "Call",
    "CallCounts",
    "CloudOptions",
    "EmbeddedAws",
    "Invocation",
    "LaunchFault",
    "MessageFaults",
    "Observation",
    "ScalingPace",
    "StackEvent",
    "StackOutcome",
    "StackResource",
    "UnsupportedError",
]
