"""
Reads what jobs need from the context: data, software environment, FSx for Lustre, throughput.

    -c data='[{"name": "coco", "bucket": "team-data", "key": "coco/train.tar.gz", "target": "efs"}]'
    -c environment=horovod, none, or requirements.txt
    -c environment='{"horovod": "0.28.1", "framework": "torch==2.7.1"}'
    -c environment='{"path": "requirements.txt", "horovod": "0.28.1"}'
    -c environment_cache=team-bucket, or team-bucket/environments/
    -c container=registry.example.com/team/train:1.2
    -c lustre_storage_gib=1200, for data with the target lustre
    -c lustre_bucket=team-data, a whole bucket on Lustre, as data of the bucket's name
    -c file_system_throughput=elastic, bursting, or MiB each second
"""

import json
from collections.abc import Mapping
from typing import Any

from aws_cdk import Size

from deeplearning_cdk import DataSource, EnvironmentCache, JobEnvironment
from deeplearning_cdk.props.check import check_prop, show_value
from deeplearning_cdk.storage.lustre_props import LustreStorage
from stacks.context_values import ContextError, Reader, build, read_number, read_object, read_text

DEFAULT_STORAGE = Size.gibibytes(1200)
_CONDA_ENDINGS = (".yml", ".yaml")
_ENVIRONMENTS = {"horovod": JobEnvironment.with_horovod, "none": JobEnvironment.none}
_WORDS = ("elastic", "bursting")


def read_throughput(key: str, value: Any) -> str | Size:
    """
    Read how throughput is provided: a word, or MiB each second.

    Raises:
        ContextError: It is something else.
    """
    if value in _WORDS:
        return str(value)
    try:
        return Size.mebibytes(read_number(key, value))
    except ContextError as error:
        raise ContextError(
            f"{key} must be {', '.join(_WORDS)} or MiB each second, got {show_value(value)}; write e.g. -c {key}=128"
        ) from error


def read_data(key: str, value: Any) -> tuple[DataSource, ...]:
    """
    Read the data of jobs: a list of objects with the arguments of `DataSource`.

    Raises:
        ContextError: It is something else.
    """
    entries = value
    if isinstance(value, str):
        try:
            entries = json.loads(value)
        except ValueError as error:
            raise ContextError(
                f"{key} must be a JSON list, got {show_value(value)} ({error}); write e.g. {_EXAMPLE}"
            ) from error
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ContextError(f"{key} must be a JSON list of objects, got {show_value(value)}; write e.g. {_EXAMPLE}")
    if odd := [value for entry in entries for value in entry.values() if not isinstance(value, str)]:
        raise ContextError(f"{key} must have texts alone, got {show_value(odd[0])}; write e.g. {_EXAMPLE}")
    return tuple(build(f"{key}[{index}]", DataSource, entry) for index, entry in enumerate(entries))


_EXAMPLE = """[{"name": "train", "bucket": "my-bucket", "key": "train.tar.gz"}]"""


def read_environment(key: str, value: Any) -> JobEnvironment:
    """
    Read the software of jobs: a word, a requirements or conda file, or an object with `path`, `horovod`, `framework`.

    Raises:
        ContextError: It is something else, or cannot be built.
    """
    if isinstance(value, str) and value in _ENVIRONMENTS:
        return _ENVIRONMENTS[value]()
    if isinstance(value, dict) or (isinstance(value, str) and value.startswith("{")):
        arguments = dict(read_object(key, value))
        if "horovod" in arguments and "path" not in arguments:
            return build(key, JobEnvironment.with_horovod, {"version": arguments.pop("horovod"), **arguments})
    else:
        arguments = {"path": read_text(key, value)}
    is_conda = str(arguments.get("path", "")).endswith(_CONDA_ENDINGS)
    return build(key, JobEnvironment.from_conda if is_conda else JobEnvironment.from_requirements, arguments)


def read_cache(key: str, value: Any) -> EnvironmentCache:
    """
    Read where environments are kept for other clusters: a bucket's name, and folders of it.

    Raises:
        ContextError: It is something else.
    """
    bucket, slash, prefix = read_text(key, value).partition("/")
    return build(key, EnvironmentCache, {"bucket": bucket, **({"prefix": f"{prefix.rstrip('/')}/"} if slash else {})})


def read_container(key: str, value: Any) -> JobEnvironment:
    """
    Read the container that jobs run in.

    Raises:
        ContextError: It is not the name of an image.
    """
    return build(key, JobEnvironment.from_container, {"image": read_text(key, value)})


def read_storage(key: str, value: Any) -> Size:
    """
    Read the size of FSx for Lustre in GiB.

    Raises:
        ValueError: It is no number, or Lustre has no such size.
    """
    storage = Size.gibibytes(read_number(key, value))
    check_prop(key, storage, LustreStorage)
    return storage


JOB_KEYS: Mapping[str, Reader] = {
    "data": read_data,
    "environment": read_environment,
    "environment_cache": read_cache,
    "container": read_container,
    "lustre_storage_gib": read_storage,
    "lustre_bucket": lambda key, value: build(key, DataSource, {"bucket": value, "name": value}).name,
}


def take_lustre(props: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """
    Part what FSx for Lustre is made with from the cluster's own props, and give a container the name of its prop.

    Args:
        props: What was read.

    Returns:
        The props of the cluster, and those of the file system; none when it was not asked for.

    Raises:
        ContextError: A container and an environment were given.
    """
    cluster = dict(props)
    if "container" in cluster:
        if "environment" in cluster:
            raise ContextError(
                "container must be left out with environment, got both; the container is the environment"
            )
        cluster["environment"] = cluster.pop("container")
    bucket = cluster.pop("lustre_bucket", None)
    if bucket is not None:
        cluster["data"] = (*cluster.get("data", ()), DataSource(bucket, bucket, target="lustre"))
    storage = cluster.pop("lustre_storage_gib", DEFAULT_STORAGE if bucket is not None else None)
    return cluster, {"storage": storage} if storage is not None else {}
