"""Cases of what jobs need: data and environments."""

from typing import TYPE_CHECKING

from deeplearning_rehearsal.cases.account import AccountBucket, DataObject
from deeplearning_rehearsal.cases.case import CloudFaults, case

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase

IMPORT_SIX = (
    "deeplearning wait && deeplearning exec -- /opt/deeplearning/environments/current/bin/python -c 'import six'"
)
WITHOUT_GPUS = {"workers.instance_type": "c5.2xlarge", "master.instance_type": "c5.2xlarge"}


@case(
    "An archive that was cut off fails with a clear error, and nothing of it is in place",
    expect="formed",
    workers=1,
    context={
        "storage.data": [
            {"name": "digits", "bucket": "rehearsed-data", "key": "digits.tar.gz", "target": "efs"},
            {"name": "plain", "bucket": "rehearsed-data", "key": "plain/", "target": "efs"},
        ]
    },
    objects=[
        DataObject(bucket="rehearsed-data", key="digits.tar.gz", files=200, file_bytes=40000, kept=0.6),
        DataObject(bucket="rehearsed-data", key="plain/", files=40, file_bytes=20000),
    ],
)
def data_corrupt(run: "ClusterCase") -> None:
    run.wait_for_steps("data:plain", failed="data:digits")
    run.finish()
    assert not run.find_incomplete("plain")
    assert "the archive must be whole" in run.find_failure("data:digits")
    assert set(run.find_incomplete("digits").values()) == {"absent"}


@case(
    "A disk without room for its data is refused before anything is fetched, and the cluster forms",
    expect="formed",
    workers=1,
    context={"storage.data": [{"name": "digits", "bucket": "rehearsed-data", "key": "digits.zip", "target": "local"}]},
    objects=[DataObject(bucket="rehearsed-data", key="digits.zip", files=200, file_bytes=40000)],
)
def data_disk_full(run: "ClusterCase") -> None:
    run.worker(1).wait_for_boot()
    run.worker(1).fill_disk(free_mib=200)
    run.wait_for_steps(failed="data:digits")
    run.finish()
    assert "must be free on" in run.find_failure("data:digits")
    assert set(run.find_incomplete("digits").values()) == {"absent"}


@case(
    "FSx for Lustre is linked to a bucket: every node sees its objects, and nothing is copied",
    expect="formed",
    workers=1,
    context={
        "storage.lustre": {"storage": "1200GiB"},
        "storage.data": [{"name": "digits", "bucket": "rehearsed-data", "key": "digits/", "target": "lustre"}],
    },
    objects=[DataObject(bucket="rehearsed-data", key="digits/", files=40, file_bytes=4000)],
    lustre_client=True,
)
def data_on_lustre(run: "ClusterCase") -> None:
    run.wait_for_steps("data:digits")
    run.finish()
    assert not run.find_incomplete("digits")


@case(
    "Provisioning is killed while data is staged: it goes on with the next file, and every node has the data",
    expect="formed",
    workers=1,
    context={"storage.data": [{"name": "digits", "bucket": "rehearsed-data", "key": "digits/", "target": "efs"}]},
    cloud=CloudFaults(object_seconds=1.0),
    objects=[DataObject(bucket="rehearsed-data", key="digits/", files=600, file_bytes=40000)],
    proves_rights=True,
)
def data_staged(run: "ClusterCase") -> None:
    run.master.wait_for_step("data:digits", 0.4)
    run.master.execute("pkill -KILL -f 'deeplearning_comman[d].* provision$'")
    run.wait_for_steps("data:digits")
    seen = run.finish()
    assert not run.find_incomplete("digits")
    assert seen.object_reads <= 680


