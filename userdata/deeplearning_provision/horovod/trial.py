"""Tries a Horovod that was just built: what it says of itself (`--check-build`) is not reliable, a reduction is."""

from pathlib import Path

from deeplearning_node.programs import ProgramError
from deeplearning_provision.horovod.plan import HorovodPlan
from deeplearning_provision.program_log import Transcript
from deeplearning_provision.steps import ProvisionFailure

TRIAL_SECONDS = 300
TRIALS = {
    "torch": """
import torch, horovod.torch as hvd
hvd.init()
assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [1.0, 1.0]
""",
    "tensorflow": """
import tensorflow, horovod.tensorflow as hvd
hvd.init()
assert hvd.allreduce(tensorflow.ones(2), op=hvd.Sum).numpy().tolist() == [1.0, 1.0]
""",
    "mxnet": """
import mxnet, horovod.mxnet as hvd
hvd.init()
assert hvd.allreduce(mxnet.nd.ones(2), average=False).asnumpy().tolist() == [1.0, 1.0]
""",
}
_WITH_NCCL = """
assert hvd.nccl_built(), "built without NCCL"
"""
# One rank, without MPI's daemons and without a GPU, which the master may not have.
_VARIABLES = {
    "PYTHONNOUSERSITE": "1",
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    "CUDA_VISIBLE_DEVICES": "",
}


def try_horovod(python: Path, plan: HorovodPlan, transcript: Transcript) -> None:
    """
    Reduce over one rank with every framework, with NCCL where GPUs are meant; ProvisionFailure when it does not work.
    """
    for module in plan.frameworks:
        try:
            trial = TRIALS[module] + (_WITH_NCCL if plan.is_cuda else "")
            transcript.run([str(python), "-c", trial], timeout_seconds=TRIAL_SECONDS, environment=_VARIABLES)
        except ProgramError as error:  # noqa: PERF203 - importing dwarfs it
            raise ProvisionFailure(
                f"Horovod was built for {module} {plan.frameworks[module]} and does not work with it",
                "choose another version of the framework, or leave horovod out",
                output=error.output,
            ) from error
