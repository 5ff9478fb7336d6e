"""
`python -m deeplearning_rehearsal.privileges`: rehearses cases, and proves from their calls what the roles need.

Exit status: 0 when every recorded call is allowed, every grant is needed and every forbidden call is denied (and with
`--prove`, when each case fails without its grant), 1 when not, 2 when it could not be tried.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.errors import RehearsalError, UnavailableError
from cdk_rehearsal.run.enclosure import require_namespaces
from cdk_rehearsal.run.progress import report_line
from deeplearning_rehearsal.cases.case import Case
from deeplearning_rehearsal.cases.loader import find_case, list_cases
from deeplearning_rehearsal.cases.run.one_case import CaseTask, choose_options, rehearse_case
from deeplearning_rehearsal.cases.run.synthesis import synthesize_case
from deeplearning_rehearsal.options import RehearsalOptions
from deeplearning_rehearsal.privileges.grants import Grant
from deeplearning_rehearsal.privileges.proof import Proof, prove, render_proof
from deeplearning_rehearsal.privileges.template_rights import remove_grant

_INCOMPLETE, _UNAVAILABLE = 1, 2


def main(words: Sequence[str] | None = None) -> int:
    """Carry out the command line, and return the exit status."""
    arguments = _parse(words)
    try:
        require_namespaces()
        arguments.out.mkdir(parents=True, exist_ok=True)
        if not arguments.recorded:
            _rehearse_all(arguments)
        proof = prove(arguments.out / name for name in arguments.cases)
        arguments.report.write_text(json.dumps(proof.to_document(), indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(render_proof(proof) + "\n")
        is_proved = _prove_by_removal(arguments, proof)
    except RehearsalError as error:
        report_line(f"privileges: {error}")
        return _UNAVAILABLE
    return 0 if proof.is_complete and is_proved else _INCOMPLETE


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="privileges", description=__doc__)
    parser.add_argument("--app", default="python app.py", help="command that synthesizes the stack")
    parser.add_argument("--out", type=Path, default=Path("build/rehearsal/privileges"), help="folder of the rehearsals")
    parser.add_argument("--report", type=Path, default=Path("build/privileges.json"), help="the JSON report")
    parser.add_argument("--cases", nargs="+", help="cases to rehearse (default: those that prove rights)")
    parser.add_argument("--recorded", action="store_true", help="read what earlier rehearsals recorded")
    parser.add_argument("--prove", type=int, default=0, metavar="N", help="rehearse N cases without a grant they need")
    parser.add_argument("--seed", type=int, default=0, help="which grants --prove takes")
    parser.add_argument("--without", action="append", default=[], metavar="ROLE:ACTION", help="take this grant out too")
    arguments = parser.parse_args(words)
    arguments.out = arguments.out.resolve()
    arguments.cases = arguments.cases or [case.name for case in list_cases() if case.proves_rights]
    return arguments


def _rehearse_all(arguments: argparse.Namespace) -> None:
    for number, name in enumerate(arguments.cases, start=1):
        case = find_case(name)
        report_line(f"=== {number} of {len(arguments.cases)}: {name}: {case.title}")
        status = _rehearse(arguments, case, arguments.out, None)
        if status != 0:
            raise UnavailableError(f"each case must pass before its calls prove anything, {name} ended with {status}")


def _rehearse(arguments: argparse.Namespace, case: Case, out: Path, without: Grant | None) -> int:
    assembly = synthesize_case(case, arguments.app, out / case.name)
    if without is not None:
        remove_grant(assembly, without)
    options = choose_options(case, RehearsalOptions(assembly, out=out, cache=find_cache()))
    return rehearse_case(case, CaseTask(options, app=None))[0]


def _prove_by_removal(arguments: argparse.Namespace, proof: Proof) -> bool:
    """Rehearse cases without a grant that they need, and return whether each failed for it."""
    needed = sorted((grant, case) for grant, cases in proof.grants.items() for case in cases)
    chosen = [
        next((pair for pair in needed if pair[0].role.startswith(role) and pair[0].action == action), None)
        for role, _, action in (text.partition(":") for text in arguments.without)
    ]
    if None in chosen:
        raise UnavailableError(f"--without must name a grant that a case needs, got {arguments.without}")
    chosen += random.Random(arguments.seed).sample(needed, min(arguments.prove, len(needed)))  # noqa: S311
    is_proved = True
    for grant, case in (pair for pair in chosen if pair is not None):
        report_line(f"=== {case} without {grant}")
        out = arguments.out.with_name(f"{arguments.out.name}-without")
        out.mkdir(exist_ok=True)
        status = _rehearse(arguments, find_case(case), out, grant)
        is_felt = status == _INCOMPLETE and _names_denial(out / case, grant)
        sys.stdout.write(f"{'fails' if is_felt else 'DOES NOT FAIL'}  {case} without {grant}\n")
        is_proved &= is_felt
    return is_proved


def _names_denial(folder: Path, grant: Grant) -> bool:
    reasons = json.loads((folder / "report.json").read_text(encoding="utf-8"))["reasons"]
    return any(f"is not authorized to perform: {grant.action}" in reason for reason in reasons)


if __name__ == "__main__":
    sys.exit(main())
