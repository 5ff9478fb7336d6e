"""Puts the parts of the embedded AWS together, and in front of moto's own."""

from cdk_rehearsal.embedded_aws.access.account_state import AccountState
from cdk_rehearsal.embedded_aws.access.gatekeeper import Gatekeeper
from cdk_rehearsal.embedded_aws.access.principals import PrincipalRegistry
from cdk_rehearsal.embedded_aws.autoscaling.api import install_scaling_api
from cdk_rehearsal.embedded_aws.autoscaling.driver import ScalingDriver
from cdk_rehearsal.embedded_aws.autoscaling.notifications import GroupNotifications
from cdk_rehearsal.embedded_aws.cloud_options import CloudOptions
from cdk_rehearsal.embedded_aws.cloudformation.creation import Services
from cdk_rehearsal.embedded_aws.cloudformation.custom_resource import CustomResources
from cdk_rehearsal.embedded_aws.cloudformation.stack import Stack
from cdk_rehearsal.embedded_aws.cloudformation.stack_api import install_stack_api
from cdk_rehearsal.embedded_aws.cloudformation.wait_condition import WaitConditionHandles
from cdk_rehearsal.embedded_aws.ec2.images import ImageCatalogue
from cdk_rehearsal.embedded_aws.ec2.launcher import InstanceLauncher
from cdk_rehearsal.embedded_aws.functions.runner import FunctionRunner
from cdk_rehearsal.embedded_aws.messaging.delivery import Delivery
from cdk_rehearsal.embedded_aws.messaging.event_bus import EventBus, Schedule, install_event_delivery
from cdk_rehearsal.embedded_aws.messaging.message_faults import MessageDisturbance
from cdk_rehearsal.embedded_aws.messaging.queue_delivery import install_queue_delivery
from cdk_rehearsal.embedded_aws.messaging.topic_delivery import install_topic_delivery
from cdk_rehearsal.embedded_aws.observation import Observations
from cdk_rehearsal.embedded_aws.place import Place
from cdk_rehearsal.iam.call_record import CallRecord
from cdk_rehearsal.machine import MachineHost


def open_services(
    place: Place,
    machines: MachineHost,
    *,
    principals: PrincipalRegistry,
    handles: WaitConditionHandles,
    custom_resources: CustomResources,
    observations: Observations,
    options: CloudOptions,
) -> Services:
    """Make the services of one account and region, with its key pairs."""
    functions = FunctionRunner(observations, options.retry_seconds, loses_answers=options.lose_answers)
    images = ImageCatalogue(place, options.login_users)
    launcher = InstanceLauncher(place, principals, images, options.label_instance)
    for name, key in options.key_pairs.items():
        place.client("ec2").import_key_pair(KeyName=name, PublicKeyMaterial=key.encode())
    notifications = GroupNotifications(place, observations, lost=options.lose_notifications)
    scaling = ScalingDriver(
        launcher=launcher,
        machines=machines,
        notifications=notifications,
        observations=observations,
        pace=options.pace,
        faults=options.faults,
    )
    gatekeeper = Gatekeeper(AccountState(place, scaling), CallRecord(), observations)
    notifications.admits = gatekeeper.admits_notification
    launcher.admits_volume = gatekeeper.admits_volume
    delivery = Delivery(place, functions, gatekeeper)
    return Services(
        place=place,
        principals=principals,
        images=images,
        launcher=launcher,
        scaling=scaling,
        gatekeeper=gatekeeper,
        functions=functions,
        schedule=Schedule(place, delivery.deliver_event, options.minute_seconds),
        bus=EventBus(place, delivery.deliver_event, observations),
        handles=handles,
        custom_resources=custom_resources,
        waits_for_desired=options.waits_for_desired,
        check_metric=options.check_metric,
        disturbance=MessageDisturbance(options.message_faults, observations) if options.message_faults else None,
    )


def close_services(services: Services) -> None:
    """End all that runs by itself; machines are their host's."""
    if services.disturbance is not None:
        services.disturbance.close()
    services.schedule.close()
    services.scaling.close()
    services.functions.close()


def install(services: Services, stack: Stack) -> None:
    """Replace the parts of moto that the services stand in for."""
    delivery = Delivery(services.place, services.functions, services.gatekeeper)
    install_queue_delivery(services.disturbance)
    install_topic_delivery(delivery.deliver_message, services.disturbance)
    install_event_delivery(services.bus, services.place)
    install_scaling_api(services.scaling)
    install_stack_api(stack)
