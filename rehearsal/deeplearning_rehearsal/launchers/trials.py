"""Every launcher with its example, through `deeplearning run` and with the predecessors' own command."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Way:
    """
    One way to start a job.

    Attributes:
        kind: `run`: through `deeplearning run`; `seed`: with the command of the predecessors' own instructions;
            `look`: no job, but a look at what one left, which must end with 0.
        command: For bash, in the folder of the examples on the shared file system, in a login shell on the master.
    """

    kind: Literal["run", "seed", "look"]
    command: str


@dataclass(frozen=True)
class Trial:
    """
    A launcher of `deeplearning run`, and the ways to start it: through that, and the predecessors' where they had one.
    """

    launcher: str
    ways: tuple[Way, ...]


ENVIRONMENT_PATH = "PATH=/opt/deeplearning/environments/current/bin:$PATH"
"""Chooses the environment for a command that knows nothing of it."""

_HOSTFILE = "/opt/deeplearning/hostfile"
_SLOTS = f"$(awk -F slots= '{{ n += $2 }} END {{ print n }}' {_HOSTFILE})"

BARE_HOROVODRUN = f"{ENVIRONMENT_PATH} horovodrun --gloo -np 2 --hostfile {_HOSTFILE} --network-interfaces eth0 python3"
"""The same without this library; eth0 is the interface of the lab."""

_MPIRUN = (
    f"mpirun -np {_SLOTS} --hostfile {_HOSTFILE} -mca plm_rsh_no_tree_spawn 1 -bind-to none -map-by slot "
    "-mca pml ob1 -mca btl ^openib -mca btl_tcp_if_include eth0 -mca oob_tcp_if_include eth0 "
    "-x PATH -x EFS_MOUNT -x DEEPLEARNING_WORKERS_COUNT python3"
)

_LAUNCH_PY = (
    "mxnet/launch.py -n $DEEPLEARNING_WORKERS_COUNT -H $DEEPLEARNING_WORKERS_PATH "
    "python train_mxnet.py --data_dir $EFS_MOUNT/cifar10_data --network mlp --kv-store dist_device_sync "
    "--gpus $(seq -s , 0 1 $(($DEEPLEARNING_WORKER_GPU_COUNT - 1)))"
)
"""As the predecessors have it, with their CIFAR-10 where it is; their network of 50 layers takes a GPU."""

_SCRIPTS = "$EFS_MOUNT/rehearsal/tensorflow"
_GENERATE = (
    "python3 tensorflow/generate_trainer.py --workers_file_path $DEEPLEARNING_WORKERS_PATH "
    "--worker_count $DEEPLEARNING_WORKERS_COUNT --worker_gpu_count $DEEPLEARNING_WORKER_GPU_COUNT "
    f"--trainer_script_dir {_SCRIPTS} --training_script $EFS_MOUNT/rehearsal/train_parameter_server.py "
    f"--batch_size 128 --data_dir=$EFS_MOUNT/cifar10_data --train_dir=$EFS_MOUNT/cifar10_train "
    f"--log_dir {_SCRIPTS}/logs --max_steps 600"
)
_SEED_LOOP = (
    f'while read -u 10 host; do ssh -o "StrictHostKeyChecking no" $host "bash {_SCRIPTS}/$host.sh" ; '
    "done 10<$DEEPLEARNING_WORKERS_PATH"
)
_READ_LOGS = f"until grep -h '\"accuracy\"' {_SCRIPTS}/logs/*; do sleep 0.5; done"
"""The loop only starts the job; the predecessors followed it in its logs."""

_STOP_LOOP = _SEED_LOOP.replace("$host.sh", "$host.stop.sh")
"""In place of the predecessors' `pkill -f python` on every host: ends this job's processes and no others."""

_SEED_PARAMETER_SERVERS = f"{ENVIRONMENT_PATH}; {_GENERATE} && {_SEED_LOOP}; {_READ_LOGS}; {_STOP_LOOP}"


_EVALUATE = (
    f"{ENVIRONMENT_PATH} python3 evaluate_cifar10.py --data_dir=$EFS_MOUNT/cifar10_data "
    "--eval_dir=$EFS_MOUNT/cifar10_eval --checkpoint_dir=$EFS_MOUNT/cifar10_train | "
    "python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)[\"accuracy\"] < 0.9)'"
)
"""The predecessors' evaluation of what their own way trained."""

