"""The embedded AWS as a whole: starts, deploys stacks of a cloud assembly, waits for each, returns the records."""

import io
import os
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

from moto.moto_api._internal.models import moto_api_backend

from cdk_rehearsal.assembly import DEFAULT_REGION, AssemblyStack, fill_place, require_no_images
from cdk_rehearsal.embedded_aws.access.authorizer import Authorizer
from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions
from cdk_rehearsal.embedded_aws.base.observation import Observations, Observer
from cdk_rehearsal.embedded_aws.base.principals import PrincipalRegistry
from cdk_rehearsal.embedded_aws.base.scaling_group import HealthCheck
from cdk_rehearsal.embedded_aws.base.signals import PresignedUrls
from cdk_rehearsal.embedded_aws.base.stack_record import StackOutcome
from cdk_rehearsal.embedded_aws.base.training_limits import TrainingLimits
from cdk_rehearsal.embedded_aws.cloudformation.reasons import is_defect
from cdk_rehearsal.embedded_aws.cloudformation.stack import Stack
from cdk_rehearsal.embedded_aws.cloudformation.stack_api import install_stack_api
from cdk_rehearsal.embedded_aws.cloudformation.stack_registry import StackRegistry
from cdk_rehearsal.embedded_aws.cloudformation.template import put_bootstrap_version
from cdk_rehearsal.embedded_aws.eks.host import ClusterHost
from cdk_rehearsal.embedded_aws.emr.node_channel import NodeChannels
from cdk_rehearsal.embedded_aws.functions.invoke_api import InvokeApi
from cdk_rehearsal.embedded_aws.functions.runner import Invocation
from cdk_rehearsal.embedded_aws.messaging.event_bus import build_event
from cdk_rehearsal.embedded_aws.sagemaker.containers import ContainerHost
from cdk_rehearsal.embedded_aws.server.call_log import CallCounts, CallLog
from cdk_rehearsal.embedded_aws.server.server import Server
from cdk_rehearsal.embedded_aws.services import Services
from cdk_rehearsal.errors import DefectError, RehearsalError, UnsupportedError
from cdk_rehearsal.machine import MachineHost
from cdk_rehearsal.place import Credentials, Place
from cdk_rehearsal.referees.resource_support import require_support

ChangeTemplate = Callable[[Mapping[str, Any]], tuple[Mapping[str, Any], Mapping[str, str]]]
_ACCOUNT_VARIABLE = "MOTO_ACCOUNT_ID"
_EPOCH = (1980, 1, 1, 0, 0, 0)


