"""A function of a custom resource that refuses to be deleted."""

import http.client
import json
from urllib.parse import urlsplit


def handle(event, _context):
    """Send the response to CloudFormation; that to `Delete` is a failure."""
    answer = {name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    answer |= {"PhysicalResourceId": "thing", "Status": "SUCCESS"}
    if event["RequestType"] == "Delete":
        answer |= {"Status": "FAILED", "Reason": "still in use"}
    url = urlsplit(event["ResponseURL"])
    connection = http.client.HTTPConnection(url.netloc)
    connection.request("PUT", f"{url.path}?{url.query}", json.dumps(answer), {"Content-Type": ""})
    connection.getresponse()
