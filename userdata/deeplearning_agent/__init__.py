"""
Agent of a node: prepares it, forms the cluster with the other nodes, then follows the state record.

Standard library, the contract and boto3's own botocore; Python 3.10 syntax. The protocol is in docs/architecture.md.
"""
