"""CloudFormation's pseudo parameters as tokens, read once: every access to `Aws` is a request to jsii."""

from aws_cdk import Aws

ACCOUNT_ID = Aws.ACCOUNT_ID
PARTITION = Aws.PARTITION
REGION = Aws.REGION
