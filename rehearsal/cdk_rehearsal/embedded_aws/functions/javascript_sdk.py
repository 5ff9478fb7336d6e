"""
The AWS SDK for JavaScript 3, which Lambda's Node.js runtimes have beside a function's code.

All of it is hundreds of packages, so that only those come from npm that functions name, as they were on one day.
"""

import hashlib
import os
import re
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.cache import fill_once
from cdk_rehearsal.embedded_aws.functions.interpreters import NODE, find_node
from cdk_rehearsal.errors import UnavailableError

_DAY = "2026-11-20"
"""Packages are those of this day; each of them has versions of its own."""
_MAJOR = 3
_SCRIPTS = (".js", ".mjs", ".cjs")
_NAMED = re.compile(r"""(?:\brequire\(|\bfrom|\bimport)[\s(]*["'`](@aws-sdk/[a-z0-9-]+)["'`/]""")
_SERVICE = re.compile(r'"service":"([^"]+)"')
"""In a call of `AwsCustomResource`, which is JSON in a property of the resource."""
_CLIENT = "@aws-sdk/client-"
_LAST_LINES = 3


def prepare_sdk(stacks: Sequence[AssemblyStack], cache: Path, report: Callable[[str], None]) -> Path | None:
    """
    Return the folder of the packages that functions of stacks name, fetched when the cache has it not.

    None where they name none. UnavailableError when they cannot be fetched.
    """
    packages = sorted({name for stack in stacks for name in find_packages(stack)})
    if not packages:
        return None
    key = hashlib.sha256(repr((_DAY, packages)).encode()).hexdigest()[:16]
    return fill_once(cache, f"aws-sdk-js-{key}", partial(_fetch, packages, report), report) / "node_modules"


def find_packages(stack: AssemblyStack) -> set[str]:
    """Return the packages of the SDK that the Node.js functions of a stack name, and do not bring themselves."""
    resources = [resource for template in stack.templates for resource in template.get("Resources", {}).values()]
    functions = [each.get("Properties", {}) for each in resources if each.get("Type") == "AWS::Lambda::Function"]
    packages, scripts = set[str](), list[str]()
    for function in functions:
        if str(function.get("Runtime", "")).startswith(NODE):
            files = dict(_read_code(function.get("Code", {}), stack))
            named = {name for path, text in files.items() if not _is_brought(path) for name in _NAMED.findall(text)}
            packages |= {name for name in named if not any(f"node_modules/{name}/" in path for path in files)}
            scripts += [text for path, text in files.items() if not _is_brought(path)]
    if not scripts:
        return set()
    custom = (each for each in resources if str(each.get("Type", "")).startswith("Custom::"))
    services = {name for each in custom for name in _SERVICE.findall("".join(_list_texts(each.get("Properties", {}))))}
    return packages | {_name_client(service, scripts) for service in services}


def _name_client(service: str, scripts: Sequence[str]) -> str:
    """Return the package of a service, as the handler of `AwsCustomResource` does: it has a table of other names."""
    name = service.lower().removeprefix(_CLIENT)
    entry = re.compile(rf"""(?<![\w-])["']?{re.escape(name)}["']?:["']([a-z0-9-]+)["']""")
    found = next((match[1] for text in scripts if (match := entry.search(text))), name)
    return _CLIENT + found


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for entry in value.values() if isinstance(value, Mapping) else value:
            yield from _list_texts(entry)


def _read_code(code: Mapping[str, Any], stack: AssemblyStack) -> Iterator[tuple[str, str]]:
    """Yield path and text of a function's scripts; of packages that it brings along the path alone."""
    if "ZipFile" in code:
        yield "index.js", "".join(_list_texts(code["ZipFile"]))
    for asset in stack.assets:
        if asset.key != code.get("S3Key"):
            continue
        if asset.path.is_dir():
            for path in sorted(asset.path.rglob("*")):
                name = path.relative_to(asset.path).as_posix()
                if path.suffix in _SCRIPTS and path.is_file():
                    yield name, "" if _is_brought(name) else path.read_text(errors="replace")
        elif zipfile.is_zipfile(asset.path):
            with zipfile.ZipFile(asset.path) as archive:
                for name in archive.namelist():
                    if name.endswith(_SCRIPTS):
                        yield name, "" if _is_brought(name) else archive.read(name).decode(errors="replace")


def _is_brought(path: str) -> bool:
    return "node_modules/" in path


def _fetch(packages: Sequence[str], report: Callable[[str], None], work: Path) -> Path:
    report(f"fetching {len(packages)} packages of the AWS SDK for JavaScript, once: {', '.join(packages)}")
    folder = work / "sdk"
    folder.mkdir()
    node = find_node()
    npm = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    options = ("--no-save", "--no-package-lock", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund")
    wanted = [f"{name}@{_MAJOR}" for name in packages]
    command = [str(node), str(npm), "install", "--prefix", str(folder), f"--before={_DAY}", *options, *wanted]
    environment = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    if answer.returncode != 0:
        last = " | ".join(answer.stderr.strip().splitlines()[-_LAST_LINES:])
        raise UnavailableError(
            f"the AWS SDK for JavaScript must be there for functions that name {', '.join(packages)}, npm says: {last}"
            "; rehearse once where npm reaches its registry, or give --cache a folder that has it"
        )
    return folder
