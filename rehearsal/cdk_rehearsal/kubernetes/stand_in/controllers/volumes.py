"""Controller of volumes: binds claims to volumes that satisfy them, and protects both while they are used."""

from collections.abc import Sequence

from cdk_rehearsal.kubernetes.stand_in.base.resources import CLAIMS, CLASSES, PODS, VOLUMES, Manifest, get_key
from cdk_rehearsal.kubernetes.stand_in.base.selectors import matches_labels, read_quantity
from cdk_rehearsal.kubernetes.stand_in.base.store import Store
from cdk_rehearsal.kubernetes.stand_in.controllers.indexes import ENDED

_SOURCE = "persistentvolume-controller"
_BOUND_BY, _COMPLETED = "pv.kubernetes.io/bound-by-controller", "pv.kubernetes.io/bind-completed"


class VolumeController:
    """
    Binds claims.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reported: set[tuple[str, str]] = set()

    def settle(self) -> Sequence[float]:
        """Look at each claim and each volume once."""
        for claim in self._store.list(CLAIMS):
            if "deletionTimestamp" in claim["metadata"]:
                self._end_claim(claim)
            elif claim["status"]["phase"] == "Pending":
                self._look_for_volume(claim)
            elif claim["status"]["phase"] == "Bound":
                self._keep_bound(claim)
        for volume in self._store.list(VOLUMES):
            self._set_phase(volume)
        return []

    def _keep_bound(self, claim: Manifest) -> None:
        """Put back the reference of a bound volume to its claim, or give up a claim whose volume has another."""
        volume = self._store.find(VOLUMES, ("", claim["spec"].get("volumeName", "")))
        if volume is None:
            self._lose(claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
            return
        reference = volume["spec"].get("claimRef", {})
        if reference and reference.get("uid") != claim["metadata"]["uid"]:
            words = "Two claims are bound to the same volume, this one is bound incorrectly"
            self._lose(claim, "ClaimMisbound", words)
        elif (reference.get("namespace"), reference.get("name")) != get_key(claim):
            self._bind(volume, claim)

    def _lose(self, claim: Manifest, reason: str, words: str) -> None:
        self._store.change(CLAIMS, get_key(claim), lambda each: each["status"].update(phase="Lost"))
        self._report(claim, reason, words)

    def _look_for_volume(self, claim: Manifest) -> None:
        wanted = claim["spec"].get("volumeName")
        if wanted:
            volume = self._store.find(VOLUMES, ("", wanted))
            if volume is None:
                return
            # A volume that names the claim is bound to it whatever its size (pv_controller.go, syncUnboundClaim).
            if "claimRef" not in volume["spec"]:
                if mismatch := _find_mismatch(volume, claim):
                    self._report(claim, "VolumeMismatch", f'Cannot bind to requested volume "{wanted}": {mismatch}')
                    return
                self._bind(volume, claim)
            elif _names(volume, claim):
                self._bind(volume, claim)
            return
        fitting = [volume for volume in self._store.list(VOLUMES) if _is_match(volume, claim)]
        own = [volume for volume in fitting if "claimRef" in volume["spec"]]
        if fitting:
            self._bind(min(own or fitting, key=lambda each: read_quantity(each["spec"]["capacity"]["storage"])), claim)
            return
        name = claim["spec"].get("storageClassName", "")
        if not name:
            words = "no persistent volumes available for this claim and no storage class is set"
            self._report(claim, "FailedBinding", words)
        elif self._store.find(CLASSES, ("", name)) is None:
            self._report(claim, "ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found')

    def _report(self, claim: Manifest, reason: str, words: str) -> None:
        """Say once of a claim why it stays unbound."""
        said = (claim["metadata"]["uid"], words)
        if said not in self._reported:
            self._reported.add(said)
            self._store.record_event(claim, reason, words, source=_SOURCE, is_warning=reason != "FailedBinding")

    def _bind(self, volume: Manifest, claim: Manifest) -> None:
        metadata = claim["metadata"]
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        }

        def edit_volume(each: Manifest) -> None:
            if "claimRef" not in each["spec"]:
                each["metadata"].setdefault("annotations", {})[_BOUND_BY] = "yes"
            each["spec"]["claimRef"] = reference
            each["status"]["phase"] = "Bound"

        def edit_claim(each: Manifest) -> None:
            annotations = each["metadata"].setdefault("annotations", {})
            annotations[_COMPLETED] = "yes"
            if "volumeName" not in each["spec"]:
                annotations[_BOUND_BY] = "yes"
            each["spec"]["volumeName"] = volume["metadata"]["name"]
            spec = volume["spec"]
            each["status"] |= {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]}

        self._store.change(VOLUMES, get_key(volume), edit_volume)
        self._store.change(CLAIMS, get_key(claim), edit_claim)

    def _set_phase(self, volume: Manifest) -> None:
        reference = volume["spec"].get("claimRef")
        phase = "Available"
        if reference and "uid" in reference:
            claim = self._store.find(CLAIMS, (reference["namespace"], reference["name"]))
            phase = "Bound" if claim and claim["metadata"]["uid"] == reference["uid"] else "Released"
        self._store.change(VOLUMES, get_key(volume), lambda each: each["status"].update(phase=phase))
        if "deletionTimestamp" in volume["metadata"] and phase != "Bound":
            self._store.change(VOLUMES, get_key(volume), lambda each: _unprotect(each, "kubernetes.io/pv-protection"))

    def _end_claim(self, claim: Manifest) -> None:
        """Let a deleted claim go once no pod uses it."""
        namespace, name = get_key(claim)
        for pod in self._store.list(PODS, namespace):
            volumes = pod["spec"].get("volumes", ())
            claims = {volume.get("persistentVolumeClaim", {}).get("claimName") for volume in volumes}
            if name in claims and pod["status"]["phase"] not in ENDED and "nodeName" in pod["spec"]:
                return
        self._store.change(CLAIMS, (namespace, name), lambda each: _unprotect(each, "kubernetes.io/pvc-protection"))


def _unprotect(manifest: Manifest, finalizer: str) -> None:
    metadata = manifest["metadata"]
    metadata["finalizers"] = [each for each in metadata.get("finalizers", ()) if each != finalizer]


def _names(volume: Manifest, claim: Manifest) -> bool:
    reference = volume["spec"].get("claimRef", {})
    named = (reference.get("namespace"), reference.get("name"))
    return named == get_key(claim) and reference.get("uid", claim["metadata"]["uid"]) == claim["metadata"]["uid"]


def _is_match(volume: Manifest, claim: Manifest) -> bool:
    if "deletionTimestamp" in volume["metadata"] or _find_mismatch(volume, claim):
        return False
    selector = claim["spec"].get("selector")
    if selector is not None and not matches_labels(selector, volume["metadata"].get("labels", {})):
        return False
    return "claimRef" not in volume["spec"] or _names(volume, claim)


def _find_mismatch(volume: Manifest, claim: Manifest) -> str:
    """Return why a volume does not satisfy a claim; empty where it does."""
    offered, wanted = volume["spec"], claim["spec"]
    if read_quantity(offered["capacity"]["storage"]) < read_quantity(wanted["resources"]["requests"]["storage"]):
        return "requested PV is too small"
    if offered.get("storageClassName", "") != wanted.get("storageClassName", ""):
        return "storageClassName does not match"
    if offered["volumeMode"] != wanted["volumeMode"]:
        return "incompatible volumeMode"
    if not set(wanted["accessModes"]) <= set(offered["accessModes"]):
        return "incompatible accessMode"
    return ""
