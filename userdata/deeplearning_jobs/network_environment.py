"""
What a job's environment says of the network, by instance type: what is set, what is left alone, and why.

The rules are those of AWS's EFA cheat sheet (awsome-distributed-training) for libfabric from 1.18 and aws-ofi-nccl from
1.7, which every current deep-learning image exceeds.
"""

from collections.abc import Mapping, Sequence

from deeplearning_jobs.launch_plan import Host, Reason

INTERFACE_VARIABLES = ("HOROVOD_GLOO_IFACE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Each host gives them the interface that it found itself."""
HUGE_PAGES = "FI_EFA_USE_HUGE_PAGE"
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


def explain_network(hosts: Sequence[Host], variables: Mapping[str, str]) -> list[Reason]:
    """
    Say what is set for the network of these hosts, and what is not.

    Args:
        hosts: Those that take part.
        variables: The user's, which always win.
    """
    reasons = [_explain_interfaces(hosts, variables)]
    if not hosts[0].gpu_count:
        return [*reasons, Reason("no NCCL and EFA settings", "these hosts have no GPUs; ranks speak TCP")]
    reasons += dict.fromkeys(map(_explain_cards, hosts))
    has_efa = any(host.efa_cards for host in hosts)
    left = {**LEFT_TO_EFA, **LEFT_TO_NCCL} if has_efa else LEFT_TO_NCCL
    reasons += [Reason(f"{name} {NOT_SET}", why) for name, why in left.items() if name not in variables]
    if has_efa and HUGE_PAGES not in variables:
        why = f"only where a data loader's fork fails for lack of memory: add --env {HUGE_PAGES}=0"
        reasons.append(Reason(f"{HUGE_PAGES} {NOT_SET}", why))
    reasons += [
        Reason(f"{name}={variables[name]}", f"you gave it with --env; AWS advises against it: {why}")
        for name, why in left.items()
        if name in variables
    ]
    if "NCCL_DEBUG" not in variables:
        why = "its log slows ranks and fills the file system; to look for a fault, add --env NCCL_DEBUG=INFO"
        reasons.append(Reason(f"NCCL_DEBUG {NOT_SET}", why))
    return reasons


def _explain_interfaces(hosts: Sequence[Host], variables: Mapping[str, str]) -> Reason:
    names = [name for name in INTERFACE_VARIABLES if name not in variables]
    if not names:
        return Reason("no interface settings", "you gave them all with --env")
    part = ", ".join(names)
    if len(hosts) == 1:
        return Reason(f"{part} = lo", "all ranks are on one host and meet on its loopback interface")
    found = ", ".join(dict.fromkeys(host.interface for host in hosts))
    why = (
        "each host sets them to the interface that carries its own address of the cluster, found when a rank starts; "
        "others, such as docker's, lead nowhere"
    )
    return Reason(f"{part} = {found}", why)


def _explain_cards(host: Host) -> Reason:
    cards = f"{host.network_cards} network card{'s' if host.network_cards > 1 else ''}"
    if not host.efa_cards:
        return Reason(
            f"{host.instance_type or 'this type'}: {cards}, no EFA", "NCCL speaks TCP; no EFA setting is of use"
        )
    return Reason(
        f"{host.instance_type}: {cards}, {host.efa_cards} with EFA",
        "NCCL's traffic takes the EFAs by aws-ofi-nccl, which the image brings; the interface above is only where "
        "ranks meet",
    )
