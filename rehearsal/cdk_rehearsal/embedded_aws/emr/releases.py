"""Releases of EMR and their applications."""

import re
from collections.abc import Mapping
from typing import Any

_RELEASE = re.compile(r"emr-(\d+)\.(\d+)\.(\d+)")
_OLDEST = (5, 30)
"""Of earlier releases security groups, logs and the cancellation of steps are not as the rehearsal has them."""
_RELEASES = {
    5: ("30.0", "30.1", "30.2", "31.0", "31.1", "32.0", "32.1", "33.0", "33.1", "34.0", "35.0", "36.0", "36.1", "36.2"),
    6: (
        *("0.0", "0.1", "1.0", "1.1", "2.0", "2.1", "3.0", "3.1", "4.0", "5.0", "6.0", "7.0", "8.0", "8.1", "9.0"),
        *("9.1", "10.0", "10.1", "11.0", "11.1", "12.0", "13.0", "14.0", "15.0"),
    ),
    7: tuple(f"{minor}.0" for minor in range(15)),
}
"""Major version -> the rest of each release that exists (EMR release guide, "About Amazon EMR releases")."""
_APPLICATIONS = {
    *("amazoncloudwatchagent", "delta", "flink", "ganglia", "hadoop", "hbase", "hcatalog", "hive", "hudi", "hue"),
    *("iceberg", "jupyterenterprisegateway", "jupyterhub", "livy", "mahout", "mxnet", "oozie", "phoenix", "pig"),
    *("presto", "prestosql", "spark", "sqoop", "tensorflow", "tez", "trino", "zeppelin", "zookeeper"),
}
"""Names in lower case, of which EMR takes any case (release guide, "Application versions in Amazon EMR releases")."""


def check_release(request: Mapping[str, Any]) -> None:
    """Raise ValueError for a release or an application that EMR does not have, or the rehearsal does not know."""
    match = _RELEASE.fullmatch(str(request.get("ReleaseLabel", "")))
    if match is None:
        raise ValueError(f"The supplied release label is invalid: {request.get('ReleaseLabel')}.")
    if (int(match[1]), int(match[2])) < _OLDEST:
        raise ValueError(f"the rehearsal knows releases from emr-5.30.0 on, got {request['ReleaseLabel']}")
    if f"{int(match[2])}.{int(match[3])}" not in _RELEASES.get(int(match[1]), ()):
        raise ValueError(f"The supplied release label is invalid: {request['ReleaseLabel']}.")
    if unknown := sorted(
        each["Name"] for each in request.get("Applications", []) if each["Name"].lower() not in _APPLICATIONS
    ):
        raise ValueError(f"Applications must be those of EMR, got {', '.join(unknown)}; correct the name")