class EmbeddedAws:
    """
    AWS in this process, for stacks of one account and region; `observer` is called from several threads.

    moto's state belongs to the process: a second one raises RehearsalError until the first is stopped. Each begins
    empty. Nodes and functions must reach `address`; port 0 takes a free one.
    """

    _taken: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        *,
        address: str,
        port: int,
        machines: MachineHost,
        containers: ContainerHost | None = None,
        clusters: ClusterHost | None = None,
        observer: Observer | None = None,
        options: CloudOptions | None = None,
    ) -> None:
        if not self._taken.acquire(blocking=False):
            raise RehearsalError("an embedded AWS must be the only one of its process; stop the other one first")
        self._machines = machines
        self._containers = containers
        self._clusters = clusters
        self._options = options or CloudOptions()
        self._observations = Observations(observer)
        self._calls = CallLog()
        self._principals = PrincipalRegistry()
        self._presigned = PresignedUrls(self._observations)
        self._channels = NodeChannels()
        self._services: Services | None = None
        self._stacks = StackRegistry[Stack]()
        self._deployments: list[Stack] = []
        self._server = Server(
            address,
            port,
            principals=self._principals,
            calls=self._calls,
            presigned=self._presigned,
            channels=self._channels,
            object_seconds=self._options.object_seconds,
        )
        self.overrides: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        """URL of the server, without a path; what `AWS_ENDPOINT_URL` is set to."""
        return self._server.endpoint

    @property
    def stack_name(self) -> str:
        """Name of the stack that was deployed last; empty before."""
        return self._deployments[-1].name if self._deployments else ""

    @property
    def place(self) -> Place:
        """Account, region and endpoint of the deployed stacks, with the operator's clients."""
        return self._deployed().place

    @property
    def authorizer(self) -> Authorizer:
        """The authorizer, with its record of calls."""
        return self._deployed().authorizer

    def sign_in(self, role: str) -> Callable[[str], Any]:
        """
        Return clients of services that call as a role of the stacks, whose policies decide; its trust is not asked.

        Args:
            role: Its logical id.
        """
        place, credentials = self.place, self.mint(role)
        return cache(lambda service: place.client_as(service, credentials))

    def mint(self, role: str) -> Credentials:
        """Return credentials of a role of the stacks, by its logical id; its trust is not asked."""
        place = self.place
        resources = (each for stack in self._stacks.list() for each in stack.resources())
        (name,) = (each.physical_id for each in resources if each.logical_id == role)
        arn = place.client("iam").get_role(RoleName=name)["Role"]["Arn"]
        return self._principals.mint(place, role_arn=arn, session=role, kind=role)

    def start(self) -> None:
        """Begin to serve."""
        # The image catalogue admits the images of the template; moto's own 1,300 would take a second to load.
        os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
        moto_api_backend.reset()
        self._server.start()

    def deploy(
        self,
        source: AssemblyStack,
        *,
        change_template: ChangeTemplate = lambda template: (template, {}),
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        """
        Upload the assets of a stack and begin to create it.

        Args:
            source: The stack; those that it needs must have been created.
            change_template: Returns a changed copy of the template, and the changes: path -> new value.
                Default: changes nothing.
            parameters: Values of parameters, as far as the template declares them. Default: theirs.

        Raises:
            UnsupportedError: The rehearsal does not implement all of the template; nothing was deployed.
            AssemblyError: The assembly cannot be deployed here.
            RehearsalError: A stack is still being created.
        """
        if self._deployments and not self._deployments[-1].join(0):
            raise RehearsalError(f"stacks must be deployed one after the other, {self.stack_name} is not complete yet")
        if self._containers is None and self._clusters is None:
            require_no_images(source)
        template, changes = change_template(source.template)
        self.overrides = {f"Parameters.{name}": value for name, value in (parameters or {}).items()} | dict(changes)
        require_support(template, parameters, source.region)
        for each in source.nested.values():
            require_support(each, region=source.region)
        for each in (template, *source.nested.values()):
            if self._clusters is None:
                _require_no_clusters(each)
        services = self._services or self._open(Place(source.account, source.region, self.endpoint))
        services.deployer.role_arn = fill_place(source.execution_role, services.place)
        stack = self._open_stack(source.name, template, parameters or {}, source.tags)
        _upload_assets(source, services.place)
        self._deployments.append(stack)
        stack.start()

    def update(
        self, source: AssemblyStack, *, change_template: ChangeTemplate = lambda template: (template, {})
    ) -> None:
        """
        Upload the assets of a stack that was deployed before, and begin to update it, as a second `cdk deploy` does.

        Args:
            source: The stack.
            change_template: As of `deploy`. Default: changes nothing.

        Raises:
            RehearsalError: There is no such stack, or the rehearsal cannot update what differs.
        """
        if (stack := self._stacks.find(source.name)) is None:
            raise RehearsalError(f"stack {source.name} must be deployed before it is updated, it is not")
        template, _ = change_template(source.template)
        _upload_assets(source, self.place)
        try:
            stack.update(template["Resources"])
        except ValueError as error:
            raise RehearsalError(str(error)) from error

    def _open(self, place: Place) -> Services:
        """Open the account."""
        os.environ[_ACCOUNT_VARIABLE] = place.account  # moto takes it for the account of every caller
        services = self._services = Services(
            place,
            self._machines,
            self._containers,
            self._clusters,
            principals=self._principals,
            presigned=self._presigned,
            channels=self._channels,
            observations=self._observations,
            options=self._options,
        )
        services.open_stack = self._open_stack
        self._server.authorizer = services.authorizer
        self._server.outside["lambda.Invoke"] = InvokeApi(services.functions).answer
        self._options.prepare(place)
        services.install()
        install_stack_api(self._stacks)
        return services

    def _open_stack(
        self, name: str, template: Mapping[str, Any], parameters: Mapping[str, str], tags: Mapping[str, str]
    ) -> Stack:
        return Stack(name, template, self._deployed(), self._stacks, parameters=parameters, tags=tags)

    def wait(self, seconds: float, name: str = "") -> StackOutcome:
        """Wait for the end of what is done to a stack, by default the last that was deployed; return its outcome."""
        self._deployed()
        stack = next(each for each in reversed(self._deployments) if name in ("", each.name))
        stack.join(seconds)
        return stack.outcome()

    def require_soundness(self) -> None:
        """
        Make sure that no failure is the rehearsal's own.

        Raises:
            DefectError: A resource failed, or a call of a node or function, because of a defect of the rehearsal.
        """
        events = [event for stack in self._stacks.list() for event in stack.events()]
        defects = [f"{event.logical_id}: {event.reason}" for event in events if is_defect(event.reason)]
        if found := (*defects, *self._calls.find_defects()):
            raise DefectError(found)

    def awaits_signals(self) -> bool:
        """Return whether a resource of any stack waits for signals."""
        return any(stack.awaits_signals() for stack in self._stacks.list())

    def give_up_signals(self, reason: str) -> None:
        """Let the resources that wait for signals fail, for a reason."""
        for stack in self._stacks.list():
            stack.give_up_signals(reason)

    def calls(self, *, until: float | None = None) -> CallCounts:
        """Count the calls of nodes and functions, up to a monotonic time or all."""
        return self._calls.count(until=until)

    def invocations(self) -> tuple[Invocation, ...]:
        """Return the invocations of functions, in the order in which they ended."""
        return self._services.functions.invocations() if self._services else ()

    def activities(self) -> tuple[dict[str, Any], ...]:
        """Return the scaling activities of all groups in the API's form, newest first."""
        return self._services.scaling.activities() if self._services else ()

    def fail_instance(self, instance_id: str, check: HealthCheck = "stopped") -> bool:
        """
        Fail a check of EC2 for an instance; return whether it was there and nobody ends it already.

        To EMR, whatever check an instance fails, it is gone; a single one stays, stopped where that is the check.
        """
        services = self._deployed()
        if services.emr.fail_instance(instance_id) or services.scaling.fail_instance(instance_id, check):
            return True
        return check == "stopped" and services.instances.stop(instance_id)

    def age_groups(self, seconds: float) -> None:
        """Date the creation of every group back, by seconds."""
        self._deployed().scaling.age_groups(seconds)

    def limit_training(self, limits: TrainingLimits) -> None:
        """Change the quotas and the capacity of training jobs."""
        self._deployed().training.ledger.limits = limits

    def begin_reservation(self, name: str) -> None:
        """Let a capacity reservation or a Capacity Block begin now, by its id."""
        self._deployed().capacity.reservations.begin(name)

    def limit_tokens(self, seconds: float) -> None:
        """Change for how many seconds API servers on EKS take a token."""
        self._deployed().eks.access.tokens.token_seconds = seconds

    def kill_function(self, part: str) -> int:
        """Kill the processes of functions whose name has a part, between any two calls; return how many there were."""
        return self._deployed().functions.kill(part)

    def interrupt_training(self, job: str) -> bool:
        """Take back the spot capacity of a training job; return whether it has any that trains."""
        return self._deployed().training.interrupt(job)

    def kill_container(self, job: str, number: int) -> bool:
        """End the container `algo-<number>` of a training job; return whether the job had it."""
        return self._deployed().training.kill_container(job, number)

    def find_pod_credentials(
        self, cluster: str, namespace: str, service_account: str, instance_id: str
    ) -> Credentials | None:
        """
        Return the credentials that EKS Pod Identity gives to pods of a service account; None where it gives none.

        Args:
            cluster: The cluster of EKS.
            namespace: Namespace of the account.
            service_account: The account.
            instance_id: The node of the pods, whose role decides too; empty for any node of the cluster.
        """
        return self._deployed().eks.find_credentials(cluster, namespace, service_account, instance_id)

    def find_mount_obstacle(self, cluster: str, instance_id: str, volume: tuple[str, str]) -> tuple[str, str]:
        """
        Return the kubelet's step at which a node of a cluster fails to mount a volume of EFS, and why; empty for none.

        Args:
            cluster: The cluster of EKS.
            instance_id: The node.
            volume: File system and access point.
        """
        return self._deployed().eks.find_mount_obstacle(cluster, instance_id, volume)

    def find_pull_denial(self, cluster: str, instance_id: str, image: str) -> str:
        """Return why a node of a cluster of EKS may not pull an image, in IAM's words; empty where it may."""
        return self._deployed().eks.find_pull_denial(cluster, instance_id, image)

    def may_write_volume(self, cluster: str, instance_id: str, volume: tuple[str, str]) -> bool:
        """Return whether a node of a cluster that mounts a volume of EFS may write to it."""
        return self._deployed().eks.may_write(cluster, instance_id, volume)

    def send_event(
        self, source: str, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str] = ()
    ) -> int:
        """Send an event of a service, such as `aws.ec2`, to the default event bus; return its number of targets."""
        services = self._deployed()
        return services.bus.send(build_event(services.place, source, detail_type, detail, resources))

    def stop(self) -> None:
        """End everything, machines excepted: those are their host's."""
        for stack in reversed(self._stacks.list()):
            stack.close()
        os.environ.pop(_ACCOUNT_VARIABLE, None)
        if self._services is not None:
            self._services.close()
        self._server.stop()
        self._taken.release()

    def _deployed(self) -> Services:
        if self._services is None:
            raise RehearsalError("a stack must have been deployed; call deploy first")
        return self._services


