"""
Stands in for cfn-signal of aws-cfn-bootstrap: signals a resource with a creation policy, or a wait condition.

A resource is signalled with the identity document of the instance, as the real program does without credentials.
"""

import argparse
import base64
import http.client
import json
import os
import sys
import urllib.parse
from collections.abc import Sequence

from .session_agent import read_metadata

_SECONDS = 30


def main(arguments: Sequence[str]) -> int:
    """Signal, and return 0; 1 where nobody took the signal."""
    options = _make_parser().parse_args(arguments)
    status = "SUCCESS" if options.success == "true" and options.exit_code == 0 else "FAILURE"
    try:
        instance_id = options.id or read_metadata("/latest/meta-data/instance-id")
        if options.url:
            signal = {"Status": status, "UniqueId": instance_id, "Reason": options.reason, "Data": options.data}
            _send("PUT", options.url, {"Content-Type": ""}, json.dumps(signal))
        else:
            _signal(options.stack, options.resource, instance_id, status)
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"Error occurred during signal: {error}\n")
        return 1
    return 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("cfn-signal")
    parser.add_argument("url", nargs="?", default="")
    for names in (["--stack"], ["--resource"], ["--region"], ["-r", "--reason"], ["-d", "--data"], ["-i", "--id"]):
        parser.add_argument(*names, default="")
    # Who calls and where does not matter here: the identity document says it.
    for name in ("--url", "--role", "--access-key", "--secret-key", "--credential-file", "--http-proxy"):
        parser.add_argument(name, dest="unused")
    parser.add_argument("--https-proxy", dest="unused")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-e", "--exit-code", type=int, default=0)
    parser.add_argument("-s", "--success", choices=("true", "false"), default="true")
    return parser


def _signal(stack: str, resource: str, instance_id: str, status: str) -> None:
    document = read_metadata("/latest/dynamic/instance-identity/document")
    signature = read_metadata("/latest/dynamic/instance-identity/signature")
    parameters = {
        "Action": "SignalResource",
        "Version": "2010-05-15",
        "StackName": stack,
        "LogicalResourceId": resource,
        "UniqueId": instance_id,
        "Status": status,
    }
    header = f"CFN_V1 {base64.b64encode(document.encode()).decode()}:{signature}"
    url = f"{os.environ['AWS_ENDPOINT_URL']}/?{urllib.parse.urlencode(parameters)}"
    _send("GET", url, {"Authorization": header})


def _send(method: str, url: str, headers: "dict[str, str]", body: "str | None" = None) -> None:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=_SECONDS)
    connection.request(method, f"{parts.path}?{parts.query}", body=body, headers=headers)
    answer = connection.getresponse()
    if answer.status != http.client.OK:
        raise OSError(f"{answer.status} {answer.reason}: {answer.read(500).decode(errors='replace')}")
