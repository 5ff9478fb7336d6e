"""User data that EKS gives to the instances of a managed node group, and labels that they have anyway."""

import base64
from collections.abc import Mapping, Sequence

from cdk_rehearsal.embedded_aws.eks.cluster import Cluster
from cdk_rehearsal.embedded_aws.eks.host import Taint
from cdk_rehearsal.machine import Machine

_NODE_CONFIG = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

---
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: {name}
    apiServerEndpoint: {endpoint}
    certificateAuthority: {authority}
  kubelet:
    flags:
      - "--node-labels={labels}"
      - "--register-with-taints={taints}"

--//--
"""
_BOTTLEROCKET = """[settings.kubernetes]
api-server = "{endpoint}"
cluster-certificate = "{authority}"
cluster-name = "{name}"

[settings.kubernetes.node-labels]
{labels}

[settings.kubernetes.node-taints]
{taints}
"""


def make_user_data(cluster: Cluster, ami_type: str, labels: Mapping[str, str], taints: Sequence[Taint]) -> str:
    """
    Return the user data of nodes in base64, which nothing boots here: nodes are recorded, and pods run without them.

    Bottlerocket takes settings, Amazon Linux 2023 a document of nodeadm (EKS user guide, "Customize managed nodes with
    launch templates"; Bottlerocket documentation, "settings.kubernetes").
    """
    assert cluster.running is not None
    own = {"name": cluster.name, "endpoint": cluster.running.endpoint, "authority": cluster.running.authority}
    if ami_type.startswith("BOTTLEROCKET"):
        pairs = "\n".join(f'"{key}" = "{value}"' for key, value in labels.items())
        listed = "\n".join(f'"{each.key}" = ["{each.value}:{each.effect}"]' for each in taints)
        text = _BOTTLEROCKET.format(**own, labels=pairs, taints=listed)
    else:
        pairs = ",".join(f"{key}={value}" for key, value in labels.items())
        listed = ",".join(f"{each.key}={each.value}:{each.effect}" for each in taints)
        text = _NODE_CONFIG.format(**own, labels=pairs, taints=listed)
    return base64.b64encode(text.encode()).decode()


def describe_place(machine: Machine, name: str, ami_type: str) -> dict[str, str]:
    """Return the labels that say where a node is, which the kubelet and the cloud controller give it."""
    return {
        "kubernetes.io/arch": "arm64" if "ARM_64" in ami_type else "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": machine.instance_type,
        "topology.kubernetes.io/region": machine.region,
        "topology.kubernetes.io/zone": machine.zone,
    }
