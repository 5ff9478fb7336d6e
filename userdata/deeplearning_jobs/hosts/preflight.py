"""Checks of all hosts before a job starts."""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from deeplearning_contract.names import MASTER_HOST
from deeplearning_jobs.plan.launch_plan import Host
from deeplearning_node.provision_status import Step

MOST_NAMED = 4


@dataclass(frozen=True)
class HostFacts:
    """Facts of one host, as it reports them."""

    instance_id: str
    # GPUs that its driver reports, or with which it joined while the driver is late; None after a failure
    gpu_count: int | None
    gpu_detail: str  # Error of the driver; empty without one
    interface: str  # The network interface that carries the host's address; empty when none does
    address: str  # Its address in the cluster
    generation: int  # Of the installed membership; 0 for none
    instance_type: str  # Empty when unknown
    expected_gpu_count: int  # GPUs of the type
    network_cards: int
    efa_cards: int  # Network cards that take an EFA
    ports: tuple[int, ...]  # Free ports
    steps: Mapping[str, Step]  # Steps of the provisioning by name
    environment: str  # Digest of the installed environment; empty for none
    jobs: tuple[str, ...]  # Runs with processes on the host, `<job>/<k>`
    missing: Mapping[str, str]  # Paths and programs that the host lacks, of those required -> why
    efa_fault: str = ""  # Why traffic goes by TCP although the host has EFA; empty where it does not

    def to_line(self) -> str:
        """Return the facts as one line of JSON."""
        return json.dumps(asdict(self)) + "\n"


@dataclass(frozen=True)
class Preflight:
    """Results of the hosts' probes."""

    generation: int  # Of the membership that the master has installed
    expected: Mapping[str, str]  # Host name -> the instance that must respond; in the membership's order
    answers: Mapping[str, HostFacts]  # Host name -> its facts
    silent: Mapping[str, str]  # Host name -> why it did not respond

    def plan_hosts(self) -> list[Host]:
        """Return the hosts that responded, for a plan, the master first."""
        return [
            Host(
                name=name,
                instance_id=answer.instance_id,
                address=answer.address,
                gpu_count=answer.gpu_count,
                instance_type=answer.instance_type,
                network_cards=answer.network_cards,
                efa_cards=answer.efa_cards,
                interface=answer.interface,
                expected_gpu_count=answer.expected_gpu_count,
                efa_fault=answer.efa_fault,
            )
            for name in self.expected
            if (answer := self.answers.get(name)) is not None
        ]

    def find_faults(self, *, is_elastic: bool = False) -> list[str]:
        """Return what prevents the job, unfinished provisioning aside; an elastic job needs only the master's facts."""
        master = next(iter(self.expected), "")
        faults = []
        for host, instance_id in self.expected.items():
            answer = self.answers.get(host)
            if answer is None:
                if host == master or not is_elastic:
                    cause = self.silent.get(host, "no response")
                    faults.append(f"{host} ({instance_id}) does not respond: {cause}; see `deeplearning health`")
                continue
            faults += [f"{host}: {fault}" for fault in self._judge(answer, instance_id)]
            # A head node runs the workers' image: its driver finds no GPU.
            if answer.gpu_count is None and host != MASTER_HOST:
                faults.append(
                    f"{host}: its NVIDIA driver does not respond: {answer.gpu_detail}; see `deeplearning health`"
                )
        return [*faults, *self._find_mixture(), *self._find_jobs(), *self._find_missing()]

    def find_unready(self, leave_out: Container[str] = ()) -> dict[str, dict[str, Step]]:
        """Return the unfinished steps of the provisioning: step -> host -> its status there."""
        unready: dict[str, dict[str, Step]] = {}
        for host, answer in self.answers.items():
            for name, step in answer.steps.items():
                if step.state != "done" and name not in leave_out:
                    unready.setdefault(name, {})[host] = step
        return unready

    def _judge(self, answer: HostFacts, instance_id: str) -> Iterable[str]:
        if answer.instance_id != instance_id:
            yield f"must be {instance_id}, got {answer.instance_id}; wait until its agent has joined"
        elif answer.generation != self.generation:
            yield (
                f"must have membership generation {self.generation}, got {answer.generation}; "
                f"wait a minute, then read the agent's log there: deeplearning logs --agent"
            )
        if not answer.interface:
            yield f"has no network interface with the address {answer.address}; see `ip address` there"

    def _find_mixture(self) -> Iterable[str]:
        """Yield a fault for a mixture of TCP and EFA, between which NCCL cannot connect."""
        faults = {host: answer.efa_fault for host, answer in self.answers.items() if answer.efa_cards}
        slow = [host for host, fault in faults.items() if fault]
        if slow and len(slow) < len(faults):
            yield (
                f"all hosts must use EFA or none, got TCP on {join_hosts(slow)}: {faults[slow[0]]}; "
                "see `deeplearning health`, or terminate these instances, which their group replaces"
            )

    def _find_jobs(self) -> Iterable[str]:
        jobs: dict[str, list[str]] = {}
        for host, answer in self.answers.items():
            for job in answer.jobs:
                jobs.setdefault(job, []).append(host)
        for job, hosts in jobs.items():
            yield f"job {job} has processes on {join_hosts(hosts)}; end it first: deeplearning stop {job}"

    def _find_missing(self) -> Iterable[str]:
        missing: dict[tuple[str, str], list[str]] = {}
        for host, answer in self.answers.items():
            for what, why in answer.missing.items():
                missing.setdefault((what, why), []).append(host)
        for (what, why), hosts in missing.items():
            yield f"{what} {why} on {join_hosts(hosts)}"


def describe_tcp(hosts: Sequence[Host]) -> list[str]:
    """Return a line for each reason for which hosts with EFA use TCP."""
    faults: dict[str, list[str]] = {}
    for host in hosts if len(hosts) > 1 else ():
        if host.efa_fault:
            faults.setdefault(host.efa_fault, []).append(host.name)
    return [
        f"the ranks of {join_hosts(names)} use TCP instead of EFA, at a fraction of the speed: {fault}; "
        "see `deeplearning health`"
        for fault, names in faults.items()
    ]


def describe_unready(unready: Mapping[str, Mapping[str, Step]]) -> list[str]:
    """Return a line a step: its status on the host that is furthest behind, and the number of other hosts."""
    lines = []
    for name, hosts in unready.items():
        host, step = min(hosts.items(), key=lambda item: (item[1].state != "failed", _share(item[1])))
        whole = f" of {step.total} {step.unit}" if step.unit != "%" else ""
        progress = f" {100 * _share(step):.0f} %{whole}".rstrip() if step.total else ""
        detail = f": {step.detail}" if step.detail else ""
        others = f" and {len(hosts) - 1} more" if len(hosts) > 1 else ""
        lines.append(f"{name} is {step.state}{progress} on {host}{others}{detail}")
    return lines


def has_failed(unready: Mapping[str, Mapping[str, Step]]) -> bool:
    """Return whether a step has failed for good."""
    return any(step.state == "failed" and step.final for hosts in unready.values() for step in hosts.values())


def join_hosts(hosts: Sequence[str]) -> str:
    """Name hosts in one line of limited length."""
    return ", ".join(hosts) if len(hosts) <= MOST_NAMED else f"{', '.join(hosts[:3])} and {len(hosts) - 3} more"


def _share(step: Step) -> float:
    return step.done / step.total if step.total else 0.0
