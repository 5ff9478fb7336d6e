"""The results of all cases in one file, `cases.json`; a single case that is rehearsed again replaces its own entry."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS_FILE = "cases.json"
_SLOWEST = 10

Result = dict[str, Any]


def summarize_report(document: Mapping[str, Any]) -> Result:
    """Return a case's entry, given the document of `report.json`: verdict, seconds, and the figures that there are."""
    case, cluster, training, count = (document[name] for name in ("case", "cluster", "training", "count"))
    ends = [phase["start"] + phase["seconds"] for phase in document["phases"]]
    figures = {
        "recovery_seconds": case["recovery_seconds"],
        "lost_commits": case["lost_commits"],
        "failure_seconds": case["failure_seconds"],
        "formation_seconds": cluster["formation_seconds"],
        "accuracy": training["accuracy"] if training else None,
        "ranks": count["ranks"] if count else None,
    }
    return {
        "verdict": document["verdict"],
        "seconds": round(max(ends, default=0.0), 1),
        "peak_memory_mib": document["peak_memory_mib"],
        **{name: round(value, 4) for name, value in figures.items() if value is not None},
        "requested": cluster["requested"],
        **({"formed": cluster["formed"]} if cluster["has_nodes"] else {}),
        "generation": cluster["generation"],
        "reasons": list(document["reasons"]),
    }


def read_results(out: Path) -> dict[str, Result]:
    """Return the results so far; what is not a file of results counts as none."""
    try:
        document = json.loads((out / RESULTS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def merge_result(out: Path, name: str, result: Result) -> None:
    """Write a case's entry beside those of other cases, whole or not at all."""
    merged = dict(sorted((read_results(out) | {name: result}).items()))
    unfinished = out / f".{RESULTS_FILE}.{os.getpid()}"
    unfinished.write_text(json.dumps(merged, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(out / RESULTS_FILE)


def render_results(results: Mapping[str, Result]) -> str:
    """Render a table for a terminal: a line a case, below it what does not hold, and at the end the slowest."""
    width = max([len(name) for name in results], default=0)
    lines = []
    for name, result in results.items():
        lines.append(render_line(f"{name:<{width}}", result))
        if result["verdict"] != "pass":
            lines += [f"{'':<{width}}  {reason}" for reason in result["reasons"]]
        if first := result.get("first"):
            beside = f"failed at first, beside {', '.join(first['beside'])}, and was rehearsed once more alone:"
            lines += [f"{'':<{width}}  {line}" for line in (beside, *first["reasons"])]
    slowest = sorted(results, key=lambda name: -results[name]["seconds"])[:_SLOWEST]
    passed = sum(result["verdict"] == "pass" for result in results.values())
    return "\n".join(
        [
            *lines,
            "slowest: " + ", ".join(f"{name} {results[name]['seconds']:.0f} s" for name in slowest),
            f"{passed} of {len(results)} cases passed",
        ]
    )


def render_line(name: str, result: Result) -> str:
    """Render a case's entry in a line."""
    recovery = result.get("recovery_seconds")
    went_on = "" if recovery is None else f"  training went on after {recovery:.1f} s"
    asked = "jobs alone" if "requested" in result else "not rehearsed"
    formed = f"{result['formed']} of {result['requested']} nodes" if "formed" in result else asked
    return f"{name}  {result['verdict']:<4}  {result['seconds']:>6.1f} s  {formed}{went_on}"
