"""
Topology of a job: the hosts that take part, the ranks of each, and each rank's share of its host.

Ranks are always hosts x slots, and the ranks of a host are neighbours. Rank 0 is on the master, or on the first worker
where the master does not train.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.membership import Member
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import HardwareSettings
from deeplearning_jobs.plan.launch_plan import Host, LaunchPlan, PlanError

UNKNOWN_HARDWARE = HardwareSettings("", 0, 1, 0)
_MOST_NAMED = 4


@dataclass(frozen=True)
class Layout:
    """Hosts that take part, that of rank 0 first, with `slots` ranks each; central launchers run on `master`."""

    hosts: tuple[Host, ...]
    slots: int
    master: Host
    drives_whole_host: bool

    @property
    def ranks(self) -> int:
        """All ranks of the job."""
        return len(self.hosts) * self.slots

    @property
    def has_gpus(self) -> bool:
        """True if ranks have GPUs; either all hosts have some, or none has."""
        return bool(self.hosts[0].gpu_count)


@dataclass(frozen=True)
class Place:
    """Place of a rank; numbers and indexes begin at 0, `gpus` is empty on a CPU host, `cards` are network cards."""

    rank: int
    host: str
    local_rank: int
    gpus: tuple[int, ...]
    cards: tuple[int, ...]


def list_hosts(
    members: Sequence[tuple[str, Member]], hardware: Mapping[str, HardwareSettings], interface: str
) -> list[Host]:
    """Return the members, the master first, as hosts of a plan, from this node's files and with its interface."""
    hosts = []
    for rank, (name, member) in enumerate(members):
        role = NodeRole.WORKER if rank else NodeRole.MASTER
        found = hardware.get(role.value, UNKNOWN_HARDWARE)
        hosts.append(
            Host(
                name=name,
                instance_id=member.instance_id,
                address=member.address,
                gpu_count=member.gpu_count,
                instance_type=found.instance_type,
                network_cards=found.network_cards,
                efa_cards=found.efa_cards,
                interface=interface,
                expected_gpu_count=found.gpu_count,
            )
        )
    return hosts


def choose_layout(hosts: Sequence[Host], job: JobDefinition, *, drives_whole_host: bool) -> Layout:
    """Choose the hosts that take part and the ranks of each; raises PlanError where the job does not fit."""
    if not hosts:
        raise PlanError("hosts must be at least one, got none; wait until the cluster has formed")
    training = tuple(host for host in hosts if host.trains)
    if not training:
        raise PlanError("workers must be at least one, got none: the master does not train; wait for one, or add one")
    if job.members is not None:
        _check_members(job.members, len(training))
        training = training[: job.members]
    slots = _choose_slots(training, job, 1 if drives_whole_host else None)
    if job.ranks is None:
        return Layout(training, slots, hosts[0], drives_whole_host)
    _check_ranks(job.ranks, len(training), slots)
    if job.ranks <= slots:
        return Layout(training[:1], job.ranks, hosts[0], drives_whole_host)
    return Layout(training[: job.ranks // slots], slots, hosts[0], drives_whole_host)


def _choose_slots(hosts: Sequence[Host], job: JobDefinition, default: int | None) -> int:
    slots, counts = job.gpus_per_member, [_check_count(host) for host in hosts]
    fewest, most = min(counts), max(counts)
    listed = _list_counts(hosts)
    if fewest == 0 and most:
        raise PlanError(
            f"gpu_count must be 0 on every host or on none, got {listed}; give the master and the workers one type"
        )
    if fewest != most and (slots is None or slots > fewest):
        given = "no --slots" if slots is None else f"--slots {slots}"
        raise PlanError(
            f"gpu_count must be equal on every host, got {listed} and {given}; add --slots {fewest}, "
            "which every host has, or replace the smaller hosts"
        )
    if slots is not None:
        if most and slots > fewest:
            raise PlanError(
                f"--slots must not exceed the GPUs of a host, got {slots} > {fewest}; leave it out for {fewest}"
            )
        return slots
    return default or max(1, fewest)


def _check_count(host: Host) -> int:
    """Return a host's GPUs; PlanError if they are unknown, or the type has some and the driver reports none."""
    if host.gpu_count is None or host.gpu_count < 0:
        raise PlanError(
            f"gpu_count of {host.name} must be known, got none: its GPUs could not be counted; "
            "see `deeplearning health`"
        )
    if host.gpu_count == 0 and host.expected_gpu_count > 0:
        raise PlanError(
            f"gpu_count of {host.name} must be {host.expected_gpu_count}, which {host.instance_type} has, got 0; "
            "its NVIDIA driver reports none; run `nvidia-smi` there"
        )
    return host.gpu_count


def _check_members(members: int, host_count: int) -> None:
    if members > host_count:
        raise PlanError(
            f"--members must be from 1 to {host_count}, the hosts that train, got {members}; leave it out for all"
        )


def _check_ranks(ranks: int, host_count: int, slots: int) -> None:
    most = host_count * slots
    if ranks > most:
        raise PlanError(
            f"--np must not exceed {host_count} hosts x {slots} slots = {most}, got {ranks}; leave it out for {most}"
        )
    if ranks > slots and ranks % slots:
        below = ranks // slots * slots
        raise PlanError(
            f"--np must be at most {slots}, the slots of a host, or a multiple of it, got {ranks}; "
            f"the nearest are {below} and {below + slots}"
        )


def _list_counts(hosts: Sequence[Host]) -> str:
    """Return the first host of each count."""
    first: dict[int | None, str] = {}
    for host in hosts:
        first.setdefault(host.gpu_count, host.name)
    named = [f"{count} on {name}" for count, name in list(first.items())[:_MOST_NAMED]]
    return ", ".join(named) + (", …" if len(first) > _MOST_NAMED else "")


def share(count: int, slots: int, local_rank: int) -> tuple[int, ...]:
    """
    Return a rank's share of `count` devices of its host: consecutive ones, and equally many for each rank.

    With fewer devices than ranks, neighbouring ranks share one.
    """
    if count < slots:
        return (local_rank * count // slots,) if count else ()
    each = count // slots
    return tuple(range(local_rank * each, (local_rank + 1) * each))


def choose_gpus(host: Host, slots: int, local_rank: int, *, drives_whole_host: bool) -> tuple[int, ...]:
    """Return a rank's GPUs: an even share where one rank drives several, else the GPU of its local rank."""
    count = host.gpu_count or 0
    if drives_whole_host:
        return share(count, slots, local_rank)
    return (local_rank,) if count else ()


def list_places(plan: LaunchPlan) -> list[Place]:
    """
    Return the place of each rank, in order.

    The network cards are an even division of the cards that support EFA, or else of all. NCCL chooses by distance on
    the PCIe bus, which this division follows on types whose cards and GPUs share switches.
    """
    places = []
    for index, host in enumerate(plan.hosts):
        for local_rank in range(plan.slots):
            gpus = choose_gpus(host, plan.slots, local_rank, drives_whole_host=plan.drives_whole_host)
            cards = _choose_cards(host, gpus, plan.slots, local_rank)
            places.append(Place(index * plan.slots + local_rank, host.name, local_rank, gpus, cards))
    return places


def _choose_cards(host: Host, gpus: tuple[int, ...], slots: int, local_rank: int) -> tuple[int, ...]:
    usable = host.efa_cards or host.network_cards
    skipped = host.network_cards - usable  # A card without EFA is the first one.
    shares = [share(usable, host.gpu_count or 0, gpu) for gpu in gpus] or [share(usable, slots, local_rank)]
    return tuple(sorted({card + skipped for cards in shares for card in cards}))
