"""
Rules that AWS states and others wrote down, held against a template before anything is deployed.

CloudFormation's resource schemas and cfn-lint's rules, the service models of botocore, and a table for what neither
of them knows.
"""
