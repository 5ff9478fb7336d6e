"""Reads case files: those of this package by name, those of users by path."""

from pathlib import Path
from typing import Any

import tomllib

from deeplearning_contract.names import ROLE_TAG
from deeplearning_rehearsal.cases.format.account_bucket import AccountBucket
from deeplearning_rehearsal.cases.format.action_words import ACTION_WORDS
from deeplearning_rehearsal.cases.format.case import Case, CloudFaults, Injection
from deeplearning_rehearsal.cases.format.data_objects import ARCHIVE_ENDINGS, DataObject
from deeplearning_rehearsal.cases.format.expectations import EXPECTATIONS, list_asked
from deeplearning_rehearsal.cases.format.seen_reader import read_seen
from deeplearning_rehearsal.cases.format.small_data import SMALL_DATA
from deeplearning_rehearsal.cases.format.target import Target, parse_target
from deeplearning_rehearsal.cases.format.toml_table import CaseError, Table
from deeplearning_rehearsal.cases.format.trigger import FORMS, Trigger, parse_trigger
from deeplearning_rehearsal.launchers.trials import TRIAL_NAMES

FOLDER = Path(__file__).parents[1]
MESSAGE_FAULTS = ("duplicate", "reorder", "lose_first")
_EXPECTATIONS = ("trained", "formed", "failed", "stopped")


def list_cases() -> tuple[Path, ...]:
    """Return the files of the package's own cases, by name."""
    return tuple(sorted(FOLDER.glob("*.toml")))


def find_case(name: str) -> Path:
    """
    Return the file of a case.

    Args:
        name: Name of one of the package's cases, or path of a file.

    Raises:
        CaseError: There is no such case.
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
    """
    Read a case file.

    Raises:
        CaseError: It cannot be carried out; the message names file and key.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CaseError(f"{path.name}: cannot be read: {error}") from error
    return parse_case(values, path)


def parse_case(values: dict[str, Any], path: Path) -> Case:
    """
    Read the parsed text of a case file.

    Raises:
        CaseError: It cannot be carried out; the message names file and key.
    """
    table = Table(values, path.name)
    injections = tuple(_read_injection(entry) for entry in table.tables("inject"))
    seen = read_seen(table.table("seen"))
    case = Case(
        name=path.stem,
        title=table.need("title", str),
        faults=table.items("faults", int),
        context=table.get("context", dict, {}),
        nodes=table.find("nodes", int),
        gpus_per_node=table.get("gpus_per_node", int, 1),
        expect=table.choose("expect", _EXPECTATIONS),  # type: ignore[arg-type]
        job=table.choose("job", ("digits", "elastic", "launchers"), "digits"),  # type: ignore[arg-type]
        arguments=table.items("arguments", str),
        minutes=table.get("minutes", float, 8.0),
        cloud=_read_cloud(table.table("cloud")),
        injections=injections,
        seen=seen,
        objects=tuple(_read_object(entry) for entry in table.tables("object")),
        buckets=tuple(_read_bucket(entry) for entry in table.tables("bucket")),
        launchers=table.items("launchers", str),
        lustre_client=table.get("lustre_client", bool, default=False),
        fresh_environment=table.get("fresh_environment", bool, default=False),
        alone=table.get("alone", bool, default=False),
        after=table.get("after", str, ""),
    )
    table.finish()
    _require_sense(case, table)
    return case


def _read_cloud(table: Table) -> CloudFaults:
    faults = CloudFaults(
        launch_faults=tuple(_read_launch_fault(entry) for entry in table.tables("launch_faults")),
        lose_notifications=table.get("lose_notifications", bool, default=False),
        notification_gap=table.find("notification_gap", float),
        messages=frozenset(table.items("messages", str)),
        object_seconds=table.get("object_seconds", float, 0.0),
        lose_answers=table.get("lose_answers", bool, default=False),
    )
    if unknown := faults.messages - set(MESSAGE_FAULTS):
        table.refuse("messages", f"must hold only {', '.join(MESSAGE_FAULTS)}, got {sorted(unknown)}")
    table.finish()
    return faults


