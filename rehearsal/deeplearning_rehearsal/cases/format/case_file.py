"""Reads case files: those of this package by name, those of users by path."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import tomllib

from deeplearning_rehearsal.cases.format.case import Case, CaseError
from deeplearning_rehearsal.cases.format.expectations import EXPECTATIONS, list_asked
from deeplearning_rehearsal.cases.format.toml_reader import read_words
from deeplearning_rehearsal.checks.training import MINIMUM_ACCURACY
from deeplearning_rehearsal.launchers.trials import TRIAL_NAMES

FOLDER = Path(__file__).parents[1]


def list_cases() -> tuple[Path, ...]:
    """Return the files of the package's own cases, by name."""
    return tuple(sorted(FOLDER.glob("*.toml")))


def find_case(name: str) -> Path:
    """
    Return the file of a case, given the name of a case of this package or a path; raises CaseError if there is none.
    """
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise CaseError(f"--case must name a case or a file, got {name!r}; there is no such file")
        return Path(name).resolve()
    known = {path.stem: path for path in list_cases()}
    if name not in known:
        raise CaseError(f"--case must be one of {', '.join(known)}, all, or a file that ends in .toml, got {name!r}")
    return known[name]


def read_case(path: Path) -> Case:
    """Read a case file; raises CaseError, which names file and key, if it cannot be carried out."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CaseError(f"{path.name}: cannot be read: {error}") from error
    return parse_case(values, path)


def parse_case(values: dict[str, Any], path: Path) -> Case:
    """Read the parsed text of a case file; raises CaseError as `read_case` does."""
    try:
        case = _fill_defaults(replace(read_words(values), name=path.stem))
        _require_sense(case)
    except ValueError as error:
        raise CaseError(f"{path.name}: {error}") from error
    return case


def _fill_defaults(case: Case) -> Case:
    """Add what is expected of any such case, unless the file says otherwise: all nodes form, training is accurate."""
    defaults: dict[str, Any] = {}
    if case.expect == "failed":
        defaults["stack"] = "ROLLBACK_COMPLETE"
    if case.expect in {"trained", "formed"}:
        defaults["formed"] = case.asked_nodes
    if case.expect == "trained":
        defaults["accuracy_at_least"] = MINIMUM_ACCURACY
    missing = {key: value for key, value in defaults.items() if getattr(case.seen, key) is None}
    return replace(case, seen=replace(case.seen, **missing))


def _require_sense(case: Case) -> None:
    """Refuse what contradicts itself: it would never be seen, or hold whatever happens."""
    if not case.injections and not case.cloud.is_any and not case.context and case.nodes is None:
        _refuse("inject", "must be given unless [cloud], context or nodes make the case")
    if case.nodes is not None and "workers.desired_capacity" in case.context:
        _refuse("nodes", "must be left out with context.'workers.desired_capacity'; keep one of the two")
    if case.job != "digits" and case.expect != "trained":
        _refuse("job", f"must be left out with expect = {case.expect!r}, which trains nothing")
    _require_sense_of_launchers(case)
    if case.arguments and not case.is_elastic and case.expect != "job":
        _refuse("arguments", "must be left out unless job = 'elastic' or expect = 'job', whose programs take them")
    if case.is_elastic and "master.run_script" in case.context:
        _refuse("context.'master.run_script'", "must be left out with job = 'elastic', which is a run script")
    for index, injection in enumerate(case.injections):
        if injection.when.kind == "commit" and not case.is_elastic:
            _refuse(f"inject[{index}].when", "must not wait for training unless job = 'elastic'")
        if injection.when.kind == "pause" and index == 0:
            _refuse("inject[0].when", "must not be a pause, which counts from the injection before")
    _require_sense_of_seen(case)


def _require_sense_of_launchers(case: Case) -> None:
    if case.launchers and case.job != "launchers":
        _refuse("launchers", "must be left out: it needs job = 'launchers'")
    if unknown := set(case.launchers) - set(TRIAL_NAMES):
        _refuse("launchers", f"must hold only {', '.join(TRIAL_NAMES)}, got {sorted(unknown)}")


def _require_sense_of_seen(case: Case) -> None:
    asked = list_asked(case.seen)
    for key in asked:
        if not case.meets(need := EXPECTATIONS[key].need):
            _refuse(f"seen.{key}", f"must be left out: it needs {need.value}")
    if not asked:
        _refuse("seen", "must name at least one expectation; without one the case shows nothing")


def _refuse(key: str, rule: str) -> NoReturn:
    raise ValueError(f"{key} {rule}")
