"""The signature of an instance's identity document, by which CloudFormation knows who signals a resource."""

import base64
import hashlib
import hmac
import json
import secrets

_KEY = secrets.token_bytes(32)
"""Of this process, which serves both the metadata of instances and the embedded AWS."""
SCHEME = "CFN_V1 "
"""Of an `Authorization` header with document and signature, which cfn-signal sends (aws-cfn-bootstrap's CFNSigner)."""


def sign_document(document: str) -> str:
    """Return the signature of an identity document, in base64."""
    return base64.b64encode(hmac.digest(_KEY, document.encode(), hashlib.sha256)).decode()


def read_instance(header: str) -> str | None:
    """Return the id of the instance whose signed document an `Authorization` header holds; None for any other."""
    encoded, _, signature = header.removeprefix(SCHEME).partition(":")
    try:
        document = base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return None
    if not header.startswith(SCHEME) or not hmac.compare_digest(sign_document(document), signature):
        return None
    return str(json.loads(document)["instanceId"])
