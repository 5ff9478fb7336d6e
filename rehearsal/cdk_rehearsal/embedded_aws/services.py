"""The parts of the embedded AWS of one account and region, in front of moto's own."""

from cdk_rehearsal.embedded_aws.access.account_state import AccountState
from cdk_rehearsal.embedded_aws.access.authorizer import Authorizer, install_bucket_decisions
from cdk_rehearsal.embedded_aws.access.deployer import Deployer
from cdk_rehearsal.embedded_aws.access.managed_policies import add_policies
from cdk_rehearsal.embedded_aws.autoscaling.api import install_scaling_api
from cdk_rehearsal.embedded_aws.autoscaling.driver import ScalingDriver
from cdk_rehearsal.embedded_aws.autoscaling.notifications import GroupNotifications
from cdk_rehearsal.embedded_aws.balancing.health import TargetHealth
from cdk_rehearsal.embedded_aws.balancing.probe import Failure, HealthCheck, probe
from cdk_rehearsal.embedded_aws.base.capacity_pools import Capacity
from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions
from cdk_rehearsal.embedded_aws.base.message_faults import MessageDisturbance
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.base.principals import PrincipalRegistry
from cdk_rehearsal.embedded_aws.base.reservations import Reservations
from cdk_rehearsal.embedded_aws.base.signals import PresignedUrls
from cdk_rehearsal.embedded_aws.base.stack_record import OpenStack
from cdk_rehearsal.embedded_aws.base.vcpu_quotas import VcpuQuotas
from cdk_rehearsal.embedded_aws.ec2.account_api import (
    install_block_offerings,
    install_offerings,
    install_reservations,
    install_scores,
)
from cdk_rehearsal.embedded_aws.ec2.images import ImageCatalogue
from cdk_rehearsal.embedded_aws.ec2.instances import SingleInstances
from cdk_rehearsal.embedded_aws.ec2.launcher import InstanceLauncher
from cdk_rehearsal.embedded_aws.ec2.quota_api import install_quota_api
from cdk_rehearsal.embedded_aws.eks.api import install_eks_api
from cdk_rehearsal.embedded_aws.eks.driver import EksDriver
from cdk_rehearsal.embedded_aws.eks.host import ClusterHost
from cdk_rehearsal.embedded_aws.eks.rights import ClusterRights
from cdk_rehearsal.embedded_aws.emr.api import install_emr_api
from cdk_rehearsal.embedded_aws.emr.driver import EmrDriver
from cdk_rehearsal.embedded_aws.emr.node_channel import NodeChannels
from cdk_rehearsal.embedded_aws.emr.provisioning import Provisioner
from cdk_rehearsal.embedded_aws.functions.runner import FunctionRunner
from cdk_rehearsal.embedded_aws.messaging.delivery import Delivery, install_object_delivery, install_topic_delivery
from cdk_rehearsal.embedded_aws.messaging.event_bus import EventBus, Schedule, install_event_delivery
from cdk_rehearsal.embedded_aws.messaging.queue_delivery import install_queue_delivery
from cdk_rehearsal.embedded_aws.messaging.queue_pollers import QueuePollers
from cdk_rehearsal.embedded_aws.sagemaker.api import install_training_api
from cdk_rehearsal.embedded_aws.sagemaker.containers import ContainerHost
from cdk_rehearsal.embedded_aws.sagemaker.driver import TrainingDriver
from cdk_rehearsal.embedded_aws.sagemaker.instances import InstanceLedger
from cdk_rehearsal.embedded_aws.sagemaker.provisioning import Provisioner as TrainingProvisioner
from cdk_rehearsal.iam.call_record import CallRecord
from cdk_rehearsal.machine import MachineHost
from cdk_rehearsal.place import Place


