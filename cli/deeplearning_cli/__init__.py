"""The `deeplearning-cdk` command."""
