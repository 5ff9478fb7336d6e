"""Installation of a pip environment on a node, from the cheapest source that has it."""

from dataclasses import replace
from pathlib import Path

from deeplearning_provision import disk
from deeplearning_provision.environments.archive import DamagedArchiveError, measure, pack, unpack, verify
from deeplearning_provision.environments.build import ROOM_REMEDY, build_environment
from deeplearning_provision.environments.cache import CacheError, EnvironmentCache
from deeplearning_provision.environments.recipe import Recipe
from deeplearning_provision.environments.site import CURRENT, BuildSite, make_shared
from deeplearning_provision.environments.store import (
    ARCHIVE,
    COMPLETE,
    Manifest,
    discard,
    find_installed,
    find_kept,
    find_key,
    hold_place,
    publish,
    write_memo,
)
from deeplearning_provision.python.interpreter import Interpreter, ask_interpreter
from deeplearning_provision.python.venv import import_frameworks
from deeplearning_provision.s3 import ObjectStore
from deeplearning_provision.steps import ProvisionFailure

TRIES = 2
"""A damaged archive is made again once; a second damaged one needs a repair of its cause first."""
WHAT = "the environment"
SHARED_REMEDY = "free space on the shared file system, or enlarge it"


class Flow:
    """Installation on one node: from its own disk, the shared file system or the cache, else by a build."""

    def __init__(self, site: BuildSite, interpreter: Interpreter, recipe: Recipe) -> None:
        self._site = site
        self._interpreter = interpreter
        self._recipe = recipe
        settings, store = site.settings.cache, ObjectStore(site.facts.region, site.clock)
        self._cache = EnvironmentCache(settings, store) if settings else None
        self._cache_note = ""
        self._origin = ""

    def run(self) -> str:
        """
        Install the environment, and return one line about it and its origin.

        Effects: its folder and the link to it; on the master, its archive on the shared file system and in the cache.
        """
        site = self._site
        if site.is_master and site.is_thorough:
            self._verify()
        for number in range(1, TRIES + 1):
            try:
                manifest = self._bring()
                break
            except DamagedArchiveError as error:
                folder = site.shared / find_key(site.shared, self._recipe.digest)
                if number == TRIES or not site.is_master:
                    raise ProvisionFailure(
                        f"the archive in {folder} is damaged: {error}",
                        "run deeplearning environment --build on the master, which makes it again; retrying",
                        is_final=False,
                    ) from error
                self._refuse(folder, error)
        disk.switch_link(site.local / CURRENT, manifest.key)
        if site.is_master:
            self._fill_cache()
        note = f"; {self._cache_note}" if self._cache_note else ""
        return f"{manifest.describe()}; {self._origin or 'already installed'}{note}"

    def make_lasting(self) -> None:
        """
        Flush the environment to the disk, then record it for later boots.

        Jobs do not wait for that: flushing gigabytes takes most of a minute, and matters only after a crash.
        """
        site = self._site
        key = find_key(site.local, self._recipe.digest, site.boot)
        if key and not find_key(site.local, self._recipe.digest):
            disk.sync_disk(site.local)
            write_memo(site.local, self._recipe.digest, key)

    def _bring(self) -> Manifest:
        site = self._site
        if site.is_master or self._find_installed() is None:
            make_shared(site, self._recipe, lambda: self._find_kept() is not None, self._make)
        return self._find_installed() or self._install()

    def _find_installed(self) -> Manifest | None:
        return find_installed(self._site.local, self._recipe.digest, self._site.boot)

    def _find_kept(self) -> Manifest | None:
        return find_kept(self._site.shared, find_key(self._site.shared, self._recipe.digest))

    def _make(self) -> None:
        site = self._site
        manifest = self._find_installed()
        if manifest is None and self._take_from_cache():
            return
        if manifest is None:
            manifest = build_environment(site, self._interpreter, self._recipe)
            if Manifest.read(site.local / manifest.key):
                write_memo(site.local, self._recipe.digest, manifest.key, site.boot)
                self._origin = f"built here in {manifest.seconds:.0f} s"
        # A container image belongs to no cluster.
        if site.facts.cluster and find_kept(site.shared, manifest.key) is None:
            self._pack(manifest)
        write_memo(site.shared, self._recipe.digest, manifest.key)

    def _pack(self, manifest: Manifest) -> None:
        site = self._site
        folder = site.local / manifest.key
        size = measure(folder, COMPLETE)
        disk.check_room(WHAT, site.shared, size, files=1, remedy=SHARED_REMEDY)
        site.report("packing the environment for the other nodes", size, "bytes")
        with (
            disk.explain_disk_errors("the archive of the environment", SHARED_REMEDY),
            hold_place(site.shared, manifest.key, site.facts.instance_id) as place,
        ):
            place.mkdir()
            archive = pack(folder, place / ARCHIVE, COMPLETE, lambda count: site.count(min(count, size)))
            publish(place, site.shared, replace(manifest, archive=archive))

    def _install(self) -> Manifest:
        site, manifest = self._site, self._find_kept()
        if manifest is None or manifest.archive is None:
            raise ProvisionFailure(
                f"the environment in {site.shared} was removed",
                "run deeplearning environment --build on the master",
                is_final=False,
            )
        archive = manifest.archive
        disk.check_room(WHAT, site.local, archive.unpacked_bytes, archive.files, remedy=ROOM_REMEDY)
        site.report("copying the environment to this node", archive.size, "bytes")
        with (
            disk.explain_disk_errors(WHAT, ROOM_REMEDY),
            hold_place(site.local, manifest.key, site.facts.instance_id) as place,
        ):
            unpack(site.shared / manifest.key / ARCHIVE, archive, place, site.count)
            manifest.write(place)
            discard(site.local / manifest.key)
            place.rename(site.local / manifest.key)
        self._import_frameworks(manifest)
        write_memo(site.local, self._recipe.digest, manifest.key, site.boot)
        if not self._origin:  # else it came from the cache
            self._origin = f"copied from the shared file system, built by {manifest.built_by}"
        return manifest

    def _import_frameworks(self, manifest: Manifest) -> None:
        self._site.report("importing the frameworks")
        python = self._site.local / manifest.key / "bin" / "python"
        found = ask_interpreter(python, self._site.programs)
        import_frameworks(python, found.frameworks, manifest.horovod.get("frameworks", {}), self._site.transcript)

    def _verify(self) -> None:
        site, manifest = self._site, self._find_kept()
        if manifest is None or manifest.archive is None:
            return
        site.report("reading the archive on the shared file system", manifest.archive.size, "bytes")
        try:
            verify(site.shared / manifest.key / ARCHIVE, manifest.archive, site.count)
        except DamagedArchiveError as error:
            self._refuse(site.shared / manifest.key, error)

    def _refuse(self, folder: Path, error: DamagedArchiveError) -> None:
        self._site.report(f"the archive in {folder} is damaged: {error}")
        discard(folder)

    def _take_from_cache(self) -> bool:
        site, cache = self._site, self._cache
        if cache is None:
            return False
        site.report(f"looking up the environment in {cache}")
        try:
            manifest = cache.find(self._recipe.digest)
            if manifest is None or manifest.archive is None:
                return False
            disk.check_room(WHAT, site.shared, manifest.archive.size, files=2, remedy=SHARED_REMEDY)
            site.report(f"fetching the environment from {cache}", manifest.archive.size, "bytes")
            with (
                disk.explain_disk_errors("the archive of the environment", SHARED_REMEDY),
                hold_place(site.shared, manifest.key, site.facts.instance_id) as place,
            ):
                cache.fetch(manifest, manifest.archive, place, site.add)
                publish(place, site.shared, manifest)
        except CacheError as error:
            self._cache_note = f"{cache} was not used: {error}"
            site.report(self._cache_note)
            return False
        write_memo(site.shared, self._recipe.digest, manifest.key)
        self._origin = f"copied from {cache}, built by {manifest.built_by}"
        return True

    def _fill_cache(self) -> None:
        """Upload the environment for later clusters; a failure is only reported."""
        site, cache, kept = self._site, self._cache, self._find_kept()
        if cache is None or kept is None or kept.archive is None:
            return
        try:
            if not self._cache_note and cache.find(self._recipe.digest):
                return
            site.report(f"copying the environment to {cache}", kept.archive.size, "bytes")
            cache.keep(self._recipe.digest, kept, site.shared / kept.key, site.add)
            self._cache_note += f"; uploaded to {cache}" if self._cache_note else f"uploaded to {cache}"
        except CacheError as error:
            self._cache_note = self._cache_note or f"{cache} was not used: {error}"
