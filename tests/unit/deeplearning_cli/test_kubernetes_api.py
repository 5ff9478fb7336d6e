"""Token and client of a cluster on EKS, against the rehearsal's Kubernetes."""

import base64
import hashlib
import hmac
import ssl
from dataclasses import replace
from urllib.parse import parse_qs, quote, urlsplit

import boto3
import pytest

from cdk_rehearsal.kubernetes.certificates import make_certificates
from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.errors import UnavailableError
from deeplearning_cli.kubernetes.client import KubernetesApi, ServerError
from deeplearning_cli.kubernetes.token import RENEW_SECONDS, make_token
from deeplearning_contract.jobs.kubernetes_cluster import make_cluster_objects
from tests.conftest import NOBODY_LISTENS
from tests.unit.deeplearning_cli.conftest import SUBMITTER
from tests.unit.deeplearning_contract.test_kubernetes_job import KUBERNETES

REGION = "eu-west-1"
SESSION = boto3.session.Session("AKIDEXAMPLE", "secret", "session", region_name=REGION)
ACCESS = CloudAccess(SESSION.client, REGION, None)
MANAGED_BY = "app.kubernetes.io/managed-by"
FORBIDDEN = (
    'persistentvolumes "nfs-data" is forbidden: User "arn:aws:iam::111122223333:role/Researchers" cannot patch '
    'resource "persistentvolumes" in API group "" at the cluster scope'
)
"""Words of Kubernetes 1.36.2."""


def read_url(token):
    """Return the signed request that EKS finds in a token (aws-iam-authenticator, pkg/token/token.go)."""
    assert token.startswith("k8s-aws-v1.")
    text = token.removeprefix("k8s-aws-v1.")
    return urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())


def sign(url, cluster_name):
    """Return the signature that STS computes of a request with the cluster's header (IAM User Guide, SigV4)."""
    query = {name: values[0] for name, values in parse_qs(url.query).items() if name != "X-Amz-Signature"}
    line = "&".join(f"{quote(name, safe='')}={quote(query[name], safe='')}" for name in sorted(query))
    headers = f"host:{url.netloc}\nx-k8s-aws-id:{cluster_name}\n"
    canonical = "\n".join(["GET", "/", line, headers, "host;x-k8s-aws-id", hashlib.sha256(b"").hexdigest()])
    stamp = query["X-Amz-Date"]
    scope = f"{stamp[:8]}/{REGION}/sts/aws4_request"
    key = b"AWS4secret"
    for part in (
        *scope.split("/"),
        f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}",
    ):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


def test_a_token_is_the_signed_call_of_sts_with_the_clusters_name():
    url = read_url(make_token(ACCESS, KUBERNETES))
    query = parse_qs(url.query)
    # The tests' own endpoint of AWS, in AWS_ENDPOINT_URL, is not where EKS calls STS.
    assert (url.scheme, url.netloc, url.path) == ("https", f"sts.{REGION}.amazonaws.com", "/")
    assert (query["Action"], query["X-Amz-Expires"]) == (["GetCallerIdentity"], ["60"])
    assert query["X-Amz-Signature"] == [sign(url, KUBERNETES.cluster_name)]
    assert query["X-Amz-Signature"] != [sign(url, "another")]


def test_a_token_of_another_cluster_is_another_one():
    client = SESSION.client("sts")
    access = CloudAccess(lambda _: client, REGION, None)
    make_token(access, replace(KUBERNETES, cluster_name="another"))
    url = read_url(make_token(access, KUBERNETES))
    assert parse_qs(url.query)["X-Amz-Signature"] == [sign(url, KUBERNETES.cluster_name)]


def test_in_china_sts_has_its_own_domain():
    url = read_url(make_token(ACCESS, replace(KUBERNETES, region="cn-north-1")))
    assert url.netloc == "sts.cn-north-1.amazonaws.com.cn"


def test_a_token_without_credentials_is_refused(monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    access = CloudAccess(boto3.session.Session(region_name=REGION).client, REGION, None)
    with pytest.raises(UnavailableError, match="could not sign the token of cluster Train-0123abcd: Unable to locate"):
        make_token(access, KUBERNETES)


def test_a_token_is_renewed_after_ten_minutes_and_where_the_server_refuses_it(cluster):
    now = [0.0]
    made = []
    clients = lambda service: made.append(service) or SESSION.client(service)  # noqa: E731
    api = KubernetesApi(CloudAccess(clients, REGION, None), cluster.settings, lambda: now[0])
    api.find("Job", "absent")
    api.find("Job", "absent")
    assert len(made) == 1
    now[0] = RENEW_SECONDS
    api.find("Job", "absent")
    assert len(made) == 2
    cluster.callers.refused = 1
    assert api.find("Job", "absent") is None
    assert len(made) == 3


def test_the_refusal_of_a_caller_without_an_access_entry_says_so(cluster):
    cluster.callers.refused = 2
    with pytest.raises(ServerError, match="Unauthorized; an access entry of the cluster must have the caller's role"):
        KubernetesApi(ACCESS, cluster.settings).find("Job", "absent")


def test_a_missing_right_is_in_the_servers_words(cluster):
    cluster.callers.user = SUBMITTER
    volume = make_cluster_objects(cluster.settings, {})[2]
    with pytest.raises(ServerError) as caught:
        KubernetesApi(ACCESS, cluster.settings).apply(volume)
    assert str(caught.value).startswith(f"{FORBIDDEN}; the stack's grant_submit grants the use of jobs")


def test_the_authority_of_eks_is_accepted_where_python_checks_strictly(cluster, monkeypatch):
    """The authority of the tests' control plane is made as that of EKS."""
    create = ssl.create_default_context

    def create_strictly(*arguments, **options):
        """Return a context as Python 3.13 does (its documentation, ssl.create_default_context)."""
        context = create(*arguments, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", create_strictly)
    assert KubernetesApi(ACCESS, cluster.settings).find("Job", "absent") is None


def test_another_authority_is_refused(cluster, tmp_path):
    authority = base64.b64encode(make_certificates(tmp_path, ["127.0.0.1"]).authority.read_bytes()).decode()
    with pytest.raises(UnavailableError, match=r"could not reach the API server .*certificate verify failed"):
        KubernetesApi(ACCESS, replace(cluster.settings, authority=authority)).find("Job", "absent")


def test_an_api_server_that_does_not_respond_is_private(cluster):
    settings = replace(cluster.settings, endpoint=NOBODY_LISTENS.replace("http:", "https:"))
    with pytest.raises(UnavailableError, match="it is private unless the stack's api_from names the caller's network"):
        KubernetesApi(ACCESS, settings).find("Job", "absent")


def test_objects_are_applied_by_one_manager_whoever_changed_them(cluster):
    namespace = make_cluster_objects(cluster.settings, {})[0]
    changed = {**namespace, "metadata": {"name": cluster.namespace, "labels": {MANAGED_BY: "somebody"}}}
    assert cluster.admin.apply(changed, manager="somebody").code == 201
    metadata = KubernetesApi(ACCESS, cluster.settings).apply(namespace)["metadata"]
    assert metadata["labels"][MANAGED_BY] == "deeplearning-cdk"
    assert ("deeplearning-cdk", "Apply") in {(each["manager"], each["operation"]) for each in metadata["managedFields"]}
