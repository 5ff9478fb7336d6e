"""
Job of Kubernetes: one Indexed Job, whose pods are the members, and the definition as its pods read it.

The pod of index 0 is the master. Its success completes the Job, and the exit status of its program ends it. A pod that
was killed or deleted, that the kubelet rejected, or that went beyond its own limit of memory or disk costs one of
`retries`. One of a lost, drained or starved node costs none; the member program bounds how often a job begins again.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import PurePosixPath
from typing import Any

from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.kubernetes_cluster import (
    CLAIM,
    EFA,
    GPU,
    GPU_TOLERATION,
    LABELS,
    START_CONFIGURATION,
    START_PROGRAM,
    get_kubernetes,
    split_label,
)
from deeplearning_contract.jobs.submission import (
    KubernetesSettings,
    SubmissionSettings,
    choose_data,
    locate_agent,
)
from deeplearning_contract.names import AGENT_DIRECTORY

JOB_LABEL = "deeplearning/job"
"""Label of a Job and its pods with the Job's name; the annotation of a Job of the same key has the job's own name."""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Label of a Job that Kueue starts (Kueue documentation, "Run A Kubernetes Job")."""
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
"""Label of a pod with its index (Kubernetes documentation, "Well-Known Labels, Annotations and Taints")."""
CONTAINER = "member"
DEFINITION_VARIABLE, POD_VARIABLE, MEMBERS_VARIABLE, JOB_UID_VARIABLE = (
    "DEEPLEARNING_DEFINITION",
    "DEEPLEARNING_POD",
    "DEEPLEARNING_MEMBERS",
    "DEEPLEARNING_JOB_UID",
)
"""Variables of a pod: the definition as JSON, the pod's name, the number of members, and the Job's uid."""
SIGNING_VARIABLE = "DEEPLEARNING_SECRET"
"""Variable of a pod with the secret of the job's members."""
SOURCES_VARIABLE = "DEEPLEARNING_SOURCES"
"""Variable of a pod with the data in S3 that it brings, as JSON; absent without data."""
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""Variable of a pod with its index (Kubernetes documentation, "Jobs", "Completion mode")."""
_UID_LABEL = "batch.kubernetes.io/controller-uid"
"""Label of a pod with the Job's uid (Kubernetes documentation, "Well-Known Labels, Annotations and Taints")."""
MOST_NAME_CHARACTERS = 52
"""Most characters of a Job's name: its pods add `-<index>-<5 letters>`, and a name has at most 63."""
MOST_DEFINITION_BYTES = 131_072 - len(DEFINITION_VARIABLE) - 2
"""Most bytes of a variable's value: Linux takes 128 KiB for name, `=`, value and NUL (execve(2))."""
START_FOLDER = "/opt/deeplearning/start"
TERMINATION_FILE = "/opt/deeplearning/termination"
"""File of a pod with the reason of a failure (Kubernetes documentation, "Determine the Reason for Pod Failure")."""
_SHARED_MEMORY = str(PurePosixPath("/dev", "shm"))
"""Memory that the processes of a pod share."""
_DIGEST_CHARACTERS = 8
_PLAIN_NAME = re.compile(rf"[a-z0-9](?:[a-z0-9-]{{0,{MOST_NAME_CHARACTERS - 2}}}[a-z0-9])?")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_KILLED, _TERMINATED = 137, 143
_GRACE_SECONDS = 120
_LEFT_NODE_SECONDS = 5
"""Time for which a pod stays on a node that does not respond; Kubernetes' own default is 300 s."""
_KEEP_SECONDS = 604_800
"""Time for which an ended Job stays to be seen."""