class Services:
    """
    Parts with which resources are created; opening them imports the key pairs of the account.

    Attributes:
        open_stack: Opens a nested stack.
    """

    open_stack: OpenStack

    def __init__(
        self,
        place: Place,
        machines: MachineHost,
        containers: ContainerHost | None,
        clusters: ClusterHost | None,
        *,
        principals: PrincipalRegistry,
        presigned: PresignedUrls,
        channels: NodeChannels,
        observations: Observations,
        options: CloudOptions,
    ) -> None:
        self.place, self.observations, self.options = place, observations, options
        self.principals, self.presigned = principals, presigned
        self.functions = FunctionRunner(
            observations,
            options.retry_seconds,
            loses_answers=options.lose_answers,
            node_modules=options.node_modules,
        )
        self.images = ImageCatalogue(place, options.login_users)
        self.capacity = Capacity(
            options.pools,
            reservations=Reservations(options.reservations),
            quotas=VcpuQuotas(options.quotas),
            missing_types=options.missing_types,
        )
        self.launcher = InstanceLauncher(place, principals, self.images, options.label_instance, self.capacity)
        for name, key in options.key_pairs.items():
            place.client("ec2").import_key_pair(KeyName=name, PublicKeyMaterial=key.encode())
        notifications = GroupNotifications(place, observations, lost=options.lose_notifications)
        self._open_machines(machines, notifications)
        self.health = self._open_health()
        state = AccountState(place, self.scaling.groups)
        self.authorizer = Authorizer(state, CallRecord(), observations, options.policies.list_organization())
        self.deployer = Deployer(place, state, options.policies)
        add_policies(place, options.policies.account)
        notifications.admits = self.authorizer.admits_notification
        self.launcher.admits_volume = self.authorizer.admits_volume
        self.emr = self._open_emr(machines, channels)
        self.authorizer.state.find_cluster_tags = self.emr.find_tags
        self.training = self._open_training(containers)
        self.authorizer.state.find_job_tags = self.training.find_tags
        self.eks = self._open_eks(clusters)
        self.authorizer.state.find_part = self.eks.find_part
        self._delivery = Delivery(place, self.functions, self.authorizer)
        self.schedule = Schedule(place, self._delivery.deliver_event, options.minute_seconds)
        self.pollers = QueuePollers(place, self.functions, observations)
        self.bus = EventBus(place, self._delivery.deliver_event, observations)
        self.emr.events.send = self.bus.deliver
        self.training.events.send = self.bus.deliver
        faults = options.message_faults
        self._disturbance = MessageDisturbance(faults, observations) if faults else None

    def _open_machines(self, machines: MachineHost, notifications: GroupNotifications) -> None:
        """Open what launches machines."""
        self.instances = SingleInstances(
            place=self.place,
            launcher=self.launcher,
            machines=machines,
            observations=self.observations,
            faults=self.options.faults,
        )
        self.scaling = ScalingDriver(
            launcher=self.launcher,
            machines=machines,
            notifications=notifications,
            observations=self.observations,
            pace=self.options.pace,
            faults=self.options.faults,
        )

    def _open_health(self) -> TargetHealth:
        def ask(address: str, port: int, check: HealthCheck) -> Failure | None:
            return probe(self.options.find_target(address), port, check)

        second = self.options.minute_seconds / 60
        return TargetHealth(self.place, self.scaling, self.observations, ask, second)

    def _open_emr(self, machines: MachineHost, channels: NodeChannels) -> EmrDriver:
        return EmrDriver(
            place=self.place,
            launcher=self.launcher,
            images=self.images,
            machines=machines,
            channels=channels,
            provisioner=Provisioner(self.place, self.authorizer),
            observations=self.observations,
            pace=self.options.pace,
            faults=self.options.faults,
            boots=self.options.waits_for_signals,
            minute_seconds=self.options.minute_seconds,
        )

    def _open_training(self, containers: ContainerHost | None) -> TrainingDriver:
        return TrainingDriver(
            place=self.place,
            host=containers,
            provisioner=TrainingProvisioner(self.place, self.authorizer, self.launcher),
            principals=self.principals,
            observations=self.observations,
            pace=self.options.pace,
            ledger=InstanceLedger(self.options.training_limits, self.options.minute_seconds / 60),
            minute_seconds=self.options.minute_seconds,
        )

    def _open_eks(self, clusters: ClusterHost | None) -> EksDriver:
        return EksDriver(
            place=self.place,
            host=clusters,
            scaling=self.scaling,
            images=self.images,
            rights=ClusterRights(self.place, self.authorizer),
            principals=self.principals,
            observations=self.observations,
            minute_seconds=self.options.minute_seconds,
        )

    def install(self) -> None:
        """Replace the parts of moto that these stand in for."""
        install_bucket_decisions()
        install_queue_delivery(self._disturbance)
        install_topic_delivery(self._delivery, self._disturbance)
        install_object_delivery(self._delivery)
        install_event_delivery(self.bus, self.place)
        install_scaling_api(self.scaling)
        install_reservations(self.capacity, self.place)
        install_offerings(self.capacity)
        install_scores()
        install_block_offerings()
        install_quota_api(self.capacity, self.place)
        self.health.install()
        install_emr_api(self.emr, self.place)
        install_training_api(self.training)
        install_eks_api(self.eks)

    def close(self) -> None:
        """End all that runs by itself; machines are their host's."""
        if self._disturbance is not None:
            self._disturbance.close()
        self.schedule.close()
        self.pollers.close()
        self.training.close()
        self.emr.close()
        self.eks.close()
        self.health.close()
        self.scaling.close()
        self.instances.close()
        self.functions.close()
