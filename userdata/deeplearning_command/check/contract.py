"""Whether this node's files, names, keys and shared file system keep the contract."""

import re
from collections.abc import Callable

from deeplearning_command.check.probe import Check, Probe, explain
from deeplearning_contract.names import (
    DISCOVER_HOSTS,
    HOSTFILE,
    MASTER_HOST,
    WORKER_ADDRESSES_FILE,
    WORKERS_FILE,
    NodeRole,
)
from deeplearning_node.node_facts import InstalledMembership, NodeFacts
from deeplearning_node.programs import ProgramError
from deeplearning_node.ssh_identity import KNOWN_HOSTS, known_hosts_lines

LOG_REMEDY = "read the agent's log on the node: it writes this"
HOST_SECONDS = 20
"""What the predecessor's loop may take for a host, one after the other."""
LISTED = 5
_LAX = {"no", "off", "false"}
_HOST_LINE = re.compile(r"(i-[0-9a-f]{8,17}):([1-9]\d*)")
_LOOP = "while read -u 10 host; do {act}; done 10<$DEEPLEARNING_WORKERS_PATH"
SSH_LOOP = _LOOP.format(act='ssh -o "StrictHostKeyChecking no" $host hostname')
"""The predecessor's own loop, to the letter."""
ECHO_LOOP = _LOOP.format(act="echo $host")


class FaultError(Exception):
    """A check failed; its text says how."""


def check_contract(probe: Probe, facts: NodeFacts, membership: InstalledMembership) -> list[Check]:
    """Look at everything but the variables; on a node whose membership is installed."""
    looks: dict[str, tuple[Callable[[], str], str]] = {
        "files agree": (lambda: _compare_files(probe, membership), LOG_REMEDY),
        "names resolve": (
            lambda: _resolve(probe, membership),
            "see that /etc/nsswitch.conf asks `files` first and nothing else in /etc/hosts has these names",
        ),
        "host keys": (
            lambda: _compare_host_keys(probe, membership),
            f"remove what disagrees from {KNOWN_HOSTS} or from the login user's ~/.ssh/config",
        ),
        "hosts loop": (
            lambda: _run_loop(probe, membership, is_master=facts.role == NodeRole.MASTER.value),
            "run `deeplearning hosts` on the master; bash must be the shell that runs the loop",
        ),
        "shared file system": (
            lambda: _write_shared(probe, facts.mount_point),
            f"see `mount | grep {facts.mount_point}` and the permissions of its root",
        ),
        "discover_hosts": (lambda: _discover(probe, membership), LOG_REMEDY),
    }
    return [_look(name, look, remedy) for name, (look, remedy) in looks.items()]


def _look(name: str, look: Callable[[], str], remedy: str) -> Check:
    try:
        return Check(name, "ok", look())
    except (OSError, ValueError, ProgramError, FaultError) as error:
        return Check(name, "fault", explain(error), remedy)


def _compare_files(probe: Probe, membership: InstalledMembership) -> str:
    members = membership.hosts
    expected = {
        WORKERS_FILE: [host for host, _ in members],
        WORKER_ADDRESSES_FILE: [member.address for _, member in members],
        HOSTFILE: [f"{host} slots={member.slots}" for host, member in members],
    }
    wrong = [path for path, lines in expected.items() if probe.read(path).splitlines() != lines]
    if wrong:
        raise FaultError(f"{', '.join(wrong)} must list the {len(members)} nodes of generation {membership.generation}")
    return f"workers, addresses and hostfile list the {len(members)} nodes of generation {membership.generation}"


def _resolve(probe: Probe, membership: InstalledMembership) -> str:
    expected = {host: member.address for host, member in membership.members}
    expected |= {member.instance_id: member.address for _, member in membership.members}
    expected[MASTER_HOST] = membership.members[0][1].address
    wrong = []
    for name, address in expected.items():
        try:
            found = probe.run(["getent", "ahostsv4", name]).split()
        except ProgramError:
            found = []
        if found[:1] != [address]:
            wrong.append(f"{name} is {found[0] if found else 'unknown'}, expected {address}")
    if wrong:
        raise FaultError(_list(wrong))
    return f"{len(expected)} names have their addresses"


def _compare_host_keys(probe: Probe, membership: InstalledMembership) -> str:
    """The keys that the members brought must be known, and the login user's settings must ask for them."""
    lines = probe.read(KNOWN_HOSTS).splitlines()
    wanted = known_hosts_lines(tuple(member for _, member in membership.members))
    missing = [line.partition(",")[0] for line in wanted if line not in lines]
    if missing:
        raise FaultError(f"{KNOWN_HOSTS} must hold the key of {_list(missing)}")
    settings = probe.run(["ssh", "-G", membership.members[0][0]])
    strict = [line.split()[1] for line in settings.splitlines() if line.startswith("stricthostkeychecking ")]
    if not strict or strict[0] in _LAX:
        raise FaultError(f"ssh must check host keys, its StrictHostKeyChecking is {strict[0] if strict else 'unknown'}")
    return f"the keys of {len(wanted)} nodes are known, and ssh checks them"


def _run_loop(probe: Probe, membership: InstalledMembership, *, is_master: bool) -> str:
    count = len(membership.hosts)
    loop = SSH_LOOP if is_master else ECHO_LOOP
    output = probe.run_login(f"{loop}\ntrue", 30 + HOST_SECONDS * count)
    lines = [line for line in output.splitlines() if not line.startswith("Warning: Permanently added")]
    if len(lines) != count:
        raise FaultError(f"the loop over {WORKERS_FILE} must give {count} lines, gave {len(lines)}: {_list(lines)}")
    if is_master:
        return f"`ssh $host hostname` gives {count} names"
    return f"it reads {count} hosts; only the master's key opens them"


def _write_shared(probe: Probe, mount_point: str) -> str:
    text = 'probe=$(mktemp "$1/.deeplearning-check.XXXXXX") && echo written >"$probe" && cat "$probe" && rm "$probe"'
    output = probe.run(["sh", "-c", text, "sh", str(probe.path(mount_point))])
    if output.split() != ["written"]:
        raise FaultError(f"a file on {mount_point} must hold what was written to it, got {output!r}")
    probe.run(["mountpoint", "-q", str(probe.path(mount_point))])
    return f"the login user writes to {mount_point}"


def _discover(probe: Probe, membership: InstalledMembership) -> str:
    lines = probe.run([str(probe.path(DISCOVER_HOSTS))]).splitlines()
    slots = {member.instance_id: member.slots for _, member in membership.hosts}
    for line in lines:
        found = _HOST_LINE.fullmatch(line)
        if found is None or slots.get(found[1]) != int(found[2]):
            raise FaultError(f"{DISCOVER_HOSTS} must print <instance id>:<slots> of members, got {line!r}")
    if not lines:
        raise FaultError(f"{DISCOVER_HOSTS} must print a line for each node that is ready, got none")
    return f"{len(lines)} of {len(slots)} nodes are ready"


def _list(items: list[str]) -> str:
    more = f" and {len(items) - LISTED} more" if len(items) > LISTED else ""
    return "; ".join(items[:LISTED]) + more