def _require_no_clusters(template: Mapping[str, Any]) -> None:
    """Raise UnsupportedError for clusters of EKS, where no host runs control planes."""
    resources = template.get("Resources", {})
    if found := [f"{name}: no control plane" for name in resources if resources[name]["Type"] == "AWS::EKS::Cluster"]:
        raise UnsupportedError(found)


def _upload_assets(stack: AssemblyStack, place: Place) -> None:
    """Create what a stack needs of the bootstrap stack, version and bucket, and upload its file assets there."""
    if stack.bootstrap_parameter:
        put_bootstrap_version(place, stack.bootstrap_parameter)
    s3 = place.client("s3")
    for asset in stack.assets:
        bucket, key = fill_place(asset.bucket, place), fill_place(asset.key, place)
        if bucket not in {entry["Name"] for entry in s3.list_buckets()["Buckets"]}:
            location = {"CreateBucketConfiguration": {"LocationConstraint": place.region}}
            s3.create_bucket(Bucket=bucket, **({} if place.region == DEFAULT_REGION else location))
        body = zip_folder(asset.path) if asset.packaging == "zip" else asset.path.read_bytes()
        s3.put_object(Bucket=bucket, Key=key, Body=body)


def zip_folder(folder: Path) -> bytes:
    """Zip a folder so that the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(entry for entry in folder.rglob("*") if entry.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _EPOCH)
            entry.external_attr = (path.stat().st_mode & 0o777) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()
