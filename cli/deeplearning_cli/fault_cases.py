"""`deeplearning-cdk rehearse --case`: rehearses fault cases, each in an enclosure of its own."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from cdk_rehearsal.run.progress import tell
from deeplearning_rehearsal.cases.format.case import Case
from deeplearning_rehearsal.cases.format.case_file import find_case, list_cases, read_case
from deeplearning_rehearsal.cases.format.toml_table import CaseError
from deeplearning_rehearsal.cases.suite.runner import SuiteRun, count_jobs, rehearse_one
from deeplearning_rehearsal.cases.verdict.results import render_results
from deeplearning_rehearsal.options import RehearsalOptions

ALL = "all"
_INTERRUPTED = (130, 143)


def print_cases() -> int:
    """Print a line for each case of the package; 0."""
    cases = [read_case(path) for path in list_cases()]
    width = max(len(case.name) for case in cases)
    for case in cases:
        print(f"{case.name:<{width}}  {case.title}")
    return 0


def read_chosen(names: str, arguments: argparse.Namespace) -> tuple[tuple[Path, Case], ...]:
    """
    Read the cases that the user chose, each with its file; all files are checked before one is rehearsed.

    Args:
        names: Names or files of cases, with commas between; or `all`.
        arguments: The command line.

    Raises:
        CaseError: A file cannot be carried out, or does not go with the other arguments.
    """
    chosen = [name.strip() for name in names.split(",")]
    paths = list_cases() if chosen == [ALL] else tuple(dict.fromkeys(map(find_case, chosen)))
    cases = tuple((path, read_case(path)) for path in paths)
    for option in ("nodes", "expect", "minutes", "gpus_per_node", "lustre_client"):
        if getattr(arguments, option) is not None:
            raise CaseError(f"--{option.replace('_', '-')} must be left out with --case; the case's file says it")
    if len(cases) > 1 and arguments.keep:
        raise CaseError(f"--keep must be given with one case, got --case {names}; name a case")
    for _, case in cases:
        if arguments.app is None and case.needs_synthesis:
            raise CaseError(f"case {case.name} must have a stack of its own; give --app 'COMMAND' instead of assembly")
    return cases


def rehearse_cases(
    chosen: Sequence[tuple[Path, Case]], app: str | None, options: RehearsalOptions, *, jobs: int | None, again: bool
) -> int:
    """
    Rehearse cases, and go on after one that fails.

    One is rehearsed in any case, and shown while it runs. Several are rehearsed at once, as far as the machine allows,
    and those that passed on the same sources are not repeated.

    Args:
        chosen: The cases, each with its file.
        app: Command that synthesizes each case's stack. None: the assembly of the options is deployed.
        options: What else the command line says.
        jobs: How many cases may run at once. None: two, where there are two cores.
        again: Whether cases that passed on the same sources are repeated.

    Returns:
        0 when each passed, 1 when one did not, 130 or 143 when the user ended it.
    """
    if len(chosen) == 1:
        status, result = rehearse_one(chosen[0], app, options)
        return status if status in _INTERRUPTED else int(result["verdict"] != "pass")
    suite = SuiteRun(chosen, app, options, jobs or count_jobs())
    try:
        suite.carry_out(again=again)
    except KeyboardInterrupt:
        tell("interrupted; the same command goes on with the cases that are left")
        return _INTERRUPTED[0]
    if suite.results:
        print(json.dumps(suite.results, indent=2) if options.json else render_results(suite.results), flush=True)
    if suite.skipped:
        left = "" if suite.results else "nothing is left to run: "
        tell(f"{left}{len(suite.skipped)} cases passed on these sources before: {', '.join(suite.skipped)}")
        tell("--again (or AGAIN=1 with make) repeats them")
    return int(any(result["verdict"] != "pass" for result in suite.results.values()))
