"""
The words that the cluster's programs exchange: names, settings, messages and the state item.

Standard library only, Python 3.10 syntax: it runs in the CDK app, in the Lambda and on every node.
Keys and names are wire format. Add optional ones; never rename or remove one.
"""
