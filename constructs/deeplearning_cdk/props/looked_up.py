"""Stand-ins that the CDK gives until its CLI has looked something up in the account."""

import re

# aws-cdk-lib 2.275.0: DUMMY_VPC_PROPS of aws-ec2/lib/vpc.ts, StringParameter.valueFromLookup, LookupMachineImage.
_STAND_IN = re.compile(r"1\.2\.3\.4/5|dummy1[a-z]|dummy-value-for-[A-Za-z0-9._/-]*|ami-1234")


def is_stand_in(value: object) -> bool:
    """
    Return whether a value stands for one that is looked up only after the app has been synthesized once.

    The CLI runs the app, looks up what the assembly lists as missing, writes it to `cdk.context.json` and runs the app
    again. A check that refuses a stand-in would end the first run, and nothing would ever be looked up.

    Args:
        value: A zone, a network, an id, or the value of a parameter.
    """
    return isinstance(value, str) and _STAND_IN.fullmatch(value) is not None
