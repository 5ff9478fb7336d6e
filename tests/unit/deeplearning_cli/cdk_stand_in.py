"""
The CDK CLI of the tests: `synth` copies an assembly, and `deploy` creates or updates a stack at CloudFormation.

It acts as aws-cdk 2.1148.1 does, which deletes a stack in ROLLBACK_COMPLETE or ROLLBACK_FAILED before it creates it
anew (deploy-stack.ts, `isCreationFailure`).
"""

import json
import os
import re
import socket
import sys
from pathlib import Path
from urllib.parse import urlencode


def act(folder, words, environment):
    """Do what the words of a command say, with the files of a folder; return the exit status."""
    region = environment["AWS_REGION"]
    with (folder / "calls").open("a") as calls:
        calls.write(json.dumps([region, *words]) + "\n")
    if words[0] == "synth":
        out = Path(words[words.index("--output") + 1])
        out.mkdir(parents=True, exist_ok=True)
        for name in ("manifest.json", "t.template.json"):
            (out / name).write_text((folder / name).read_text().replace("REGION", region))
        return 0
    if (folder / "gate").exists():
        (folder / "gate").read_text()
    if (folder / "ends").exists():
        return int((folder / "ends").read_text())
    return deploy(region, environment["AWS_ENDPOINT_URL"])


def deploy(region, endpoint):
    """Create the stack, or update it; return the exit status."""

    def call(action, **values):
        body = urlencode({"Action": action, "StackName": "training", **values})
        scope = f"testing/20260101/{region}/cloudformation/aws4_request"
        head = [
            "POST / HTTP/1.0",
            f"Host: cloudformation.{region}.amazonaws.com",
            "Content-Type: application/x-www-form-urlencoded",
            f"Content-Length: {len(body)}",
            f"Authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
        ]
        host, port = endpoint.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall("\r\n".join([*head, "", body]).encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        return "".join(re.findall("<StackStatus>(.*?)<", answer))

    template = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}, "Description": os.urandom(4).hex()}
    before = call("DescribeStacks")
    if before in ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED"):
        call("DeleteStack")
        before = ""
    call("UpdateStack" if before else "CreateStack", TemplateBody=json.dumps(template))
    return int(call("DescribeStacks") not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"))


if __name__ == "__main__":
    sys.exit(act(Path(sys.argv[1]), sys.argv[2:], os.environ))
