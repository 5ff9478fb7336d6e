"""Token by which the API server of a cluster on EKS knows the caller: a signed request for the caller's identity."""

import base64
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.errors import UnavailableError
from deeplearning_contract.jobs.submission import KubernetesSettings

RENEW_SECONDS = 600.0
"""Age at which a token is replaced; EKS takes it for 15 minutes (aws-iam-authenticator, pkg/token/token.go)."""
_PREFIX = "k8s-aws-v1."
_CLUSTER_HEADER = "x-k8s-aws-id"
_URL_SECONDS = 60
"""Life of the signed request, as `aws eks get-token` gives it."""


def make_token(access: CloudAccess, settings: KubernetesSettings) -> str:
    """
    Return the token of `aws eks get-token` for a cluster; it is made without a call to AWS.

    Raises:
        UnavailableError: There are no credentials.
    """
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - slow

    def add_cluster(request: Any, **_: Any) -> None:
        request.headers[_CLUSTER_HEADER] = settings.cluster_name
        # EKS calls STS itself, at its own address, whatever endpoint the caller has configured.
        suffix = "amazonaws.com.cn" if settings.region.startswith("cn-") else "amazonaws.com"
        parts = urlsplit(request.url)
        request.url = urlunsplit(("https", f"sts.{settings.region}.{suffix}", "/", parts.query, ""))

    sts = access.clients("sts")
    events = sts.meta.events
    events.register("before-sign.sts.GetCallerIdentity", add_cluster)
    try:
        url = sts.generate_presigned_url("get_caller_identity", ExpiresIn=_URL_SECONDS, HttpMethod="GET")
    except BotoCoreError as error:
        raise UnavailableError(f"could not sign the token of cluster {settings.cluster_name}: {error}") from error
    finally:
        events.unregister("before-sign.sts.GetCallerIdentity", add_cluster)
    return _PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
