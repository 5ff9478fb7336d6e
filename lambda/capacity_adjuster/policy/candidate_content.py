"""
Content of a candidate for capacity, as far as its tag and its refused launches tell it.

The tag of a further candidate names its zone, instance type and purchase: `us-east-1b-p4d.24xlarge-spot-1f3a`. That of
the first names nothing; the adjuster's settings do, in the same form, without a zone whose name the app does not know.
"""

import re
from dataclasses import dataclass

from deeplearning_contract.launch_failures import find_instance_type, find_quota

_ZONE = re.compile(r"\b[a-z]{2,3}(?:-[a-z]+)+-[0-9](?:-[a-z]{3}-[0-9])?[a-z]\b")
"""Name of an availability zone, or of a local zone such as `us-west-2-lax-1a` (EC2 User Guide, "Regions and Zones")."""
_SIZE = re.compile(r"\.([0-9]*)x?large$")
_SPOT, _RESERVED = re.compile(r"-spot(-|$)"), re.compile(r"-(reserved|reservation|block|cr)(-|$)")


@dataclass(frozen=True)
class CandidateContent:
    """Zone, instance type and purchase of a candidate; empty where unknown."""

    zone: str = ""
    instance_type: str = ""
    is_spot: bool = False
    is_reserved: bool = False

    @property
    def words(self) -> str:
        """Description for people: `p4d.24xlarge in us-east-1b, spot`."""
        purchase = ", spot" if self.is_spot else ", reserved" if self.is_reserved else ""
        where = f" in {self.zone}" if self.zone else ""
        return f"{self.instance_type or 'a candidate'}{where}{purchase}"

    @property
    def quota(self) -> str:
        """
        Name of what its quota counts; empty when unknown, or without one.

        Spot requests have quotas of their own, for groups of families that Service Quotas alone lists; those of one
        family have one quota.
        """
        if not self.instance_type or self.is_reserved:
            return ""
        return f"spot {self.instance_type.split('.')[0]}" if self.is_spot else find_quota(self.instance_type)

    @property
    def size(self) -> int:
        """Size that its vCPUs follow within a quota: 4 for each `xlarge`; 0 when unknown."""
        found = _SIZE.search(self.instance_type)
        if found is None:
            return 0
        return 4 * int(found[1] or 1) if self.instance_type.endswith("xlarge") else 2

    def shares_quota(self, refused: "CandidateContent") -> bool:
        """Return whether the quota that refused another candidate certainly refuses this one."""
        is_same = bool(refused.quota) and self.quota == refused.quota
        is_larger = self.size >= refused.size > 0 or self.instance_type == refused.instance_type
        return is_same and is_larger


def read_content(candidate: str) -> CandidateContent:
    """Return the content that a candidate's tag names."""
    zone = next(iter(find_zones(candidate)), "")
    return CandidateContent(
        zone=zone,
        instance_type=find_instance_type(candidate.removeprefix(zone)),
        is_spot=_SPOT.search(candidate) is not None,
        is_reserved=_RESERVED.search(candidate) is not None,
    )


def find_zones(text: str) -> tuple[str, ...]:
    """Return the zones that a text names, such as EC2's message of a refused launch, each once."""
    return tuple(dict.fromkeys(_ZONE.findall(text)))
