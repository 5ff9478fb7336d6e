"""
Objects that every job of a cluster on EKS needs, from `deeplearning-cdk prepare-cluster`.

They are the namespace, the account of pods, the volume with its claim, the start program, and the device plugins that
the nodes' image lacks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs.submission import KubernetesSettings, SubmissionSettings

MANAGER = "deeplearning-cdk"
"""Field manager of the objects, and the value of their label."""
LABELS: Mapping[str, str] = {"app.kubernetes.io/managed-by": MANAGER}
VOLUME, CLAIM, STORAGE_CLASS = "nfs-data", "nfs-external", "nfs-external"
START_CONFIGURATION, START_PROGRAM = "deeplearning", "start_pod.py"
"""Name of the ConfigMap with the start program, and the name of its file."""
START_FILES = (START_PROGRAM, "fetch_agent.py")
"""Files of the ConfigMap: the program, and the module that it imports."""
DRIVER = "efs.csi.aws.com"
GPU, EFA = "nvidia.com/gpu", "vpc.amazonaws.com/efa"
"""Names of the resources by which pods ask for GPUs and for EFA interfaces."""
GPU_TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
EFA_PLUGIN, EFA_PLUGIN_ACCOUNT, EFA_PLUGIN_REGION = "eks/aws-efa-k8s-device-plugin", "602401143452", "us-west-2"
"""Repository of the EFA plugin's image, and its registry for all regions of the partition `aws`."""
_EFA_PLUGIN_VERSION = "v0.5.20"
"""
Version of the chart v0.5.30; before v0.5.10, it counts NVLink devices of p6-b200 as EFA interfaces.

Sources: aws/eks-charts, stable/aws-efa-k8s-device-plugin; https://github.com/aws/sagemaker-hyperpod-cli/issues/282.
"""
_REGISTRIES: Mapping[str, str] = {
    "cn-north-1": "918309763551.dkr.ecr.cn-north-1.amazonaws.com.cn",
    "cn-northwest-1": "961992271922.dkr.ecr.cn-northwest-1.amazonaws.com.cn",
    "us-gov-east-1": "151742754352.dkr.ecr.us-gov-east-1.amazonaws.com",
    "us-gov-west-1": "013241004608.dkr.ecr.us-gov-west-1.amazonaws.com",
}
"""
Registries of EKS in other partitions, whose nodes cannot sign in to one of the partition `aws`.

EKS user guide, "View Amazon container image registries for Amazon EKS add-ons".
"""
_PRIVILEGED = {"privileged": True, "allowPrivilegeEscalation": True, "runAsNonRoot": False, "runAsUser": 0}
"""Security context of the EFA plugin, as its chart has it since v0.5.9 (aws/eks-charts#1245)."""
_CONFINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_NVIDIA_PLUGIN = "nvcr.io/nvidia/k8s-device-plugin:v0.17.4"
_LIMITS: Mapping[str, str] = {"pod-security.kubernetes.io/enforce": "baseline"}
"""
Label of the namespace, by which Kubernetes refuses pods in a node's network, with its folders, or with its privileges.

They would have the role of the node, and its other pods (Kubernetes documentation, "Pod Security Standards").
"""
_PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"


def get_kubernetes(submission: SubmissionSettings) -> KubernetesSettings:
    """Return the settings of jobs on EKS; ContractError for a document without them."""
    if submission.kubernetes is None:
        raise ContractError("submission document must have the settings of Kubernetes; deploy the stack again")
    return submission.kubernetes


def split_label(settings: KubernetesSettings) -> dict[str, str]:
    """Return the node selector of members."""
    key, _, value = settings.node_label.partition("=")
    return {key: value}


def make_cluster_objects(settings: KubernetesSettings, start_files: Mapping[str, str]) -> Sequence[dict[str, Any]]:
    """
    Return the objects, in the order in which they are applied.

    Args:
        settings: The stack's settings.
        start_files: Name -> text of each of `START_FILES`.
    """
    plugins = []
    if settings.efa_count:
        plugins.append(_make_efa_plugin(settings))
    if settings.gpu_count and not settings.has_nvidia_plugin:
        plugins.append(_make_nvidia_plugin(settings))
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": settings.namespace, "labels": {**LABELS, **_LIMITS}},
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": _describe(settings, settings.service_account),
            "automountServiceAccountToken": False,
        },
        _make_volume(settings),
        _make_claim(settings),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _describe(settings, START_CONFIGURATION),
            "data": dict(start_files),
        },
        *plugins,
    ]


def _describe(settings: KubernetesSettings, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": settings.namespace, "labels": dict(LABELS)}


def _make_volume(settings: KubernetesSettings) -> dict[str, Any]:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": settings.namespace,
        "name": CLAIM,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": VOLUME, "labels": dict(LABELS)},
        "spec": {
            "capacity": {"storage": settings.shared_capacity},
            "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "mountOptions": ["tls", "iam"],
            "csi": {"driver": DRIVER, "volumeHandle": settings.volume_handle},
            "claimRef": claim,
        },
    }


def _make_claim(settings: KubernetesSettings) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _describe(settings, CLAIM),
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": STORAGE_CLASS,
            "volumeName": VOLUME,
            "resources": {"requests": {"storage": settings.claim_capacity}},
        },
    }


def _make_efa_plugin(settings: KubernetesSettings) -> dict[str, Any]:
    """Return the DaemonSet of the EFA plugin, with the folders that its chart mounts for instances without Neuron."""
    folders = {"device-plugin": _PLUGIN_FOLDER, "infiniband": "/dev/infiniband"}
    usual = f"{EFA_PLUGIN_ACCOUNT}.dkr.ecr.{EFA_PLUGIN_REGION}.amazonaws.com"
    image = f"{_REGISTRIES.get(settings.region, usual)}/{EFA_PLUGIN}:{_EFA_PLUGIN_VERSION}"
    return _make_plugin(settings, "aws-efa-k8s-device-plugin", image, folders, _PRIVILEGED, host_network=True)


def _make_nvidia_plugin(settings: KubernetesSettings) -> dict[str, Any]:
    """Return the DaemonSet of the NVIDIA plugin, as its static deployment has it."""
    return _make_plugin(settings, "nvidia-device-plugin", _NVIDIA_PLUGIN, {"device-plugin": _PLUGIN_FOLDER}, _CONFINED)


def _make_plugin(
    settings: KubernetesSettings,
    name: str,
    image: str,
    folders: Mapping[str, str],
    context: Mapping[str, Any],
    *,
    host_network: bool = False,
) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": name}
    container = {
        "name": "plugin",
        "image": image,
        "securityContext": dict(context),
        "volumeMounts": [{"name": folder, "mountPath": path} for folder, path in folders.items()],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {**LABELS, **labels}},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": {**LABELS, **labels}},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "automountServiceAccountToken": False,
                    **({"hostNetwork": True} if host_network else {}),
                    "nodeSelector": split_label(settings),
                    "tolerations": [GPU_TOLERATION],
                    "containers": [container],
                    "volumes": [{"name": folder, "hostPath": {"path": path}} for folder, path in folders.items()],
                },
            },
        },
    }
