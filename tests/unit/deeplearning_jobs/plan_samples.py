"""
The jobs whose plans are kept in plans/, and what their tests build them from.

The first sample of a launcher is kept as the page `<name>.txt`, each other as its difference from it, `<name>.diff`.
Write the files anew, and read what changed, with `.venv/bin/python -m tests.unit.deeplearning_jobs.plan_samples`.
"""

import difflib
from dataclasses import dataclass, field
from pathlib import Path

from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.membership import Member, named_members
from deeplearning_contract.setting_parts import HardwareSettings
from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.launch_plan import JobRequest
from deeplearning_jobs.plan.page import render_plan
from deeplearning_jobs.plan.topology import list_hosts
from deeplearning_jobs.planner import make_plan

PLANS = Path(__file__).parent / "plans"
HARDWARE = {
    entry.instance_type: entry
    for entry in (
        HardwareSettings("p3dn.24xlarge", 8, 1, 1),
        HardwareSettings("p4d.24xlarge", 8, 4, 4),
        HardwareSettings("p5.48xlarge", 8, 32, 32),
        HardwareSettings("p6-b300.48xlarge", 8, 17, 16),
        HardwareSettings("g5.xlarge", 1, 1, 0),
        HardwareSettings("c7i.4xlarge", 0, 1, 0),
    )
}
"""GPUs, network cards and EFAs, as AWS describes the types."""
INTERFACES = {"p4d.24xlarge": "ens32", "p5.48xlarge": "ens32"}
ENVIRONMENT = "/opt/deeplearning/environments/current/bin"


def make_hosts(instance_type="c7i.4xlarge", count=2, gpu_counts=None):
    """Return hosts of one type, the master first; their counted GPUs may differ from what the type has."""
    hardware = HARDWARE[instance_type]
    counts = gpu_counts or [hardware.gpu_count] * count
    members = tuple(
        Member(f"i-{index:017x}", f"10.0.{index // 200}.{10 + index % 200}", gpus, "ssh-ed25519 AAAAAAAAAAAAAAAAAAAA")
        for index, gpus in enumerate(counts)
    )
    both = {"master": hardware, "worker": hardware}
    return list_hosts(named_members(members), both, INTERFACES.get(instance_type, "ens5"))


def make_request(launcher="horovod", hosts=(), **changes):
    """Return a request with a path, an environment and as many ports as any launcher takes."""
    program = ("python", "train.py", "--epochs", "3")
    values = {
        "folder": "/mnt/efs/jobs/digits/runs/3",
        "ports": {host.name: tuple(range(20000 + 100 * at, 20020 + 100 * at)) for at, host in enumerate(hosts)},
        "python": ENVIRONMENT,
        "directory": "/mnt/efs/code",
    }
    values |= {name: changes.pop(name) for name in list(changes) if name in values}
    definition = JobDefinition(**{"name": "digits", "program": program, "launcher": launcher, **changes})
    return JobRequest(definition, **values)


@dataclass(frozen=True)
class Sample:
    """One job whose plan is kept."""

    launcher: str
    instance_type: str
    host_count: int = 2
    changes: dict = field(default_factory=dict)

    def render(self):
        """Return the page as the program makes it now."""
        hosts = make_hosts(self.instance_type, self.host_count)
        return render_plan(make_plan(hosts, make_request(self.launcher, hosts, **self.changes)))


SAMPLES = {
    "horovod-p3dn.24xlarge": Sample("horovod", "p3dn.24xlarge"),
    "horovod-p4d.24xlarge": Sample("horovod", "p4d.24xlarge"),
    "horovod-p5.48xlarge": Sample("horovod", "p5.48xlarge"),
    "horovod-g5.xlarge": Sample("horovod", "g5.xlarge"),
    "horovod-c7i.4xlarge": Sample("horovod", "c7i.4xlarge"),
    "horovod-one-host": Sample("horovod", "p4d.24xlarge", 1),
    "torchrun-p5.48xlarge": Sample("torchrun", "p5.48xlarge"),
    "torchrun-elastic": Sample("torchrun", "g5.xlarge", changes={"elastic": True}),
    "torchrun-container": Sample("torchrun", "p5.48xlarge", changes={"container": "nvcr.io/nvidia/pytorch:26.10-py3"}),
    "mxnet-g5.xlarge": Sample("mxnet", "g5.xlarge"),
    "tf-ps-c7i.4xlarge": Sample("tf-ps", "c7i.4xlarge"),
}
_SHOWN = {sample.launcher for sample in SAMPLES.values()}
SAMPLES |= {f"{name}-p4d.24xlarge": Sample(name, "p4d.24xlarge") for name in LAUNCHERS if name not in _SHOWN}
"""A launcher without a sample of its own is shown on a type with several GPUs and network cards."""


FIRST = {sample.launcher: name for name, sample in reversed(SAMPLES.items())}
"""Launcher -> the sample that is kept as a page."""


def keep(name):
    """Return file and text of a plan, as the program makes it now."""
    first = FIRST[SAMPLES[name].launcher]
    if name == first:
        return PLANS / f"{name}.txt", SAMPLES[name].render()
    pages = [SAMPLES[each].render().splitlines() for each in (first, name)]
    difference = difflib.unified_diff(*pages, first, name, n=0, lineterm="")
    return PLANS / f"{name}.diff", "\n".join(difference) + "\n"


def main():
    """Write all plans anew."""
    for path in PLANS.iterdir():
        path.unlink()
    for path, text in map(keep, SAMPLES):
        path.write_text(text)


if __name__ == "__main__":
    main()
