"""Rehearses CDK stacks with EC2 fleets on this machine: an embedded AWS, and machines that boot their user data."""
