"""Hosts of the jobs of a stack beside its nodes: containers of training jobs, or a control plane with pods."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.kubernetes.binaries import find_binaries
from cdk_rehearsal.kubernetes.control_plane import ControlPlane
from cdk_rehearsal.lab import Lab, StandIn
from cdk_rehearsal.lab.images.container_image import ContainerImage
from cdk_rehearsal.lab.lab import ROUTER
from deeplearning_rehearsal.containers import TRAINING_ENGINE, LabContainers
from deeplearning_rehearsal.lab_clusters import KubernetesHost
from deeplearning_rehearsal.lab_pods import EKS_STAND_INS, LabPods
from deeplearning_rehearsal.options import RehearsalOptions
from deeplearning_rehearsal.platforms.eks import has_administrator
from deeplearning_rehearsal.platforms.platform import Platform

NO_ADMINISTRATOR = StandIn(
    "administrator",
    "a role or user of `administrators`",
    "the stack names none, so the control plane's own prepares the cluster, and submits without a submitter; AWS "
    "refuses both",
)


@dataclass
class JobHosts:
    """
    Hosts of jobs.

    Attributes:
        containers: Host of training jobs; None elsewhere.
        clusters: Host of control planes; None elsewhere.
        pods: Its pods; None elsewhere.
        has_administrator: Whether the stack names somebody who may prepare its cluster.
    """

    containers: LabContainers | None = None
    clusters: KubernetesHost | None = None
    pods: LabPods | None = None
    has_administrator: bool = True

    @property
    def stand_ins(self) -> tuple[StandIn, ...]:
        """The parts that are not the real thing."""
        if self.containers is not None:
            return (TRAINING_ENGINE, *(image.stand_in for image in self.containers.images))
        if self.pods is not None and self.clusters is not None:
            planes = [self.clusters.stand_in] if self.clusters.stand_in else []
            absent = [] if self.has_administrator else [NO_ADMINISTRATOR]
            return (*EKS_STAND_INS, *planes, *absent, *(image.stand_in for image in self.pods.images))
        return ()


def open_hosts(
    platform: Platform,
    lab: Lab,
    stack: AssemblyStack,
    images: Mapping[str, ContainerImage],
    *,
    report: Callable[[str, str], None],
    options: RehearsalOptions,
) -> JobHosts:
    """Return the hosts of a platform's jobs."""
    if platform.runs_pods:
        pods = LabPods(lab, stack, images)

        def make_plane(folder: Any, version: str, review: Any) -> ControlPlane:
            binaries = find_binaries(version, options.cache)
            return ControlPlane(folder, version=version, review=review, binaries=binaries, address=ROUTER)

        return JobHosts(
            clusters=KubernetesHost(options.work / "kubernetes", pods, report, make_plane),
            pods=pods,
            has_administrator=has_administrator(stack.template),
        )
    return JobHosts(containers=LabContainers(lab, stack, images, report)) if platform.runs_containers else JobHosts()