@case(
    "Horovod does not compile: the compiler's first error is told with a remedy, the cluster forms, and torchrun "
    "needs no Horovod",
    expect="formed",
    workers=1,
    context=WITHOUT_GPUS | {"software.image": "deep-learning-ubuntu", "software.environment": "horovod"},
    gpus_per_node=0,
    minutes=12,
    environment="absent",
)
def environment_build_fails(run: "ClusterCase") -> None:
    # Headers of a user's own, which compilers find before those of the system, lack what Horovod needs.
    run.master.wait_for_boot()
    run.master.execute("mkdir -p /usr/local/include && : > /usr/local/include/string.h")
    run.wait_for_steps(failed="environment")
    seen = run.finish()
    assert seen.environment.state == "failed"
    assert (
        "could not compile Horovod 0.28.1 for torch; pin another version of the framework, or declare no Horovod and "
        "use torchrun" in run.find_failure("environment")
    )
    assert "cstring:" in seen.environment.detail
    assert "error: " in seen.environment.detail
    page = run.await_status("could not compile", "error: ", "use torchrun")
    assert "could not compile" in page
    assert "error: " in page
    assert "use torchrun" in page
    assert run.master.log_in("! deeplearning run -- true") == "status 0"
    program = "import torch.distributed as peers; peers.init_process_group('gloo'); assert peers.get_world_size() == 2"
    torchrun = "deeplearning run --launcher torchrun --without-environment --env PATH=/opt/pytorch/bin:$PATH"
    assert run.master.log_in(f'cd "$EFS_MOUNT" && {torchrun} -- python3 -c "{program}"') == "status 0"


@case(
    "The archive in the environment cache is damaged: its digest gives it away, it is built anew, and the "
    "cluster forms",
    expect="formed",
    workers=1,
    context=WITHOUT_GPUS
    | {"software.environment": {"path": "environments/small.txt"}, "software.environment_cache": "team-environments"},
    gpus_per_node=0,
    buckets=[AccountBucket(name="team-environments", damaged_environments=True)],
    environment="absent",
    after="environment-cache-denied",
)
def environment_cache_corrupt(run: "ClusterCase") -> None:
    # What the case before made: this cluster's shared file system has none of it.
    run.wait_for_steps("environment")
    seen = run.finish()
    assert seen.environment.state == "built"
    assert "built here in" in seen.environment.detail
    assert "s3://team-environments/environments/ was not used: its archive was refused: " in seen.environment.detail
    assert "uploaded to s3://team-environments/environments/" in seen.environment.detail
    assert run.master.log_in(IMPORT_SIX) == "status 0"


@case(
    "The bucket of the environment cache denies the master: it says so, builds the environment, and the cluster forms",
    expect="formed",
    workers=1,
    context=WITHOUT_GPUS
    | {"software.environment": {"path": "environments/small.txt"}, "software.environment_cache": "team-environments"},
    gpus_per_node=0,
    denied=["s3:GetObject", "s3:ListBucket", "s3:PutObject"],
    buckets=[AccountBucket(name="team-environments", denies=["s3:*"])],
    environment="absent",
)
def environment_cache_denied(run: "ClusterCase") -> None:
    # What the bucket does is the same for any environment: this one takes seconds to build.
    run.wait_for_steps("environment")
    seen = run.finish()
    assert seen.environment.state == "built"
    assert "built here in" in seen.environment.detail
    assert "s3://team-environments/environments/ was not used: " in seen.environment.detail
    assert "with an explicit deny in a resource-based policy" in seen.environment.detail
    assert run.master.log_in(IMPORT_SIX) == "status 0"


@case(
    "A disk without room for the environment is refused with what it needs before anything is fetched, and the "
    "cluster forms",
    expect="formed",
    workers=1,
    context=WITHOUT_GPUS | {"software.environment": "horovod"},
    gpus_per_node=0,
    environment="absent",
)
def environment_disk_full(run: "ClusterCase") -> None:
    run.master.wait_for_boot()
    run.master.fill_disk(free_mib=2000)
    run.wait_for_steps(failed="environment")
    seen = run.finish()
    assert seen.environment.state == "failed"
    assert (
        "the environment's build: 3.2 GiB must be free on /opt/deeplearning/environments before anything is fetched"
        in run.find_failure("environment")
    )
    assert "give nodes a larger workers.volume_size" in seen.environment.detail
    page = run.await_status("3.2 GiB must be free", "a larger workers.volume_size")
    assert "3.2 GiB must be free" in page
    assert "a larger workers.volume_size" in page
    # Each program that a build starts is in its log.
    assert run.master.log_in("! test -s /opt/deeplearning/provision/environment.log") == "status 0"
    assert run.master.log_in("deeplearning exec -- true") == "status 0"
