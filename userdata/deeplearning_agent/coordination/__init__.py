"""Coordination: queues, the state item, progress events and the signal to CloudFormation."""
