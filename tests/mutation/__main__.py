"""
Runs mutmut over two packages, prints their scores, and fails for a mutant that survives without a reason.

survivors.toml has the reasons, each with the mutants that it excuses; one that a test kills has to leave the list.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import tomllib

from tests.mutation.mutants import Mutant, read_mutants
from tests.mutation.workplace import PACKAGES, run_mutmut

REASONS = Path(__file__).with_name("survivors.toml")
LOWEST_SCORE = 0.9


def judge(name: str, mutants: list[Mutant], reasons: Mapping[str, list[str]]) -> list[str]:
    """Print the score of a package; return what is wrong with it, and with the list of its survivors."""
    alive = {str(mutant) for mutant in mutants if mutant.has_survived}
    excused = {mutant for listed in reasons.values() for mutant in listed}
    killed = sum(not mutant.has_survived for mutant in mutants)
    score = killed / len(mutants)
    print(f"{name}: {killed} of {len(mutants)} mutants killed, score {score:.1%}")
    wrong = [f"{name}: survives without a reason: {mutant}" for mutant in sorted(alive - excused)]
    wrong += [f"{name}: killed, so take it off the list: {mutant}" for mutant in sorted(excused - alive)]
    return wrong if score >= LOWEST_SCORE else [*wrong, f"{name}: the score must be at least {LOWEST_SCORE:.0%}"]


def main() -> int:
    """
    Run mutmut, and return the exit status.

    Returns:
        0 when every survivor has its reason and the scores are high enough, else 1.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--only", choices=[package.name for package in PACKAGES], help="mutate a single package")
    only = parser.parse_args().only
    reasons = tomllib.loads(REASONS.read_text())
    wrong: list[str] = []
    for package in PACKAGES:
        if only in (None, package.name):
            wrong += judge(package.name, read_mutants(run_mutmut(package), package.module), reasons[package.name])
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
