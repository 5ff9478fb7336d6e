"""`deeplearning-cdk rehearse --case`: rehearses fault cases, each in an enclosure of its own."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cdk_rehearsal.errors import PromiseError
from cdk_rehearsal.run.enclosure import run_enclosed
from cdk_rehearsal.run.progress import tell
from deeplearning_rehearsal.cases.format.case import Case
from deeplearning_rehearsal.cases.format.case_file import find_case, list_cases, read_case
from deeplearning_rehearsal.cases.format.toml_table import CaseError
from deeplearning_rehearsal.cases.run.synthesis import synthesize_case
from deeplearning_rehearsal.cases.verdict.results import Result, merge_result, render_results, summarize_report
from deeplearning_rehearsal.options import RehearsalOptions
from deeplearning_rehearsal.software.node_software import prepare_software

ALL = "all"
_INTERRUPTED = (130, 143)


def print_cases() -> int:
    """Print a line for each case of the package; 0."""
    cases = [read_case(path) for path in list_cases()]
    width = max(len(case.name) for case in cases)
    for case in cases:
        print(f"{case.name:<{width}}  {case.title}")
    return 0


def read_chosen(name: str, arguments: argparse.Namespace) -> tuple[tuple[Path, Case], ...]:
    """
    Read the cases that the user chose, each with its file; all files are checked before one is rehearsed.

    Raises:
        CaseError: A file cannot be carried out, or does not go with the other arguments.
    """
    paths = list_cases() if name == ALL else (find_case(name),)
    cases = tuple((path, read_case(path)) for path in paths)
    for option in ("nodes", "expect", "minutes", "gpus_per_node", "lustre_client"):
        if getattr(arguments, option) is not None:
            raise CaseError(f"--{option.replace('_', '-')} must be left out with --case; the case's file says it")
    if name == ALL and arguments.keep:
        raise CaseError("--keep must be given with one case, got --case all; name a case")
    for _, case in cases:
        if arguments.app is None and case.needs_synthesis:
            raise CaseError(f"case {case.name} must have a stack of its own; give --app 'COMMAND' instead of assembly")
    return cases


def rehearse_cases(chosen: Sequence[tuple[Path, Case]], app: str | None, options: RehearsalOptions) -> int:
    """
    Rehearse cases one after the other, and go on after one that fails.

    Args:
        chosen: The cases, each with its file.
        app: Command that synthesizes each case's stack. None: the assembly of the options is deployed.
        options: What else the command line says.

    Returns:
        0 when each passed, 1 when one did not, 130 or 143 when the user ended it.
    """
    results: dict[str, Result] = {}
    for number, (path, case) in enumerate(chosen, start=1):
        print(f"=== {number} of {len(chosen)}: {case.name}: {case.title}", file=sys.stderr, flush=True)
        status, results[case.name] = _rehearse_case(case, app, _choose_options(case, path, options))
        merge_result(options.out, case.name, results[case.name])
        if status in _INTERRUPTED:
            return status
    if len(chosen) > 1:
        print(json.dumps(results, indent=2) if options.json else render_results(results), flush=True)
    return 0 if all(result["verdict"] == "pass" for result in results.values()) else 1


def _choose_options(case: Case, path: Path, options: RehearsalOptions) -> RehearsalOptions:
    return replace(
        options,
        case=path,
        nodes=case.nodes,
        gpus_per_node=case.gpus_per_node,
        lustre_client=case.lustre_client,
        expect=case.expect,
        minutes=case.minutes,
    )


def _rehearse_case(case: Case, app: str | None, options: RehearsalOptions) -> tuple[int, Result]:
    """Rehearse one case; a report that an earlier run left is removed first, so that none passes for this one's."""
    report = options.folder / "report.json"
    report.unlink(missing_ok=True)
    try:
        if app is not None:
            options = replace(options, assembly=synthesize_case(case, app, options.folder))
        prepare_software(options.assembly, options.stack, options.cache, tell)
    except PromiseError as error:
        print(f"deeplearning-cdk: {error}", file=sys.stderr)
        return 1, _fail(str(error))
    status = run_enclosed("deeplearning_rehearsal.first_process", options.to_json())
    if not report.is_file():
        return status, _fail(f"the rehearsal ended with status {status} and left no report")
    return status, summarize_report(json.loads(report.read_text(encoding="utf-8")))


def _fail(reason: str) -> Result:
    return {"verdict": "fail", "seconds": 0.0, "reasons": [reason]}
