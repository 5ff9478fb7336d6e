"""Checks of this node against the contract: variables, files, names, keys and the shared file system."""

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from deeplearning_command.context import Context
from deeplearning_command.remote.nodes import Remote
from deeplearning_contract.membership import Member, worker_gpu_count
from deeplearning_contract.names import (
    CONTRACT_VARIABLES,
    DISCOVER_HOSTS,
    ENVIRONMENT_FILE,
    HOSTFILE,
    MASTER_HOST,
    WORKER_ADDRESSES_FILE,
    WORKERS_FILE,
    NodeRole,
)
from deeplearning_node.contract_variables import list_variables
from deeplearning_node.health.findings import clean, last_line
from deeplearning_node.node_facts import InstalledMembership
from deeplearning_node.programs import ProgramError
from deeplearning_node.ssh import KNOWN_HOSTS, known_hosts_lines

PROGRAM_SECONDS = 60
SSH_SECONDS = 30
REMEDY = "read the agent's log on the node, and check that no later line in the shell's files changes the variables"
LOG_REMEDY = "read the agent's log on the node, which writes this"
HOST_SECONDS = 20
"""Time limit of the predecessor's loop for each host."""
MOST_LISTED = 5
_LAX = {"no", "off", "false"}
_HOST_LINE = re.compile(r"(i-[0-9a-f]{8,17}):([1-9]\d*)")
_LOOP = "while read -u 10 host; do {act}; done 10<$DEEPLEARNING_WORKERS_PATH"
SSH_LOOP = _LOOP.format(act='ssh -o "StrictHostKeyChecking no" $host hostname')
"""Loop of the predecessor, unchanged."""
ECHO_LOOP = _LOOP.format(act="echo $host")
MPIRUN_ABSENT, NO_MPIRUN = "no-mpirun-here", "mpirun is not installed"
_NAMES = "|".join(CONTRACT_VARIABLES)
PRINT = f"printenv | grep -E '^({_NAMES})=' || true"
_VARIABLE = re.compile(rf"^({_NAMES})=(.*)$", re.MULTILINE)


class FaultError(Exception):
    """Violation of the contract; the message is the fault."""


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str
    # `absent` for an optional part, or one that cannot be tested here
    state: Literal["ok", "fault", "absent"]
    detail: str  # In one line
    remedy: str = ""  # Empty when no action is needed


def list_expected(membership: InstalledMembership, own: Member, mount_point: str) -> dict[str, str]:
    """Return the expected variables on one node of a cluster."""
    members = tuple(member for _, member in membership.members)
    return list_variables(mount_point, len(membership.hosts), worker_gpu_count(members, own))


def compare(expected: Mapping[str, str], output: str) -> str:
    """Return the differences between the expected variables and the printed ones; empty for none."""
    found = dict(_VARIABLE.findall(output.replace("\r", "")))
    wrong = [
        f"{name} is {found.get(name, 'unset')}, expected {value}"
        for name, value in expected.items()
        if found.get(name) != value
    ]
    return "; ".join(wrong)


def check_environment(context: Context, expected: Mapping[str, str]) -> list[Check]:
    """Check the variables in every environment in which this node starts programs."""
    privilege = [] if context.is_root else ["sudo", "-n"]
    ways: dict[str, Callable[[], str]] = {
        "environment file": lambda: context.path(ENVIRONMENT_FILE).read_text(encoding="utf-8"),
        "login shell": lambda: run_login(context, PRINT),
        "interactive shell": lambda: run_clean(context, ["bash", "-i", "-c", PRINT]),
        "sudo -E": lambda: run_login(context, f"sudo -n -E sh -c {shlex.quote(PRINT)}"),
        "systemd unit": lambda: context.programs.run([*privilege, "sh", "-c", _unit_text(context)], timeout_seconds=60),
        "mpirun -x": lambda: run_login(context, _mpirun_text()),
    }
    return [_run_check(name, partial(_compare_way, read, expected), REMEDY) for name, read in ways.items()]


