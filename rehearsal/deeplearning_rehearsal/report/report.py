"""
The report of a rehearsal: JSON for programs, and sections of rows that a terminal and the page show.

Its schema is public; keys are added, never renamed. `requested` and `formed` count the master; contract values are the
strings that the nodes' shells print.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from cdk_rehearsal.report.report import STAND_IN, Section
from deeplearning_rehearsal.checks.contract_check import IN_SYSTEMD

Document = dict[str, Any]
"""The report as `report.json` holds it."""


_CHANGED = (
    "the template, user data, programs and functions are deployed byte for byte, but for these values, which this "
    "machine or the command line decides:"
)


def list_sections(report: Document) -> tuple[Section, ...]:
    """Return what a reader wants to know, in the order in which it is shown."""
    stack, cluster, environment, training = (report[name] for name in ("stack", "cluster", "environment", "training"))
    status = f"{stack['name']}  {stack['status']}  {sum(stack['resources'].values())} resources"
    changes = tuple(f"{what}: {value}" for what, value in stack["overrides"].items())
    return (
        Section("verdict", (f"{report['verdict'].upper()} (expected: {report['expected']})", *report["reasons"])),
        *(_list_case(report["case"]) if report["case"] else ()),
        Section("stack", (status, stack["reason"])),
        Section("changed", (_CHANGED, *changes) if changes else ()),
        Section("cluster", (_describe_cluster(cluster), cluster["reason"]) if cluster["has_nodes"] else ()),
        Section("kubernetes", tuple(report["kubernetes"])),
        Section("node", (*map(_describe_node, report["nodes"]), *_list_exceptions(report["nodes"]))),
        Section("software", (describe_environment(environment),) if environment else ()),
        Section("training", (_describe_training(training),) if training else ()),
        Section("job", (f"counts {_describe_ranks(report['count'])}",) if report["count"] else ()),
        Section(
            "launcher",
            tuple(describe_way(name, way) for name, tried in report["launchers"].items() for way in tried["ways"]),
        ),
        Section("phases", ("  ".join(f"{phase['name']} {phase['seconds']:.1f} s" for phase in report["phases"]),)),
        Section("paid", _describe_paid(report["paid_seconds"])),
        Section("memory", (f"at most {report['peak_memory_mib']} MiB for the whole lab",)),
    )


def list_text(report: Document) -> tuple[Section, ...]:
    """Return all that report.txt has."""
    return (*list_sections(report), Section("run", (describe_run(report),)), Section(STAND_IN, _list_stand_ins(report)))


def _describe_paid(seconds: Mapping[str, float]) -> tuple[str, ...]:
    parts = [f"{cause} {value:.1f}" for cause, value in sorted(seconds.items(), key=lambda item: -item[1]) if value]
    return (f"{sum(seconds.values()):.1f} seconds of all nodes: {', '.join(parts)}",) if parts else ()


def describe_run(report: Document) -> str:
    """Say in a line when which version rehearsed, and in which order resources were created."""
    run = report["run"]
    at = datetime.fromisoformat(run["at"])
    return f"{at:%Y-%m-%d %H:%M} UTC, deeplearning-cdk {run['version']}, order of creation: --seed {run['seed']}"


def _list_stand_ins(report: Document) -> tuple[str, ...]:
    return tuple(f"{each['name']} for {each['replaces']}: {each['does']}" for each in report["stand_ins"])


def list_details(report: Document) -> tuple[Section, ...]:
    """Return what only the page shows, folded."""
    nodes, calls = report["nodes"], report["cluster"]["aws_calls_by_name"]
    ways = [way for tried in report["launchers"].values() for way in tried["ways"]]
    checks = [
        f"{node['host']} ({node['instance_id']}): "
        + ", ".join(f"{'✓' if held else '✗'} {name}" for name, held in node["checks"].items())
        for node in nodes
    ]
    return (
        Section("Stand-ins: the parts that are not the real thing", _list_stand_ins(report)),
        Section("Checks of each node", tuple(checks)),
        Section(
            "The contract",
            tuple(f"{node['host']}: {'  '.join(map('='.join, node['contract'].items()))}" for node in nodes),
        ),
        Section("Commands of launchers", tuple(way["command"] for way in ways)),
        Section("AWS calls until the cluster formed", tuple(f"{name}: {count}" for name, count in calls.items())),
        Section(
            "Everything that happened",
            tuple(f"{entry['at']:.1f} s  {entry['lane']}  {entry['text']}" for entry in report["timeline"]),
        ),
    )


def describe_environment(environment: Mapping[str, Any]) -> str:
    """Say in a line what jobs run in."""
    if not environment["key"]:
        return f"{environment['state']}: {environment['detail'] or 'nothing was said of it'}"
    came = "of an earlier rehearsal, from the cache" if environment["state"] == "kept" else "made in this rehearsal"
    parts = "".join(f"; {part} from {origin}" for part, origin in environment["origins"].items())
    return (
        f"{environment['key']}, {came}, by {environment['built_by']} in {environment['build_seconds']:.0f} s{parts}; "
        f"the master says: {environment['detail']}"
    )


def describe_way(name: str, way: Mapping[str, Any]) -> str:
    """Say in a line how a launcher did one way."""
    begin, seconds = f"{name} ({way['kind']})", f"{way['seconds']:.1f} s"
    if way["problems"]:
        return f"{begin} FAILED after {seconds}: {'; '.join(way['problems'])}"
    if way["kind"] == "look":
        return f"{begin}: as promised, {seconds}: {way['command']}"
    return f"{begin}: {way['result']['framework']}, {_describe_job(way['result'])}, {seconds}"


def _list_case(case: Mapping[str, Any]) -> Iterator[Section]:
    yield Section("case", (f"{case['name']}: {case['title']}",))
    injections = [
        f"{entry['at']:.1f} s: {entry['what']} ({entry['when']}) {entry['instance_id']}".rstrip()
        for entry in case["injections"]
    ]
    yield Section("injected", tuple(injections))
    for title, held in (("NOT SEEN", False), ("seen", True)):
        found = [f"{entry['expectation']}: {entry['found']}" for entry in case["findings"] if entry["held"] is held]
        yield Section(title, tuple(found))


def _describe_cluster(cluster: Mapping[str, Any]) -> str:
    seconds, bound, calls, logs = (
        cluster[name] for name in ("formation_seconds", "aws_call_bound", "aws_calls", "log_calls")
    )
    formed = "not formed" if seconds is None else f"formed in {seconds:.1f} s"
    function = cluster["aws_calls_by_kind"].get("lambda", 0)
    of_nodes = f"nodes {calls - function - logs}" + ("" if bound is None else f", bound {bound}")
    return (
        f"{cluster['formed']} of {cluster['requested']} nodes, generation {cluster['generation']}, {formed}, "
        f"{calls} AWS calls ({of_nodes}; logs {logs}; Lambda {function})"
    )


def _describe_node(node: Mapping[str, Any]) -> str:
    checks = node["checks"]
    failed = [name for name, held in checks.items() if not held]
    found = f"{len(failed)} of {len(checks)} checks FAILED: {', '.join(failed)}"
    kept = found if failed else f"all {len(checks)} checks hold"
    return f"{node['host']:<22} {node['role']:<7} {node['address']:<15} {kept}"


def _list_exceptions(nodes: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Name what is not checked in containers."""
    checked = not nodes or any(IN_SYSTEMD in node["checks"] for node in nodes)
    return () if checked else (f"not checked: {IN_SYSTEMD}, since containers have no systemd",)


def _describe_training(training: Mapping[str, Any]) -> str:
    return (
        f"{training['launcher']} with {training['framework']}: {_describe_job(training, training['dataset'])}, "
        f"{training['seconds']:.1f} s"
    )


def _describe_job(result: Mapping[str, Any], *more: str) -> str:
    return ", ".join((_describe_ranks(result), *more, f"held-out accuracy {result['accuracy']:.3f}"))


def _describe_ranks(result: Mapping[str, Any]) -> str:
    return f"{result['ranks']} ranks on {len(set(result['hosts']))} hosts"
