"""
Holds every node against the contract, in the shells that users meet.

The nodes are asked from outside: what counts is what a shell prints, not what a file was meant to say.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cdk_rehearsal.errors import PromiseError
from deeplearning_contract.names import CONTRACT_VARIABLES, MASTER_HOST, MEMBERSHIP_FILE
from deeplearning_rehearsal.checks.results import NodeReport

if TYPE_CHECKING:
    from subprocess import CompletedProcess

SEED_LOOP = (
    'while read -u 10 host; do ssh -o "StrictHostKeyChecking no" $host hostname; done 10<$DEEPLEARNING_WORKERS_PATH'
)
"""The predecessor's own loop, to the letter."""

_CHECKED_AT_ONCE = 4
_PROBE_UNIT = "deeplearning-rehearsal-probe.service"
_PROBE_FILE = "/run/deeplearning-rehearsal-probe"
_PRINT = "printenv " + " ".join(CONTRACT_VARIABLES)


IN_SYSTEMD = "systemd unit"
"""Check that containers do not have."""


class Nodes(Protocol):
    """The part of the lab that the checks use."""

    def run(
        self,
        instance_id: str,
        argv: Sequence[str],
        *,
        user: str | None = None,
        login_shell: bool = False,
        timeout: float = 60,
    ) -> "CompletedProcess[str]":
        """Run a program in a node."""


@dataclass(frozen=True)
class Membership:
    """The membership that a node holds: generation and (host, instance id, address) of each, master first."""

    generation: int
    hosts: tuple[tuple[str, str, str], ...]

    @property
    def training(self) -> tuple[tuple[str, str, str], ...]:
        """Those that train, in rank order: a master that does not has no name of a rank."""
        return tuple(host for host in self.hosts if host[0] != MASTER_HOST)


def read_membership(nodes: Nodes, instance_id: str) -> Membership:
    """Read a node's membership file; raises PromiseError if there is none."""
    answer = nodes.run(instance_id, ["cat", MEMBERSHIP_FILE])
    if answer.returncode != 0:
        raise PromiseError(f"{instance_id} has no {MEMBERSHIP_FILE}: {answer.stderr.strip()}")
    document = json.loads(answer.stdout)
    hosts = tuple((m["host"], m["instance_id"], m["address"]) for m in document["members"])
    return Membership(document["generation"], hosts)


def check_nodes(
    nodes: Nodes,
    membership: Membership,
    login_user: str,
    report: Callable[[str, str], None],
    *,
    has_systemd: bool = True,
) -> tuple[NodeReport, ...]:
    """Check every node; `report` takes lane and text for each. Default: systemd is their first process."""
    master = membership.hosts[0][1]

    def check(rank: int) -> NodeReport:
        host, instance_id, address = membership.hosts[rank]
        contract, checks = _check_node(nodes, instance_id, login_user, has_systemd=has_systemd)
        over_ssh = _contract(
            nodes.run(master, ["ssh", "-oBatchMode=yes", host, _PRINT], user=login_user, login_shell=True)
        )
        checks["ssh host cmd"] = bool(contract) and over_ssh == contract
        checks["same membership"] = _has_same_membership(nodes, instance_id, membership)
        if rank == 0:
            checks |= _check_loops(nodes, master, membership, login_user)
        report(instance_id, f"{host} {'keeps the contract' if all(checks.values()) else 'BREAKS the contract'}")
        return NodeReport(host, "worker" if rank else "master", instance_id, address, contract, checks)

    with ThreadPoolExecutor(_CHECKED_AT_ONCE) as pool:
        return tuple(pool.map(check, range(len(membership.hosts))))


def _check_node(
    nodes: Nodes, instance_id: str, user: str, *, has_systemd: bool
) -> tuple[Mapping[str, str], dict[str, bool]]:
    contract = _contract(nodes.run(instance_id, ["bash", "-c", _PRINT], user=user, login_shell=True))
    others = {
        "non-login shell": nodes.run(instance_id, ["bash", "-ic", _PRINT], user=user),
        "sudo -E": nodes.run(instance_id, ["bash", "-c", f"sudo -E {_PRINT}"], user=user, login_shell=True),
    }
    if has_systemd:
        others[IN_SYSTEMD] = _run_in_unit(nodes, instance_id)
    checks = {"login shell": len(contract) == len(CONTRACT_VARIABLES)}
    checks |= {name: bool(contract) and _contract(answer) == contract for name, answer in others.items()}
    touch = 'probe=$(mktemp "$EFS_MOUNT/.rehearsal-XXXXXX") && rm "$probe"'
    checks["file system writable"] = (
        nodes.run(instance_id, ["bash", "-c", touch], user=user, login_shell=True).returncode == 0
    )
    return contract, checks


def _contract(answer: "CompletedProcess[str]") -> dict[str, str]:
    values = answer.stdout.splitlines()
    if answer.returncode != 0 or len(values) != len(CONTRACT_VARIABLES):
        return {}
    return dict(zip(CONTRACT_VARIABLES, values, strict=True))


def _run_in_unit(nodes: Nodes, instance_id: str) -> "CompletedProcess[str]":
    unit = f"[Service]\nType=oneshot\nExecStart=/bin/sh -c '{_PRINT} > {_PROBE_FILE}'\n"
    script = (
        f"cat > /etc/systemd/system/{_PROBE_UNIT} <<'UNIT'\n{unit}UNIT\n"
        f"systemctl daemon-reload && systemctl start {_PROBE_UNIT} && cat {_PROBE_FILE}"
    )
    return nodes.run(instance_id, ["bash", "-c", script])


def _has_same_membership(nodes: Nodes, instance_id: str, membership: Membership) -> bool:
    try:
        return read_membership(nodes, instance_id) == membership
    except PromiseError:
        return False


def _check_loops(nodes: Nodes, master: str, membership: Membership, user: str) -> dict[str, bool]:
    names = [host for host, _, _ in membership.training]
    own_names = [nodes.run(instance_id, ["hostname"]).stdout.strip() for _, instance_id, _ in membership.training]
    direct = nodes.run(master, ["bash", "-c", SEED_LOOP], user=user, login_shell=True, timeout=30 + 2 * len(names))
    through = ["ssh", "-oBatchMode=yes", MASTER_HOST, SEED_LOOP]
    remote = nodes.run(master, through, user=user, login_shell=True, timeout=30 + 2 * len(names))
    return {
        "hosts loop": direct.stdout.split() == own_names,
        "hosts loop over ssh": remote.stdout.split() == own_names,
    }
