"""
Wording of errors for users who write the context.

The constructs name values of Python, which their users pass; each has another spelling in the context.
"""

import re
from collections.abc import Callable, Mapping

_VPC = '{"vpc_id": "vpc-…", "availability_zones": ["us-east-1a"], "private_subnet_ids": ["subnet-…"]}'
_UNITS = {"seconds": "s", "minutes": "m", "hours": "h", "days": "d"}
_SIZES = {"mebibytes": "MiB", "gibibytes": "GiB", "tebibytes": "TiB"}
_SPELLINGS: Mapping[str, str | Callable[[re.Match[str]], str]] = {
    r"Duration\.(\w+)\(([0-9]+)\)": lambda found: found[2] + _UNITS[found[1]],
    r"Size\.(\w+)\(([0-9]+)\)": lambda found: found[2] + _SIZES[found[1]],
    r"ec2\.Vpc\.from_lookup\([^)]*\)": _VPC,
    r"vpc\.private_subnets\[0\], or ec2\.Subnet\.from_subnet_id\([^)]*\)": "subnet-…",
    r"\[?ec2\.SecurityGroup\.from_security_group_id\([^)]*\)\]?": "sg-…",
    r"InstanceTypeFacts\(name=.*?, …\)": '{"name": "…", "architecture": "x86_64", …}',
    r"iam\.Role\.from_role_name\([^)]*\)": "arn:aws:iam::account:role/name",
    r"kms\.Key\.from_key_arn\([^)]*\)": "arn:aws:kms:region:account:key/id",
    r"sns\.Topic\.from_topic_arn\([^)]*\)": "arn:aws:sns:region:account:name",
    r"ec2\.InstanceType\(\"([^\"]*)\"\), or its name": r"\1",
    r"ec2\.KeyPair\.from_key_pair_name": "another name",
    r"EnvironmentCache\(\"([^\"]*)\"\)": r"\1",
    r"JobEnvironment\.(?:none|with_(horovod))\(\)": lambda found: found[1] or "none",
    r"(?:JobEnvironment\.)?from_requirements\([^)]*\)": "requirements.txt",
    r"(?:Purchase|NodeImage)\.([a-z_]+)\([^)]*\)": lambda found: found[1].replace("_", "-"),
    r"\[?\b[A-Z]\w+\(…?\)\]?": "an object of its keys in JSON",
    r"\bTrue or False\b": "true or false",
}


def word_for_context(message: str) -> str:
    """Return the message of an error with each value of Python in its remedy as the context spells it."""
    problem, semicolon, remedy = message.partition("; ")
    for pattern, spelling in _SPELLINGS.items():
        remedy = re.sub(pattern, spelling, remedy)
    return problem + semicolon + remedy
