"""Events of the adjuster: CloudFormation requests, budget messages and the end of Capacity Blocks."""