_SUMMARIES = "http://deeplearning-master:6006/data/plugin/scalars/tags"
_TENSORBOARD = (
    "bash tensorboard.sh $EFS_MOUNT/cifar10_train & trap 'kill $!' EXIT; "
    f"until curl --silent {_SUMMARIES} | grep accuracy; do sleep 0.5; done"
)
"""TensorBoard as the predecessors start it, and what a browser would ask it for."""


def run_command(launcher: str, program: str, *, name: str = "", arguments: str = "") -> str:
    """
    Return the command line of `deeplearning run` for a program of the examples; a job has the launcher's name by
    default.
    """
    line = f"deeplearning run --launcher {launcher} --name {name or launcher} -- python3 {program} {arguments}"
    return line.rstrip()


def _make(launcher: str, program: str, *seeds: str, looks: Sequence[str] = ()) -> Trial:
    seen = (*(Way("seed", seed) for seed in seeds), *(Way("look", look) for look in looks))
    return Trial(launcher, (Way("run", run_command(launcher, program)), *seen))


TRIALS = (
    _make("horovod", "train_digits.py", "bash run_horovod.sh train_digits.py"),
    _make("mpi", "train_digits.py", f"{ENVIRONMENT_PATH} {_MPIRUN} train_digits.py"),
    _make("torchrun", "train_torchrun.py"),
)
"""Of the environment that has PyTorch and Horovod, on an image with MPI."""

_OTHER_FRAMEWORKS = (
    _make(
        "tf-ps",
        "train_parameter_server.py",
        _SEED_PARAMETER_SERVERS,
        looks=(_EVALUATE, _TENSORBOARD),
    ),
    _make("tf-multiworker", "train_parameter_server.py"),
    _make("mxnet", "train_mxnet.py", f"{ENVIRONMENT_PATH}; {_LAUNCH_PY}"),
)

_MASK_RCNN = "python3 mask_rcnn/job.py --schedule 1x --images 64"
_CHECKPOINTS = "$EFS_MOUNT/jobs/mask-rcnn/checkpoints"
_GOES_ON = (
    f"rm {_CHECKPOINTS}/from-step-0/model-384.* && {_MASK_RCNN} | "
    f'grep -F -e "--load {_CHECKPOINTS}/from-step-0/model-352" && test -s {_CHECKPOINTS}/from-step-352/model-384.index'
)
_IS_DONE = f'{_MASK_RCNN} | grep -F "all 12 epochs are complete"'
_NAMES_DATA = f'{_MASK_RCNN} --fresh --data "$EFS_MOUNT" 2>&1 | grep -F "s3://BUCKET/PREFIX"'
"""The job goes on from the checkpoint that is left, does nothing more at its end, and names data that is not there."""

EXTRA_TRIALS = (
    *_OTHER_FRAMEWORKS,
    Trial("keras", (Way("run", run_command("horovod", "train_keras.py", name="keras")),)),
    Trial("mask-rcnn", (Way("seed", _MASK_RCNN), *(Way("look", look) for look in (_GOES_ON, _IS_DONE, _NAMES_DATA)))),
)
"""Those that need an environment or data of their own."""


_KNOWN = {trial.launcher: trial for trial in (*TRIALS, *EXTRA_TRIALS)}
TRIAL_NAMES = tuple(_KNOWN)


def choose_trials(names: Sequence[str]) -> tuple[Trial, ...]:
    """Return the trials of these names; all but the extra ones for none."""
    return tuple(_KNOWN[name] for name in names) or TRIALS
