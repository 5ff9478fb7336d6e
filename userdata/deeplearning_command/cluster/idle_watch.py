"""Waits until a cluster has done nothing for a while."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from deeplearning_command.remote.nodes import HostResult, Remote
from deeplearning_command.remote.survey import SURVEY_SECONDS, read_answer
from deeplearning_contract.document import ContractError
from deeplearning_node.deadline import Clock
from deeplearning_node.health.cluster_check import COMMAND_FILE
from deeplearning_node.health.findings import clean
from deeplearning_node.health.gpus import GPU_SECONDS
from deeplearning_node.programs import Programs

LOOK_SECONDS = 60.0
ANSWER_SECONDS = GPU_SECONDS + SURVEY_SECONDS
BUSY_PERCENT = 5
_GPU_LINE = re.compile(r"^gpu (\d+)$", re.MULTILINE)

# Only what the driver says of its GPUs; a host without the driver has none.
QUESTION = f"""
if command -v nvidia-smi >/dev/null; then
    timeout --signal=KILL {GPU_SECONDS} nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits |
        sed 's/^ */gpu /'
fi
exec {COMMAND_FILE} node-facts
"""


class IdleWatch:
    """Looks at every host once a minute."""

    def __init__(
        self,
        root: Path,
        programs: Programs,
        clock: Clock,
        say: Callable[[str], None],
        find_more: Callable[[], str] = lambda: "",
    ) -> None:
        """
        Bind the node; nobody is asked yet.

        Args:
            root: Where the node's file tree begins.
            programs: The node's programs.
            clock: Measures the time.
            say: Takes a line whenever the cluster becomes busy or idle.
            find_more: Says what else the cluster is busy with. Default: with nothing.
        """
        self._root = root
        self._programs = programs
        self._clock = clock
        self._say = say
        self._find_more = find_more

    def wait(self, minutes: float) -> None:
        """
        Return when no host has been busy for so many minutes.

        The membership is read at each look, since nodes are replaced. A host that does not answer may be busy. One
        of which only the driver does not tell is judged by its jobs and by what it is being given: GPUs that work are
        started, and it is the driver of idle ones that is late (Azure/aks-gpu#105).

        Raises:
            RefusedError: The nodes cannot be asked any more.
        """
        idle_since: float | None = None
        last_busy: str | None = None
        while True:
            busy = self.find_busy()
            now = self._clock.read()
            idle_since = None if busy else (now if idle_since is None else idle_since)
            if busy != last_busy:
                self._say(f"busy: {busy}" if busy else f"idle; the cluster ends after {minutes:g} minutes of it")
                last_busy = busy
            if idle_since is not None and now - idle_since >= minutes * 60:
                return
            self._clock.wait(LOOK_SECONDS)

    def find_busy(self) -> str:
        """Say what one host, or the cluster, is busy with; empty when with nothing."""
        remote = Remote.open(self._root, self._programs)
        return next(filter(None, map(judge, self._ask(remote))), "") or self._find_more()

    def _ask(self, remote: Remote) -> Sequence[HostResult]:
        return remote.run_all(remote.hosts, QUESTION, seconds=ANSWER_SECONDS)


def judge(result: HostResult) -> str:
    """Say what a host is busy with; empty when with nothing."""
    try:
        answer = read_answer(result)
    except ContractError as error:
        return f"{result.host} does not tell: {clean(str(error))}"
    if answer.jobs:
        return f"{result.host} runs {', '.join(answer.jobs)}"
    brought = sorted(name for name, step in answer.steps.items() if step.state in {"waiting", "running"})
    if brought:
        return f"{result.host} is still being given {', '.join(brought)}"
    percent = max(map(int, _GPU_LINE.findall(result.output)), default=0)
    return f"{result.host} has a GPU that is busy {percent} % of its time" if percent > BUSY_PERCENT else ""
