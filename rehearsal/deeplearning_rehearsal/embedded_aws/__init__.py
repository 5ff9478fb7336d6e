"""The embedded AWS: moto in process, with what it lacks, driven by a synthesized cloud assembly."""

from deeplearning_rehearsal.embedded_aws.calls import Call, CallCounts
from deeplearning_rehearsal.embedded_aws.cloud import EmbeddedAws
from deeplearning_rehearsal.embedded_aws.cloud_options import CloudOptions
from deeplearning_rehearsal.embedded_aws.errors import UnsupportedError
from deeplearning_rehearsal.embedded_aws.function_runner import Invocation
from deeplearning_rehearsal.embedded_aws.launch_faults import LaunchFault
from deeplearning_rehearsal.embedded_aws.message_faults import MessageFaults
from deeplearning_rehearsal.embedded_aws.observation import Observation
from deeplearning_rehearsal.embedded_aws.scaling_pace import ScalingPace
from deeplearning_rehearsal.embedded_aws.stack_record import StackEvent, StackOutcome, StackResource
from deeplearning_rehearsal.errors import AssemblyError

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
