"""
Rehearses one case in an enclosure of its own.

`python -m deeplearning_rehearsal.cases.run.one_case TASK_JSON` does so in a process of its own, as an enclosure needs
it: its signal handler belongs to a process's main thread.
"""

import hashlib
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from cdk_rehearsal.cache import fill_once
from cdk_rehearsal.errors import PromiseError, RefusedError, RehearsalError
from cdk_rehearsal.printing import report_error
from cdk_rehearsal.referees.judge import require_acceptance
from cdk_rehearsal.run.enclosure import run_enclosed
from cdk_rehearsal.run.progress import report_line
from deeplearning_rehearsal.cases.case import Case, Elastic
from deeplearning_rehearsal.cases.loader import find_case
from deeplearning_rehearsal.cases.results import Result, summarize_report
from deeplearning_rehearsal.cases.run.synthesis import synthesize_case, synthesize_second
from deeplearning_rehearsal.options import RehearsalOptions
from deeplearning_rehearsal.software.node_software import prepare_software
from deeplearning_rehearsal.template import read_cluster

UNAVAILABLE = 2


@dataclass(frozen=True)
class CaseTask:
    """
    The work of a case's process.

    Attributes:
        app: Command that synthesizes the case's stack. None: the assembly of the options is deployed.
        assemblies: Folder of assemblies that cases with the same context share. None: the case makes its own.
    """

    options: RehearsalOptions
    app: str | None
    assemblies: Path | None = None

    def to_json(self) -> str:
        """Return the text that `from_json` reads."""
        assemblies = None if self.assemblies is None else str(self.assemblies)
        return json.dumps({"options": self.options.to_json(), "app": self.app, "assemblies": assemblies})

    @classmethod
    def from_json(cls, text: str) -> "CaseTask":
        """Read what `to_json` wrote."""
        document = json.loads(text)
        assemblies = None if document["assemblies"] is None else Path(document["assemblies"])
        return cls(RehearsalOptions.from_json(document["options"]), document["app"], assemblies)


def choose_options(case: Case, options: RehearsalOptions) -> RehearsalOptions:
    """Return options with what the case says."""
    return replace(
        options,
        case=case.reference,
        gpus_per_node=case.gpus_per_node,
        lustre_client=case.lustre_client,
        expect=case.expect,
        minutes=case.minutes,
    )


def rehearse_case(case: Case, task: CaseTask) -> tuple[int, Result]:
    """
    Rehearse a case; return the exit status and the case's entry.

    Raises RehearsalError if it cannot be tried on this machine.
    """
    options = task.options
    report = options.folder / "report.json"
    report.unlink(missing_ok=True)
    try:
        if task.app is not None:
            options = replace(options, assembly=_synthesize(case, task.app, options.folder, task.assemblies))
            if case.second is not None:
                synthesize_second(case, case.second, task.app, options.folder)
        stack = read_cluster(options.assembly, options.stack)
        if options.referees:
            require_acceptance(stack.deployment, options.cache)
        prepare_software(stack, options.cache, report_line)
    except (PromiseError, RefusedError) as error:
        report_line(f"deeplearning-cdk: {error}")
        return 1, fail(str(error))
    status = run_enclosed("deeplearning_rehearsal.rehearsal:carry_out", options.to_json())
    return status, read_entry(options.folder, status)


def read_entry(folder: Path, status: int) -> Result:
    """Return the entry of a case that ended: from its report, or why there is none."""
    report = folder / "report.json"
    if not report.is_file():
        return fail(f"the rehearsal ended with status {status} and left no report")
    return summarize_report(json.loads(report.read_text(encoding="utf-8")))


def fail(reason: str) -> Result:
    """Return the entry of a case that could not be judged."""
    return {"verdict": "fail", "seconds": 0.0, "reasons": [reason]}


def _synthesize(case: Case, app: str, folder: Path, assemblies: Path | None) -> Path:
    if assemblies is None:
        return synthesize_case(case, app, folder)
    key = hashlib.sha256(
        repr((case.job if isinstance(case.job, Elastic) else None, sorted(case.stack_context.items()))).encode()
    ).hexdigest()
    return fill_once(assemblies, key[:16], lambda work: synthesize_case(case, app, work), report_line)


def main(text: str) -> int:
    """Rehearse the case of a task, and return the exit status; what came of it is in its folder."""
    task = CaseTask.from_json(text)
    try:
        if task.options.case is None:
            raise ValueError("a task must have a case, got none")
        return rehearse_case(find_case(task.options.case), task)[0]
    except RehearsalError as error:
        return report_error(error, as_json=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