def _read_launch_fault(table: Table) -> dict[str, Any]:
    fault: dict[str, Any] = {"code": table.need("code", str)}
    if (role := table.find("role", str)) is not None:
        fault["tags"] = {ROLE_TAG: role}
    if (message := table.find("message", str)) is not None:
        fault["message"] = message
    if table.has("ordinals"):
        fault["ordinals"] = frozenset(table.items("ordinals", int))
    if (first := table.find("from_ordinal", int)) is not None:
        fault["from_ordinal"] = first
    if (at_creation := table.find("at_creation", bool)) is not None:
        fault["at_creation"] = at_creation
    table.finish()
    return fault


def _read_object(table: Table) -> DataObject:
    data_set = table.choose("data_set", tuple(SMALL_DATA)) if table.has("data_set") else ""
    item = DataObject(
        bucket=table.need("bucket", str),
        key=table.need("key", str),
        files=0 if data_set else table.need("files", int),
        file_bytes=0 if data_set else table.need("file_bytes", int),
        kept=table.get("kept", float, 1.0),
        data_set=data_set,
    )
    if not item.is_archive and not item.key.endswith("/"):
        table.refuse("key", f"must end with / or one of {', '.join(ARCHIVE_ENDINGS)}, got {item.key!r}")
    if not 0 < item.kept <= 1 or (item.kept < 1 and not item.is_archive):
        table.refuse("kept", f"must be a part of an archive, more than 0 and at most 1, got {item.kept:g}")
    table.finish()
    return item


def _read_bucket(table: Table) -> AccountBucket:
    bucket = AccountBucket(
        table.need("name", str),
        table.items("denies", str),
        table.get("damaged_environments", bool, default=False),
    )
    table.finish()
    return bucket


def _read_injection(table: Table) -> Injection:
    action = ACTION_WORDS[table.choose("do", tuple(ACTION_WORDS))]
    options = {key: action.options[key].read(table, key) for key in action.options}
    injection = Injection(
        when=_read_trigger(table),
        do=table.need("do", str),
        target=_read_target(table) if action.has_target else None,
        options=options,
    )
    table.finish()
    return injection


def _read_trigger(table: Table) -> Trigger:
    text = table.need("when", str)
    trigger = parse_trigger(text)
    if trigger is None:
        table.refuse("when", f"must be like {FORMS}, got {text!r}")
    return trigger


def _read_target(table: Table) -> Target:
    text = table.need("target", str)
    target = parse_target(text)
    if target is None:
        table.refuse("target", f"must be master, or worker 2 for the second that was launched, got {text!r}")
    return target


def _require_sense(case: Case, table: Table) -> None:
    """Refuse what contradicts itself: it would never be seen, or hold whatever happens."""
    if not case.injections and not case.cloud.is_any and not case.context and case.nodes is None:
        table.refuse("inject", "must be given unless [cloud], context or nodes make the case")
    if case.nodes is not None and "workers.desired_capacity" in case.context:
        table.refuse("nodes", "must be left out with context.'workers.desired_capacity'; keep one of the two")
    if case.job != "digits" and case.expect != "trained":
        table.refuse("job", f"must be left out with expect = {case.expect!r}, which trains nothing")
    _require_sense_of_launchers(case, table)
    if case.arguments and not case.is_elastic:
        table.refuse("arguments", "must be left out unless job = 'elastic', whose program takes them")
    if case.is_elastic and "master.run_script" in case.context:
        table.refuse("context.'master.run_script'", "must be left out with job = 'elastic', which is a run script")
    for index, injection in enumerate(case.injections):
        if injection.when.kind == "commit" and not case.is_elastic:
            table.refuse(f"inject[{index}].when", "must not wait for training unless job = 'elastic'")
        if injection.when.kind == "pause" and index == 0:
            table.refuse("inject[0].when", "must not be a pause, which counts from the injection before")
    _require_sense_of_seen(case, table)


def _require_sense_of_launchers(case: Case, table: Table) -> None:
    if case.launchers and case.job != "launchers":
        table.refuse("launchers", "must be left out: it needs job = 'launchers'")
    if unknown := set(case.launchers) - set(TRIAL_NAMES):
        table.refuse("launchers", f"must hold only {', '.join(TRIAL_NAMES)}, got {sorted(unknown)}")


def _require_sense_of_seen(case: Case, table: Table) -> None:
    asked = list_asked(case.seen)
    for key in asked:
        if not case.meets(need := EXPECTATIONS[key].need):
            table.refuse(f"seen.{key}", f"must be left out: it needs {need.value}")
    if not asked:
        table.refuse("seen", "must name at least one expectation; without one the case shows nothing")