def check_ssh(remote: Remote) -> Check:
    """Check the variables in `ssh host cmd` to every host, with the host's own GPU count."""
    name = "ssh host cmd"
    results = remote.run_all(remote.hosts, PRINT, seconds=SSH_SECONDS)
    wrong = []
    for result, (host, member) in zip(results, remote.membership.members, strict=True):
        expected = list_expected(remote.membership, member, remote.facts.mount_point)
        difference = result.cause or compare(expected, result.output)
        if difference:
            wrong.append(f"{host}: {difference}")
    if wrong:
        return Check(
            name, "fault", "; ".join(wrong), "run `deeplearning health`; then read the agent's log on the host"
        )
    return Check(name, "ok", f"the variables are correct on {len(results)} of {len(results)} hosts")


def _compare_way(read: Callable[[], str], expected: Mapping[str, str]) -> str:
    output = read()
    if MPIRUN_ABSENT in output:
        return NO_MPIRUN
    if difference := compare(expected, output):
        raise FaultError(difference)
    return "the variables are correct"


def _unit_text(context: Context) -> str:
    """Return the text that runs a temporary unit: its file is removed, and a reboot empties /run."""
    name = f"deeplearning-check-{os.getpid()}"
    folder = context.path("/run/systemd/system")
    file, output = folder / f"{name}.service", context.path(f"/run/{name}")
    unit = f'[Service]\\nType=oneshot\\nExecStart=/bin/sh -c "printenv >{output}"\\n'
    return (
        f"mkdir -p {folder} && printf '{unit}' >{file} && systemctl daemon-reload"
        f" && systemctl start {name}.service && cat {output}; status=$?"
        f"; rm -f {file} {output}; systemctl daemon-reload; exit $status"
    )


def _mpirun_text() -> str:
    """Return the text that passes only the names to MPI, as the predecessor does; the login shell has the values."""
    words = " ".join(f"-x {name}" for name in CONTRACT_VARIABLES)
    run = f"mpirun -np 1 {words} sh -c {shlex.quote(PRINT)}"
    return f"if command -v mpirun >/dev/null; then {run}; else echo {MPIRUN_ABSENT}; fi"


def check_contract(context: Context, membership: InstalledMembership) -> list[Check]:
    """Check everything except the variables, on a node with an installed membership."""
    mount_point = context.facts.mount_point
    checks = (
        ("files agree", _compare_files, LOG_REMEDY),
        (
            "names resolve",
            _resolve,
            "check that /etc/nsswitch.conf lists `files` first and no other line of /etc/hosts has these names",
        ),
        (
            "host keys",
            _compare_host_keys,
            f"remove the conflicting lines from {KNOWN_HOSTS} or from the login user's ~/.ssh/config",
        ),
        ("hosts loop", _run_loop, "run `deeplearning hosts` on the master; bash must be the shell that runs the loop"),
        ("shared file system", _write_shared, f"check `mount | grep {mount_point}` and the permissions of its root"),
        ("discover_hosts", _discover, LOG_REMEDY),
    )
    return [_run_check(name, partial(check, context, membership), remedy) for name, check, remedy in checks]


def _run_check(name: str, check: Callable[[], str], remedy: str) -> Check:
    try:
        found = check()
    except (OSError, ValueError, ProgramError, FaultError) as error:
        return Check(name, "fault", _explain(error), remedy)
    return Check(name, "absent" if found == NO_MPIRUN else "ok", found)


def _compare_files(context: Context, membership: InstalledMembership) -> str:
    members = membership.hosts
    expected = {
        WORKERS_FILE: [host for host, _ in members],
        WORKER_ADDRESSES_FILE: [member.address for _, member in members],
        HOSTFILE: [f"{host} slots={member.slots}" for host, member in members],
    }
    wrong = [path for path, lines in expected.items() if _read(context, path).splitlines() != lines]
    if wrong:
        raise FaultError(f"{', '.join(wrong)} must list the {len(members)} nodes of generation {membership.generation}")
    return f"workers, addresses and hostfile list the {len(members)} nodes of generation {membership.generation}"


def _resolve(context: Context, membership: InstalledMembership) -> str:
    expected = {host: member.address for host, member in membership.members}
    expected |= {member.instance_id: member.address for _, member in membership.members}
    expected[MASTER_HOST] = membership.members[0][1].address
    wrong = []
    for name, address in expected.items():
        try:
            found = run_clean(context, ["getent", "ahostsv4", name]).split()
        except ProgramError:
            found = []
        if found[:1] != [address]:
            wrong.append(f"{name} is {found[0] if found else 'unknown'}, expected {address}")
    if wrong:
        raise FaultError(_list(wrong))
    return f"{len(expected)} names have their addresses"


