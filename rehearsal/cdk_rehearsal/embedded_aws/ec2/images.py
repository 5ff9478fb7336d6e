"""Machine images: public SSM parameters that name them, with their login users and parts."""

from collections.abc import Mapping
from datetime import datetime, timezone

from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ssm.models import Parameter, ssm_backends

from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.image_families import (
    find_architecture,
    find_login_user,
    find_parts,
    find_root_volume,
    takes_instance_store,
)
from cdk_rehearsal.machine import ImagePart
from cdk_rehearsal.place import Place

_UNKNOWN_IMAGE_USER = "ec2-user"
_EMR_IMAGE = "ami-emr"


class ImageCatalogue:
    """The images of the lab, with the login users of the user's own: `ec2-user` where none is given."""

    def __init__(self, place: Place, login_users: Mapping[str, str]) -> None:
        self._ec2 = ec2_backends[place.account][place.region]
        self._ssm = ssm_backends[place.account][place.region]
        self._place = place
        self._users = dict(login_users)
        self._parts: dict[str, frozenset[ImagePart]] = {}
        self._root_volumes: dict[str, tuple[str, int]] = {}
        self._store_takers: set[str] = set()

    def seed_parameter(self, name: str) -> str:
        """Make a public image parameter of a known family resolvable, and return the image id."""
        existing = self._ssm._parameters.get(name)  # noqa: SLF001 - AWS lets nobody write below /aws
        user = find_login_user(name)
        if user is None:
            raise AssemblyError(f"image parameter must be a public one that the rehearsal knows, got {name!r}")
        image_id = str(existing[-1].value) if existing else str(self._ec2.register_image(name=name).id)
        if not existing:
            parameter = Parameter(  # type: ignore[abstract]
                account_id=self._place.account,
                name=name,
                value=image_id,
                parameter_type="String",
                description=None,
                allowed_pattern=None,
                keyid=None,
                last_modified_date=datetime.now(timezone.utc),
                version=1,
                data_type="aws:ec2:image",
            )
            self._ssm._parameters[name].append(parameter)  # noqa: SLF001
        self.admit(image_id)
        self._users[image_id] = user
        self._parts[image_id] = find_parts(name)
        self._root_volumes[image_id] = find_root_volume(name)
        self._ec2.amis[image_id].architecture = find_architecture(name)
        if takes_instance_store(name):
            self._store_takers.add(image_id)
        return image_id

    def seed_emr_image(self) -> str:
        """Make the image that EMR takes by default launchable, Amazon Linux 2023 on releases 7, and return its id."""
        self.admit(_EMR_IMAGE)
        self._parts[_EMR_IMAGE] = frozenset({"amazon-linux"})
        return _EMR_IMAGE

    def admit(self, image_id: str) -> None:
        """Make an image launchable: the rehearsal takes it that the user's own images exist."""
        if image_id not in self._ec2.amis:
            self._ec2.amis[image_id] = Ami(self._ec2, image_id, name=f"image {image_id}", description="of the template")

    def login_user(self, image_id: str) -> str:
        """Return the login user of an image."""
        return self._users.get(image_id, _UNKNOWN_IMAGE_USER)

    def root_volume(self, image_id: str) -> tuple[str, int]:
        """Return root device and size of its snapshot, in GiB, of an image; 0 where it is unknown."""
        return self._root_volumes.get(image_id, ("", 0))

    def takes_instance_store(self, image_id: str) -> bool:
        """Return whether an image combines the devices of the instance store when it boots; the user's own do not."""
        return image_id in self._store_takers

    def parts(self, image_id: str) -> frozenset[ImagePart]:
        """Return the parts of an image beyond those of all images; none are known of the user's own images."""
        return self._parts.get(image_id, frozenset())
