"""CloudFormation: templates, intrinsic functions, stacks, custom resources and wait conditions."""