def _compare_host_keys(context: Context, membership: InstalledMembership) -> str:
    """Check that the members' keys are known, and that the login user's configuration requires them."""
    lines = _read(context, KNOWN_HOSTS).splitlines()
    wanted = known_hosts_lines(tuple(member for _, member in membership.members))
    missing = [line.partition(",")[0] for line in wanted if line not in lines]
    if missing:
        raise FaultError(f"{KNOWN_HOSTS} must contain the key of {_list(missing)}")
    settings = run_clean(context, ["ssh", "-G", membership.members[0][0]])
    strict = [line.split()[1] for line in settings.splitlines() if line.startswith("stricthostkeychecking ")]
    if not strict or strict[0] in _LAX:
        raise FaultError(f"ssh must check host keys, its StrictHostKeyChecking is {strict[0] if strict else 'unknown'}")
    return f"the keys of {len(wanted)} nodes are known, and ssh checks them"


def _run_loop(context: Context, membership: InstalledMembership) -> str:
    is_master = context.facts.role == NodeRole.MASTER.value
    count = len(membership.hosts)
    loop = SSH_LOOP if is_master else ECHO_LOOP
    output = run_login(context, f"{loop}\ntrue", 30 + HOST_SECONDS * count)
    lines = [line for line in output.splitlines() if not line.startswith("Warning: Permanently added")]
    if len(lines) != count:
        raise FaultError(f"the loop over {WORKERS_FILE} must print {count} lines, got {len(lines)}: {_list(lines)}")
    if is_master:
        return f"`ssh $host hostname` prints {count} names"
    return f"it reads {count} hosts; only the master can log in to them"


def _write_shared(context: Context, _membership: InstalledMembership) -> str:
    mount_point = context.facts.mount_point
    text = 'probe=$(mktemp "$1/.deeplearning-check.XXXXXX") && echo written >"$probe" && cat "$probe" && rm "$probe"'
    output = run_clean(context, ["sh", "-c", text, "sh", str(context.path(mount_point))])
    if output.split() != ["written"]:
        raise FaultError(f"a file on {mount_point} must contain its written content, got {output!r}")
    run_clean(context, ["mountpoint", "-q", str(context.path(mount_point))])
    return f"the login user writes to {mount_point}"


def _discover(context: Context, membership: InstalledMembership) -> str:
    lines = run_clean(context, [str(context.path(DISCOVER_HOSTS))]).splitlines()
    slots = {member.instance_id: member.slots for _, member in membership.hosts}
    for line in lines:
        found = _HOST_LINE.fullmatch(line)
        if found is None or slots.get(found[1]) != int(found[2]):
            raise FaultError(f"{DISCOVER_HOSTS} must print <instance id>:<slots> of members, got {line!r}")
    if not lines:
        raise FaultError(f"{DISCOVER_HOSTS} must print a line for each node that is ready, got none")
    return f"{len(lines)} of {len(slots)} nodes are ready"


def _read(context: Context, absolute: str) -> str:
    return context.path(absolute).read_text(encoding="utf-8")


def _list(items: list[str]) -> str:
    more = f" and {len(items) - MOST_LISTED} more" if len(items) > MOST_LISTED else ""
    return "; ".join(items[:MOST_LISTED]) + more


def run_clean(context: Context, argv: Sequence[str], seconds: float = PROGRAM_SECONDS) -> str:
    """Run a program as the login user with a clean environment; return its output, or raise ProgramError."""
    user = context.user
    become = ["runuser", "-u", user.name, "--"] if context.is_root else []
    environment = {
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": "/bin/bash",
        "LC_ALL": "C.UTF-8",
    }
    return context.programs.run([*become, *argv], timeout_seconds=seconds, environment=environment)


def run_login(context: Context, shell_text: str, seconds: float = PROGRAM_SECONDS) -> str:
    """Run a text in a login shell of the login user, as `run_clean` does."""
    return run_clean(context, ["bash", "-l", "-c", shell_text], seconds)


def _explain(error: Exception) -> str:
    """Return the cause of a failed check in one line; for a program, its last line of output."""
    if isinstance(error, ProgramError) and not (error.is_late or error.is_missing):
        return last_line(error.output) or clean(str(error))
    return clean(str(error))
