"""
Code that a template has in itself, as CloudFormation packs it (template reference, "AWS::Lambda::Function Code").

The response module comes along where the code asks for it, as the user guide says ("cfn-response module"); these are
modules of the rehearsal's own, with that page's names, arguments and body of the response.
"""

import io
import re
import zipfile
from collections.abc import Mapping

_MOST_BYTES = 4 * 1024 * 1024
"""Of the zip file ("This zip file cannot exceed 4MB")."""
_PYTHON_RESPONSE = '''"""Sends the response of a custom resource."""

import json
import urllib.request

SUCCESS = "SUCCESS"
FAILED = "FAILED"


def send(event, context, responseStatus, responseData, physicalResourceId=None, noEcho=False, reason=None):
    """Send the response to the request of an event; what goes wrong is printed."""
    body = json.dumps(
        {
            "Status": responseStatus,
            "Reason": reason or f"See the details in CloudWatch Log Stream: {context.log_stream_name}",
            "PhysicalResourceId": physicalResourceId or context.log_stream_name,
            "StackId": event["StackId"],
            "RequestId": event["RequestId"],
            "LogicalResourceId": event["LogicalResourceId"],
            "NoEcho": noEcho,
            "Data": responseData,
        }
    ).encode()
    request = urllib.request.Request(event["ResponseURL"], data=body, headers={"Content-Type": ""}, method="PUT")
    try:
        with urllib.request.urlopen(request) as answer:
            print("Status code:", answer.status)
    except Exception as error:
        print("send(..) failed executing the request:", error)
'''
_NODE_RESPONSE = """"use strict";

const https = require("https");

exports.SUCCESS = "SUCCESS";
exports.FAILED = "FAILED";

// Sends the response to the request of an event, and ends the invocation where the runtime lets a context do that.
exports.send = function (event, context, responseStatus, responseData, physicalResourceId, noEcho) {
  const body = JSON.stringify({
    Status: responseStatus,
    Reason: `See the details in CloudWatch Log Stream: ${context.logStreamName}`,
    PhysicalResourceId: physicalResourceId || context.logStreamName,
    StackId: event.StackId,
    RequestId: event.RequestId,
    LogicalResourceId: event.LogicalResourceId,
    NoEcho: noEcho || false,
    Data: responseData,
  });
  const url = new URL(event.ResponseURL);
  const headers = { "content-type": "", "content-length": Buffer.byteLength(body) };
  const options = { hostname: url.hostname, port: 443, path: url.pathname + url.search, method: "PUT", headers };
  return new Promise((resolve) => {
    const end = () => {
      context.done?.();
      resolve();
    };
    const request = https.request(options, (answer) => {
      console.log(`Status code: ${answer.statusCode}`);
      answer.resume();
      end();
    });
    request.on("error", (error) => {
      console.log(`send(..) failed executing https.request(..): ${error}`);
      end();
    });
    request.end(body);
  });
};
"""
_MODULES: Mapping[str, tuple[str, str, str, str]] = {
    "python": ("index.py", r"^\s*import cfnresponse\b", "cfnresponse.py", _PYTHON_RESPONSE),
    "nodejs": ("index.js", r"require\(\s*['\"]cfn-response['\"]\s*\)", "cfn-response.js", _NODE_RESPONSE),
}
"""Language -> the code's file, how it asks for the response module, that module's file, and its text."""


def pack_inline_code(text: str, runtime: str) -> bytes:
    """Return the deployment package of a function's inline code; ValueError where it is too large."""
    language = next((name for name in _MODULES if runtime.startswith(name)), "")
    if not language:
        raise ValueError(f"ZipFile must be code of Node.js or Python, got {runtime}")
    name, pattern, module, module_text = _MODULES[language]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
        if re.search(pattern, text, re.MULTILINE):
            archive.writestr(module, module_text)
    if len(buffer.getvalue()) > _MOST_BYTES:
        raise ValueError(f"ZipFile must be at most 4 MB as a zip file, got {len(buffer.getvalue())} bytes")
    return buffer.getvalue()
