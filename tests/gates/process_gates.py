"""The gates that are programs of their own: checkov over templates, and bandit over our programs."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.gates.assembly import Assembly
from tests.gates.finding import Finding

CHECKOV, BANDIT = "checkov", "bandit"
SOURCES = "sources"

ROOT = Path(__file__).parents[2]
PROGRAMS = ("app.py", "stacks", "contract", "constructs", "lambda", "userdata", "view", "rehearsal", "cli", "docs")
_CHECKOV = ROOT / "build" / "checkov" / "bin" / "checkov"
_CHECKOV_RULES = "https://www.checkov.io/5.Policy%20Index/cloudformation.html"


class GateError(RuntimeError):
    """A gate could not look, which says nothing about what it was to look at."""


def check_with_checkov(assemblies: Sequence[Assembly]) -> list[Finding]:
    """
    Return what checkov finds in templates, in one run.

    Raises:
        GateError: It is not installed, or did not read a template.
    """
    if not _CHECKOV.exists():
        raise GateError(f"checkov must be installed in {_CHECKOV.parent}, got none; run make build/stamps/checkov")
    files = [argument for assembly in assemblies for argument in ("--file", str(assembly.file))]
    options = ["--framework", "cloudformation", "--compact", "--quiet", "--output", "json", "--skip-download"]
    environment = {**os.environ, "LOG_LEVEL": "ERROR"}
    done = subprocess.run(
        [_CHECKOV, *options, *files], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    try:
        report = json.loads(done.stdout)
    except ValueError as error:
        raise GateError(f"checkov must print a report, got {done.stdout[:200]!r} {done.stderr[-500:]}") from error
    resources = sum(len(assembly.template["Resources"]) for assembly in assemblies)
    if report["summary"]["parsing_errors"] or report["summary"]["resource_count"] != resources:
        raise GateError(f"checkov must read all {resources} resources, got {report['summary']}; look at the templates")
    by_file = {str(assembly.file.resolve()): assembly for assembly in assemblies}
    return [_read_check(by_file[entry["file_abs_path"]], entry) for entry in report["results"]["failed_checks"]]


def _read_check(assembly: Assembly, entry: dict[str, Any]) -> Finding:
    return Finding(
        gate=CHECKOV,
        preset=assembly.preset,
        rule=entry["check_id"],
        place=assembly.place(entry["resource"].rpartition(".")[2]),
        what=entry["check_name"],
        more=entry.get("guideline") or _CHECKOV_RULES,
    )


def check_with_bandit(programs: Sequence[str] = PROGRAMS) -> list[Finding]:
    """
    Return what bandit finds in programs, of medium and high severity; no comment can hide a line.

    Args:
        programs: Files and folders, from the repository's root. Default: everything that users run.

    Raises:
        GateError: It could not read a program.
    """
    options = ["--recursive", "--severity-level", "medium", "--ignore-nosec", "--format", "json", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "bandit", *options, *programs], cwd=ROOT, capture_output=True, text=True, check=False
    )
    try:
        report = json.loads(done.stdout)
    except ValueError as error:
        raise GateError(f"bandit must print a report, got {done.stdout[:200]!r} {done.stderr[-500:]}") from error
    if report["errors"] or not report["metrics"]["_totals"]["loc"]:
        raise GateError(f"bandit must read every program, got {report['errors'] or 'no line of code'}; mend them")
    return [
        Finding(
            gate=BANDIT,
            preset=SOURCES,
            rule=entry["test_id"],
            place=f"{entry['filename']}:{entry['line_number']}",
            what=entry["issue_text"],
            more=entry["more_info"],
        )
        for entry in report["results"]
    ]
