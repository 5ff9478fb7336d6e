"""Report of a failed run: the first failed rank and its last lines."""

from pathlib import Path

from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.job import RANK_VARIABLE
from deeplearning_jobs.plan.launch_plan import LaunchPlan
from deeplearning_jobs.runs.job_folder import Run
from deeplearning_jobs.runs.log_follower import read_last_lines
from deeplearning_jobs.runs.supervision import RunOutcome

SHOWN_LINES = 20
LONGEST_LINE = 400
READ_LINES = 2000
"""Of a launcher's log; its report of the first failure is near the end."""


def explain_failure(run: Run, plan: LaunchPlan, outcome: RunOutcome) -> tuple[int, tuple[str, ...]]:
    """Return status and lines to show of the first failure: of the rank, or of the launcher where it names none."""
    process = outcome.failed
    if process is None:
        return outcome.status, ()
    own_log = run.log(process.name)
    found = _find_rank(plan, "\n".join(read_last_lines(own_log, READ_LINES)))
    if found is None:
        rank_name = process.environment.get(RANK_VARIABLE)
        log = run.path / (f"{process.name}.log" if rank_name is None else f"rank-{rank_name}.log")
        return outcome.status, _show(process.host, log, own_log)
    rank, code = found
    status = 128 - code if code < 0 else code
    host = plan.hosts[min(rank // plan.slots, len(plan.hosts) - 1)].name
    head = f"rank {rank} on {host} failed first, with status {status}"
    return status, (head, *_show(host, run.path / f"rank-{rank}.log", own_log))


def _find_rank(plan: LaunchPlan, said: str) -> tuple[int, int] | None:
    starter = LAUNCHERS[plan.launcher].starter
    match = starter.first_failure.search(said) if starter else None
    if match is None or not int(match["code"]):
        return None
    return int(match["rank"]), int(match["code"])


def _show(host: str, log: Path, otherwise: Path) -> tuple[str, ...]:
    """Return the last lines of a rank's log, or of the log of its starter where the rank wrote none."""
    for file in (log, otherwise):
        last = read_last_lines(file, SHOWN_LINES)
        if last:
            head = f"the last lines of {file} ({host}):"
            return (head, *(f"    {_clean(line)}" for line in last))
    return ()


def _clean(line: str) -> str:
    """Return a line without control characters: it goes to a terminal. Indentation is kept."""
    return "".join(letter if letter.isprintable() else " " for letter in line)[:LONGEST_LINE].rstrip()
