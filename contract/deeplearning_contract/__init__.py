"""
Contract between the cluster's programs: names, settings, messages and the state record.

Standard library only, Python 3.10 syntax: it runs in the CDK app, in the Lambda functions and on every node.
Keys and names are wire format. Add optional ones; never rename or remove one.
"""
