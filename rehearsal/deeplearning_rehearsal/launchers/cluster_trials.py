"""Tries every launcher on a cluster that has formed."""

import time
from collections.abc import Sequence

from deeplearning_contract.names import WORKER_GPU_COUNT_VARIABLE
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_rehearsal.checks.provision_watch import ProvisionWatch, name_steps
from deeplearning_rehearsal.checks.training import make_training_report
from deeplearning_rehearsal.cluster_run import ClusterRun, find_master
from deeplearning_rehearsal.launchers.trial_run import TrialRun
from deeplearning_rehearsal.launchers.trials import choose_trials
from deeplearning_rehearsal.report.assessment import Evidence

_LANE = "training"
_PROVISION_SECONDS = 1800.0


def try_launchers(run: ClusterRun, evidence: Evidence, names: Sequence[str] = ()) -> None:
    """
    Wait for what jobs need, and try launchers.

    What was trained first counts as the rehearsal's training.

    Args:
        run: The rehearsal.
        evidence: Takes what is found out; nodes and roster are known already.
        names: The trials. Default: all that need no environment of their own.

    Raises:
        RehearsalError: A node does not get what jobs need.
    """
    settings = run.read_settings()
    await_provisioning(run, settings.needs)
    slots = sum(max(1, int(node.contract.get(WORKER_GPU_COUNT_VARIABLE, "0"))) for node in evidence.nodes)
    trials = TrialRun(
        run.lab,
        find_master(run.fleet).instance_id,
        settings.login_user,
        hosts=len(evidence.nodes),
        ranks=slots,
        tell=lambda text: run.timeline.tell(_LANE, text),
        reports=evidence.launchers,
    )
    with run.timeline.phase("launchers"):
        trials.prepare(run.find_digits())
        for trial in choose_trials(names):
            trials.carry_out(trial)
    name, report = next(iter(evidence.launchers.items()))
    first = report.ways[0]
    if not first.problems:
        evidence.training = make_training_report(name, first.result)


def await_provisioning(run: ClusterRun, needs: JobNeeds) -> None:
    """
    Wait until every node has its data and its environment.

    Raises:
        PromiseError: A node does not get them.
    """
    with run.timeline.phase("provision"):
        watch = ProvisionWatch(run.lab.read_file, name_steps(needs))
        nodes = [machine.instance_id for machine in run.fleet.machines()]
        watch.wait(nodes, min(run.last_moment, time.monotonic() + _PROVISION_SECONDS))