def name_job(job: str) -> str:
    """
    Return the name of the Job of a job: hyphens in place of underscores, and a digest where more of the name is lost.

    Args:
        job: Name of the job; Kubernetes allows fewer characters.
    """
    plain = job.replace("_", "-")
    if _PLAIN_NAME.fullmatch(plain):
        return plain
    digest = hashlib.sha256(job.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    room = MOST_NAME_CHARACTERS - _DIGEST_CHARACTERS - 1
    return f"{_NOT_IN_NAMES.sub('-', job.lower()).strip('-')[:room].rstrip('-')}-{digest}"


def make_job(submission: SubmissionSettings, job: JobDefinition, *, secret: str) -> dict[str, Any]:
    """
    Return the Job that runs a job.

    Args:
        submission: Submission document of a stack on EKS.
        job: The job, with its source uploaded.
        secret: What `make_secret` returns. Pods that replace others get the same.

    Raises:
        ContractError: The job cannot run on the stack's cluster.
    """
    settings = get_kubernetes(submission)
    settings = replace(settings, agent=locate_agent(submission, settings.agent))
    _check(settings, job)
    name, members = name_job(job.name), job.members or settings.members
    labels = {**LABELS, "app.kubernetes.io/name": name, JOB_LABEL: name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": {**labels, **({QUEUE_LABEL: settings.queue} if settings.queue else {})},
            "annotations": {JOB_LABEL: job.name},
        },
        "spec": {
            **({"suspend": True} if settings.queue else {}),
            "completionMode": "Indexed",
            "completions": members,
            "parallelism": members,
            "backoffLimitPerIndex": job.retries,
            "maxFailedIndexes": 0,
            "podReplacementPolicy": "Failed",
            "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
            "podFailurePolicy": {"rules": _make_failure_rules()},
            **({"activeDeadlineSeconds": job.max_seconds} if job.max_seconds else {}),
            "ttlSecondsAfterFinished": _KEEP_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": _make_pod(settings, job, name, secret)},
        },
    }


def read_job(job: Mapping[str, Any]) -> JobDefinition:
    """Read the definition from a Job of the API server; ContractError where another program created it."""
    try:
        variables = job["spec"]["template"]["spec"]["containers"][0]["env"]
        text = next(each["value"] for each in variables if each["name"] == DEFINITION_VARIABLE)
    except (KeyError, IndexError, TypeError, StopIteration) as error:
        raise ContractError(f"Job must have the variable {DEFINITION_VARIABLE}, got none") from error
    return JobDefinition.from_json(text)


def _make_failure_rules() -> list[dict[str, Any]]:
    """Return the rules: a lost node costs no retry, and only a container that was killed runs again."""
    disruption = {"type": "DisruptionTarget", "status": "True"}
    codes = {"containerName": CONTAINER, "operator": "NotIn", "values": [_KILLED, _TERMINATED]}
    return [
        {"action": "Ignore", "onPodConditions": [disruption]},
        {"action": "FailJob", "onExitCodes": codes},
    ]


def _check(settings: KubernetesSettings, job: JobDefinition) -> None:
    if job.container:
        raise ContractError("container must be left out on EKS, whose jobs run in one; give the stack an image")
    if job.members is not None and job.members > settings.members:
        raise ContractError(
            f"members must be at most {settings.members}, the nodes of this cluster, got {job.members}; leave it out "
            "for all, or raise members of the stack"
        )
    if job.gpus_per_member is not None and job.gpus_per_member > max(1, settings.gpu_count):
        raise ContractError(
            f"gpus_per_member must be at most {max(1, settings.gpu_count)} on this cluster's nodes, got "
            f"{job.gpus_per_member}; leave it out for all GPUs"
        )


def _make_pod(settings: KubernetesSettings, job: JobDefinition, name: str, secret: str) -> dict[str, Any]:
    left = [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _LEFT_NODE_SECONDS,
        }
        for state in ("not-ready", "unreachable")
    ]
    apart = {"labelSelector": {"matchLabels": {JOB_LABEL: name}}, "topologyKey": "kubernetes.io/hostname"}
    return {
        "restartPolicy": "Never",
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "nodeSelector": split_label(settings),
        "tolerations": [GPU_TOLERATION, *left],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [_make_container(settings, job, secret)],
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}},
            {"name": "memory", "emptyDir": _describe_shared_memory(settings, job)},
            {"name": "start", "configMap": {"name": START_CONFIGURATION}},
        ],
    }


