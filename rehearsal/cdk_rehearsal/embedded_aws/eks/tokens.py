"""
Reviews the tokens of a cluster's API, as EKS does: each is a presigned GetCallerIdentity.

aws-iam-authenticator, pkg/token/token.go: the URL is that of STS in the region, its signed headers include the one that
names the cluster, its parameters are of a known list, and it is valid for 15 minutes, whatever the URL says. STS checks
the signature, which is computed again here.
"""

import base64
import binascii
import hmac
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from urllib.parse import parse_qsl, urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from cdk_rehearsal.embedded_aws.base.principals import Principal, PrincipalRegistry
from cdk_rehearsal.place import Place

CLUSTER_HEADER = "x-k8s-aws-id"
TOKEN_SECONDS = 900.0
_PREFIX = "k8s-aws-v1."
_STAMP = "%Y%m%dT%H%M%SZ"
_PARAMETERS = {
    *("action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires"),
    *("x-amz-security-token", "x-amz-signature", "x-amz-signedheaders"),
}


class TokenReader:
    """Finds the principals of tokens; `clock` returns seconds since the epoch."""

    def __init__(self, place: Place, principals: PrincipalRegistry, clock: Callable[[], float] = time.time) -> None:
        self._place, self._principals, self._clock = place, principals, clock
        self.token_seconds = TOKEN_SECONDS

    def find_sender(self, token: str, cluster: str) -> Principal | None:
        """Return the principal that signed a token for a cluster; None where the token is not valid."""
        url = _decode(token)
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if not self._is_request(url, query) or not self._is_fresh(query):
            return None
        key, date, region, service, _ = query["X-Amz-Credential"].split("/")
        known = self._principals.find(key)
        if known is None or (region, service) != (self._place.region, "sts") or query["X-Amz-Date"][:8] != date:
            return None
        credentials, principal = known
        if query.get("X-Amz-Security-Token", "") != credentials.session_token:
            return None
        signed = _sign(url, query, cluster, Credentials(key, credentials.secret_access_key), region)
        return principal if hmac.compare_digest(signed, query["X-Amz-Signature"]) else None

    def _is_request(self, url: str, query: Mapping[str, str]) -> bool:
        parts = urlsplit(url)
        names = {name.lower() for name in query}
        needed = _PARAMETERS - {"x-amz-security-token"}
        return (
            (parts.scheme, parts.path) == ("https", "/")
            and parts.netloc == f"sts.{self._place.region}.{self._place.url_suffix}"
            and needed <= names <= _PARAMETERS
            and query.get("Action") == "GetCallerIdentity"
            and sorted(query.get("X-Amz-SignedHeaders", "").split(";")) == ["host", CLUSTER_HEADER]
            and query.get("X-Amz-Credential", "").count("/") == 4  # noqa: PLR2004 - key, date, region, service, end
        )

    def _is_fresh(self, query: Mapping[str, str]) -> bool:
        try:
            begin = datetime.strptime(query["X-Amz-Date"], _STAMP).replace(tzinfo=timezone.utc).timestamp()
            seconds = int(query["X-Amz-Expires"])
        except ValueError:
            return False
        return 0 < seconds <= TOKEN_SECONDS and self._clock() < begin + self.token_seconds


def _decode(token: str) -> str:
    """Return the URL of a token; empty where it is none."""
    text = token.removeprefix(_PREFIX)
    if text == token:
        return ""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _sign(url: str, query: Mapping[str, str], cluster: str, credentials: Credentials, region: str) -> str:
    """Return the signature that a URL must have for a cluster."""
    parts = urlsplit(url)
    unsigned = "&".join(each for each in parts.query.split("&") if not each.startswith("X-Amz-Signature="))
    request = AWSRequest(
        "GET", parts._replace(query=unsigned).geturl(), headers={"host": parts.netloc, CLUSTER_HEADER: cluster}
    )
    request.context["timestamp"] = query["X-Amz-Date"]
    signer = SigV4Auth(credentials, "sts", region)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    return str(signer.signature(text, request))
