"""Checks of the contract's variables, wherever a training script may be started from."""

import os
import re
import shlex
from collections.abc import Callable, Mapping

from deeplearning_command.check.probe import Check, explain, run_clean, run_login
from deeplearning_command.context import Context
from deeplearning_command.remote.nodes import Remote
from deeplearning_contract.membership import Member, worker_gpu_count
from deeplearning_contract.names import CONTRACT_VARIABLES, ENVIRONMENT_FILE
from deeplearning_node.contract_variables import list_variables
from deeplearning_node.node_facts import InstalledMembership
from deeplearning_node.programs import ProgramError

REMEDY = "read the agent's log on the node, and see that nothing later in the shell's files changes the variables"
SSH_SECONDS = 30
MPIRUN_ABSENT = "no-mpirun-here"
_NAMES = "|".join(CONTRACT_VARIABLES)
PRINT = f"printenv | grep -E '^({_NAMES})=' || true"
_LINE = re.compile(rf"^({_NAMES})=(.*)$", re.MULTILINE)


def list_expected(membership: InstalledMembership, own: Member, mount_point: str) -> dict[str, str]:
    """Return the variables on one node of a cluster."""
    members = tuple(member for _, member in membership.members)
    return list_variables(mount_point, len(membership.hosts), worker_gpu_count(members, own))


def compare(expected: Mapping[str, str], output: str) -> str:
    """Return the differences between the variables and those printed; empty for none."""
    found = dict(_LINE.findall(output.replace("\r", "")))
    wrong = [
        f"{name} is {found.get(name, 'unset')}, expected {value}"
        for name, value in expected.items()
        if found.get(name) != value
    ]
    return "; ".join(wrong)


def check_environment(context: Context, expected: Mapping[str, str]) -> list[Check]:
    """Check the variables in every way in which this node starts a program."""
    privilege = [] if context.is_root else ["sudo", "-n"]
    ways: dict[str, Callable[[], str]] = {
        "environment file": lambda: context.path(ENVIRONMENT_FILE).read_text(encoding="utf-8"),
        "login shell": lambda: run_login(context, PRINT),
        "interactive shell": lambda: run_clean(context, ["bash", "-i", "-c", PRINT]),
        "sudo -E": lambda: run_login(context, f"sudo -n -E sh -c {shlex.quote(PRINT)}"),
        "systemd unit": lambda: context.programs.run([*privilege, "sh", "-c", _unit_text(context)], timeout_seconds=60),
        "mpirun -x": lambda: run_login(context, _mpirun_text()),
    }
    return [_check_way(name, read, expected) for name, read in ways.items()]


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
    return Check(name, "ok", f"the variables are right on {len(results)} of {len(results)} hosts")


def _check_way(name: str, read: Callable[[], str], expected: Mapping[str, str]) -> Check:
    try:
        output = read()
    except (OSError, ValueError, ProgramError) as error:
        return Check(name, "fault", explain(error), REMEDY)
    if MPIRUN_ABSENT in output:
        return Check(name, "absent", "there is no mpirun here")
    difference = compare(expected, output)
    return Check(name, "fault", difference, REMEDY) if difference else Check(name, "ok", "the variables are right")


def _unit_text(context: Context) -> str:
    """Return the text that runs a unit of this moment alone: a reboot empties /run, and the file is removed."""
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
    """Return the text that gives MPI the names alone, as the predecessor does; the login shell has the values."""
    words = " ".join(f"-x {name}" for name in CONTRACT_VARIABLES)
    run = f"mpirun -np 1 {words} sh -c {shlex.quote(PRINT)}"
    return f"if command -v mpirun >/dev/null; then {run}; else echo {MPIRUN_ABSENT}; fi"