def _share(total: int, settings: KubernetesSettings, job: JobDefinition) -> int:
    """Return the part of a node's amount that a pod has, which is that of the node's GPUs."""
    gpus = settings.gpu_count
    return total * (job.gpus_per_member or gpus) // gpus if gpus else total


def _describe_shared_memory(settings: KubernetesSettings, job: JobDefinition) -> dict[str, Any]:
    """Return half of the pod's memory, as Linux has it for a host (tmpfs(5)): a full one is ENOSPC and no eviction."""
    memory = _share(settings.memory_mib, settings, job)
    return {"medium": "Memory", **({"sizeLimit": f"{memory // 2}Mi"} if memory else {})}


def _choose_limits(settings: KubernetesSettings, job: JobDefinition) -> dict[str, str]:
    """
    Return the limits of a pod, which are its requests too.

    Without EFA among them, a pod runs all the same, and NCCL takes TCP. Beyond its own memory or disk, the kubelet ends
    it without the condition DisruptionTarget, so that it costs one of `retries` (kubernetes/kubernetes,
    eviction_manager.go: localStorageEviction).
    """
    memory, disk = _share(settings.memory_mib, settings, job), _share(settings.disk_gibibytes, settings, job)
    limits = {
        GPU: settings.gpu_count and (job.gpus_per_member or settings.gpu_count),
        EFA: settings.efa_count,
        "memory": memory and f"{memory}Mi",
        "ephemeral-storage": disk and f"{disk}Gi",
    }
    return {resource: str(amount) for resource, amount in limits.items() if amount}


def _make_container(settings: KubernetesSettings, job: JobDefinition, secret: str) -> dict[str, Any]:
    sources = [asdict(source) for source in choose_data(settings, job)]
    limits = _choose_limits(settings, job)
    agent = settings.agent
    start = (
        f"python3 {START_FOLDER}/{START_PROGRAM} {agent.bucket} {agent.key} {agent.sha256} {settings.region} "
        f"{AGENT_DIRECTORY} && cd {AGENT_DIRECTORY} && exec python3 -m deeplearning_member pod"
    )
    return {
        "name": CONTAINER,
        "image": settings.image,
        "command": ["/bin/sh", "-c", start],
        "terminationMessagePath": TERMINATION_FILE,
        "env": [
            {"name": DEFINITION_VARIABLE, "value": _encode(job)},
            *([{"name": SOURCES_VARIABLE, "value": _dump(sources)}] if sources else []),
            {"name": POD_VARIABLE, "valueFrom": _refer("metadata.name")},
            {"name": MEMBERS_VARIABLE, "value": str(job.members or settings.members)},
            {"name": SIGNING_VARIABLE, "value": secret},
            {"name": "AWS_REGION", "value": settings.region},
            {"name": JOB_UID_VARIABLE, "valueFrom": _refer(f"metadata.labels['{_UID_LABEL}']")},
        ],
        **({"resources": {"limits": limits}} if limits else {}),
        "volumeMounts": [
            {"name": "shared", "mountPath": settings.mount_point},
            {"name": "memory", "mountPath": _SHARED_MEMORY},
            {"name": "start", "mountPath": START_FOLDER, "readOnly": True},
        ],
    }


def _refer(path: str) -> dict[str, Any]:
    """
    Return a reference to a field of the pod, whole: server-side apply takes it as one value.

    Without the version that the API server adds, another manager's `kubectl apply` of the same Job is a conflict
    (Kubernetes API, types.go of core/v1: ObjectFieldSelector has `structType=atomic`).
    """
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}


def _encode(job: JobDefinition) -> str:
    text = _dump(replace(job, ends_cluster=False).to_document())
    if len(text) > MOST_DEFINITION_BYTES:
        raise ContractError(
            f"job must have at most {MOST_DEFINITION_BYTES} characters on EKS, got {len(text)}; "
            "write long arguments to a file of the source"
        )
    return text


def _dump(document: Any) -> str:
    """
    Return JSON without `$`, because Kubernetes replaces `$$` and `$(NAME)` in variables of a pod.

    Source: Kubernetes API reference, EnvVar, `value`.
    """
    return json.dumps(document, sort_keys=True).replace("$", "\\u0024")
