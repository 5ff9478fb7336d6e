"""
Network settings of a job by instance type, with a reason for each, set or left to the libraries.

The rules are those of AWS's EFA cheat sheet (awsome-distributed-training) for libfabric from 1.18 and aws-ofi-nccl from
1.7; every current deep-learning image has newer ones.
"""

from collections.abc import Mapping, Sequence

from deeplearning_jobs.plan.launch_plan import Host, PartReason

INTERFACE_VARIABLES = ("HOROVOD_GLOO_IFACE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Variables that each host sets to its own interface."""
HUGE_PAGES = "FI_EFA_USE_HUGE_PAGE"
HUGE_PAGES_WHY = f"only where a data loader's fork fails for lack of memory: add --env {HUGE_PAGES}=0"
DEBUG_WHY = "its log slows ranks and fills the file system; to find a fault, add --env NCCL_DEBUG=INFO"
LEFT_TO_EFA = {
    "FI_PROVIDER": "libfabric finds the EFA by itself",
    "FI_EFA_USE_DEVICE_RDMA": "libfabric uses GPUDirect RDMA by itself where the card has it",
    "NCCL_PROTO": "aws-ofi-nccl chooses the protocol for EFA by itself",
    "RDMAV_FORK_SAFE": "libfabric makes fork safe by itself",
}
LEFT_TO_NCCL = {
    "NCCL_MIN_NCHANNELS": "NCCL chooses the channels by the topology",
    "NCCL_BUFFSIZE": "NCCL's own size fits EFA",
}
NOT_SET = "not set"


def explain_network(hosts: Sequence[Host], variables: Mapping[str, str], *, is_on_one_host: bool) -> list[PartReason]:
    """Return the reasons for the network settings of the hosts; the user's variables override them."""
    reasons = [_explain_interfaces(hosts, variables, is_on_one_host=is_on_one_host)]
    reasons += [
        PartReason(f"{name}={variables[name]}", f"from --env; AWS advises against it: {why}")
        for name, why in {**LEFT_TO_EFA, **LEFT_TO_NCCL}.items()
        if name in variables
    ]
    if not hosts[0].gpu_count:
        return [*reasons, PartReason("no NCCL and EFA settings", "these hosts have no GPUs; ranks use TCP")]
    if is_on_one_host:
        why = "NCCL reaches the ranks of one host without a network card"
        return [*reasons, PartReason("no EFA settings", why)]
    return [*reasons, *dict.fromkeys(map(_explain_cards, hosts)), *_explain_absence(hosts, variables)]


def _explain_absence(hosts: Sequence[Host], variables: Mapping[str, str]) -> list[PartReason]:
    has_efa = any(host.efa_cards for host in hosts)
    left = dict(LEFT_TO_NCCL)
    if has_efa:
        left |= {**LEFT_TO_EFA, HUGE_PAGES: HUGE_PAGES_WHY}
    left["NCCL_DEBUG"] = DEBUG_WHY
    return [PartReason(f"{name} {NOT_SET}", why) for name, why in left.items() if name not in variables]


def _explain_interfaces(hosts: Sequence[Host], variables: Mapping[str, str], *, is_on_one_host: bool) -> PartReason:
    names = [name for name in INTERFACE_VARIABLES if name not in variables]
    if not names:
        return PartReason("no interface settings", "all from --env")
    part = ", ".join(names)
    if is_on_one_host:
        return PartReason(f"{part} = lo", "all ranks are on one host and meet on its loopback interface")
    found = ", ".join(dict.fromkeys(host.interface for host in hosts))
    why = (
        "each host sets them to the interface that carries its own address in the cluster, found when a rank starts; "
        "others, such as docker's, reach no host"
    )
    return PartReason(f"{part} = {found}", why)


def _explain_cards(host: Host) -> PartReason:
    cards = f"{host.network_cards} network card{'s' if host.network_cards > 1 else ''}"
    if not host.efa_cards:
        return PartReason(
            f"{host.instance_type or 'this type'}: {cards}, no EFA",
            "NCCL uses TCP (provider tcp); no EFA setting has an effect",
        )
    head = f"{host.instance_type}: {cards}, {host.efa_cards} with EFA"
    if host.efa_fault:
        why = f"NCCL uses TCP (provider tcp) nevertheless, at a fraction of the speed: {host.efa_fault}"
        return PartReason(f"{host.name}, {head}", why)
    return PartReason(
        head,
        "NCCL uses the EFAs (provider efa) with aws-ofi-nccl, from the image or the agent; the "
        "interface above is only where ranks meet",
    )
