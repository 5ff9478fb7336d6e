"""A wait until a cluster has been idle for a while."""

import re
from collections.abc import Callable

from deeplearning_command.context import Context
from deeplearning_command.remote.nodes import HostResult
from deeplearning_command.remote.survey import SURVEY_SECONDS, read_facts
from deeplearning_command.terminal import on_change, print_line
from deeplearning_contract.document import ContractError
from deeplearning_node.health.findings import clean
from deeplearning_node.health.gpus import GPU_SECONDS
from deeplearning_node.node_facts import COMMAND_FILE

POLL_SECONDS = 60.0
ANSWER_SECONDS = GPU_SECONDS + SURVEY_SECONDS
BUSY_PERCENT = 5
_GPU_LINE = re.compile(r"^gpu (\d+)$", re.MULTILINE)

# Only the load that the driver reports of its GPUs; a host without the driver has none.
QUESTION = f"""
if command -v nvidia-smi >/dev/null; then
    timeout --signal=KILL {GPU_SECONDS} nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits |
        sed 's/^ */gpu /'
fi
exec {COMMAND_FILE} node-facts
"""


class IdleWatch:
    """Polls every host once a minute."""

    def __init__(self, context: Context, find_more: Callable[[], str] = str) -> None:
        """Take the master; `find_more` returns another activity of the cluster. Default: none."""
        self._context = context
        self._find_more = find_more

    def wait(self, minutes: float) -> None:
        """
        Return when no host has been busy for so many minutes; print a line when the cluster becomes busy or idle.

        The membership is read at each poll, since nodes are replaced. A host that does not answer may be busy. One
        where only the driver does not answer is judged by its jobs and by its provisioning: GPUs that work are
        started, and it is the driver of idle ones that is late (Azure/aks-gpu#105).
        """
        idle_since: float | None = None
        report = on_change(print_line)
        while True:
            busy = self.find_busy()
            now = self._context.clock.read()
            idle_since = None if busy else (now if idle_since is None else idle_since)
            report(f"busy: {busy}" if busy else f"idle; the cluster ends after {minutes:g} minutes of it")
            if idle_since is not None and now - idle_since >= minutes * 60:
                return
            self._context.clock.wait(POLL_SECONDS)

    def find_busy(self) -> str:
        """Return one activity of the cluster; empty for none."""
        remote = self._context.open_remote()
        results = remote.run_all(remote.hosts, QUESTION, seconds=ANSWER_SECONDS)
        return next(filter(None, map(judge, results)), "") or self._find_more()


def judge(result: HostResult) -> str:
    """Return one activity of a host; empty for none."""
    try:
        facts = read_facts(result.read_document())
    except ContractError as error:
        return f"{result.host} does not answer: {clean(str(error))}"
    if facts.jobs:
        return f"{result.host} runs {', '.join(facts.jobs)}"
    open_steps = sorted(name for name, step in facts.steps.items() if step.state in {"waiting", "running"})
    if open_steps:
        return f"{result.host} is still being given {', '.join(open_steps)}"
    percent = max(map(int, _GPU_LINE.findall(result.output)), default=0)
    return f"{result.host} has a GPU that is busy {percent} % of its time" if percent > BUSY_PERCENT else ""
