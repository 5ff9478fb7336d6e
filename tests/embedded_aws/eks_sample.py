"""A deployed cluster, seen by its operator and by whoever sends a token."""

import base64
import contextlib
import itertools
import json
from urllib.parse import urlsplit, urlunsplit

import boto3
import pytest
from botocore.exceptions import ClientError

from cdk_rehearsal.kubernetes.api_client import ApiClient
from tests.embedded_aws.eks_template import NAME, NAMESPACE
from tests.embedded_aws.emr_template import allow, trust
from tests.real_time import wait_until

HASTE = {"minute_seconds": 0.01}
"""EKS waits for nodes for twenty minutes."""
_NUMBERS = itertools.count(1)


class Sample:
    """A deployed cluster."""

    def __init__(self, cloud, name=NAME):
        self.cloud, self.name = cloud, name
        self._clients, self._ids, self._nodes = {}, {}, []

    def client(self, service):
        """Return the operator's client of a service."""
        if service not in self._clients:
            self._clients[service] = self.cloud.client(service)
        return self._clients[service]

    @property
    def eks(self):
        return self.client("eks")

    @property
    def group(self):
        (name,) = self.eks.list_nodegroups(clusterName=self.name)["nodegroups"]
        return self.eks.describe_nodegroup(clusterName=self.name, nodegroupName=name)["nodegroup"]

    def take_node(self):
        """Return the next node that joined and that was not taken, with its machine."""
        line = self.cloud.next(lambda line: line["kind"] == "node")
        return line["node"] | {"machine": line["machine"]}

    def find_node(self):
        """Return a node of the stack's group, the same for each test."""
        if not self._nodes:
            self._nodes.append(self.take_node())
        return self._nodes[0]

    def physical_id(self, logical_id):
        if logical_id not in self._ids:
            self._ids[logical_id] = self.cloud.physical_id(logical_id)
        return self._ids[logical_id]

    def role(self, logical_id):
        return self.client("iam").get_role(RoleName=self.physical_id(logical_id))["Role"]["Arn"]

    def make_role(self, actions, **more):
        """Return a new role that may do actions."""
        name, policy = f"made-{next(_NUMBERS)}", allow(actions, **more)
        trusted = json.dumps(trust("ec2.amazonaws.com"))
        role = self.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=trusted)["Role"]
        document = json.dumps(policy["PolicyDocument"])
        self.client("iam").put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=document)
        return role["Arn"]

    def mint(self, role):
        """Return credentials of a role by its ARN."""
        return self.cloud.command("mint", role=role)

    @contextlib.contextmanager
    def permit(self, logical_id, actions, *more):
        """Let a role of the stack do these actions alone, and what more statements say, for a while."""
        iam, key = self.client("iam"), {"RoleName": self.physical_id(logical_id), "PolicyName": "own"}
        before = iam.get_role_policy(**key)["PolicyDocument"]
        policy = allow(actions)["PolicyDocument"]
        policy["Statement"] += [each["PolicyDocument"]["Statement"][0] for each in more]
        iam.put_role_policy(**key, PolicyDocument=json.dumps(policy))
        try:
            yield
        finally:
            iam.put_role_policy(**key, PolicyDocument=json.dumps(before))

    def request_group(self, **changes):
        """Return a request for a node group like that of the template; None removes a parameter."""
        request = {
            "clusterName": self.name,
            "nodegroupName": f"more-{next(_NUMBERS)}",
            "nodeRole": self.role("NodeRole"),
            "subnets": [self.physical_id("Subnet")],
            "amiType": "BOTTLEROCKET_x86_64",
            "instanceTypes": ["c5.2xlarge"],
            "launchTemplate": {"id": self.physical_id("Template")},
            "scalingConfig": {"minSize": 0, "desiredSize": 1, "maxSize": 1},
        }
        return {name: value for name, value in (request | changes).items() if value is not None}

    def refuse(self, operation, **request):
        """Return why EKS refuses a request."""
        with pytest.raises(ClientError) as caught:
            getattr(self.eks, operation)(**request)
        error = caught.value.response["Error"]
        return f"{error['Code']}: {error['Message']}"

    def refuse_group(self, **changes):
        """Return why EKS refuses a node group."""
        return self.refuse("create_nodegroup", **self.request_group(**changes))

    @contextlib.contextmanager
    def launch(self, **changes):
        """Launch a node group for a while; its state is the value when EKS waits for it no longer."""
        request = self.request_group(**changes)
        key = {name: request[name] for name in ("clusterName", "nodegroupName")}
        self.eks.create_nodegroup(**request)

        def find():
            group = self.eks.describe_nodegroup(**key)["nodegroup"]
            return group if group["status"] != "CREATING" else None

        try:
            yield wait_until(find)
        finally:
            self.eks.delete_nodegroup(**key)

    def join(self, **changes):
        """Launch a node group of one node, and return the node, which has gone again."""
        with self.launch(**changes) as group:
            assert group["status"] == "ACTIVE", group
            name = group["nodegroupName"]
            line = self.cloud.next(lambda line: line["kind"] == "node" and line["node"]["group"] == name)
        return line["node"] | {"machine": line["machine"]}

    def fail_to_join(self):
        """Launch a node group of one node in vain, and return why."""
        with self.launch() as group:
            assert group["status"] == "CREATE_FAILED", group
            (issue,) = group["health"]["issues"]
        assert issue["code"] == "NodeCreationFailure"
        return issue["message"]

    def review(self, token):
        """Return the user whom EKS sees behind a token."""
        return self.cloud.command("review", cluster=self.name, token=token)

    def make_token(self, keys, cluster=None, **more):
        """Return the token of `aws eks get-token` with credentials, for this cluster."""
        return make_token(keys, self.name if cluster is None else cluster, **more)

    def find_credentials(self, node=None, namespace=NAMESPACE, account="job"):
        """Return the credentials of pods of a service account, on a node or on any."""
        instance = node["machine"]["instance_id"] if node else ""
        pod = {"namespace": namespace, "service_account": account, "instance_id": instance}
        return self.cloud.command("find_pod_credentials", cluster=self.name, **pod)


class ServerAccess:
    """The API server of a deployed cluster, for whoever sends a token."""

    def __init__(self, sample, folder):
        self._sample = sample
        self._cluster = sample.eks.describe_cluster(name=sample.name)["cluster"]
        self._authority = folder / "authority.crt"
        self._authority.write_bytes(base64.b64decode(self._cluster["certificateAuthority"]["data"]))

    def sign_in(self, keys, **more):
        """Return a client with the token of credentials."""
        return ApiClient(self._cluster["endpoint"], self._authority, self._sample.make_token(keys, **more))


def make_token(keys, cluster, *, expires=60, tamper=lambda url: url, host="sts.us-east-1.amazonaws.com"):
    """Return the token of `aws eks get-token` with credentials, for a cluster."""
    sts = boto3.client(
        "sts",
        region_name="us-east-1",
        aws_access_key_id=keys["access_key_id"],
        aws_secret_access_key=keys["secret_access_key"],
        aws_session_token=keys["session_token"],
    )

    def add_cluster(request, **_):
        if cluster:
            request.headers["x-k8s-aws-id"] = cluster
        request.url = urlunsplit(("https", host, "/", urlsplit(request.url).query, ""))

    sts.meta.events.register("before-sign.sts.GetCallerIdentity", add_cluster)
    url = sts.generate_presigned_url("get_caller_identity", ExpiresIn=expires, HttpMethod="GET")
    return "k8s-aws-v1." + base64.urlsafe_b64encode(tamper(url).encode()).decode().rstrip("=")
