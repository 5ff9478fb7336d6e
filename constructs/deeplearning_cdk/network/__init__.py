"""The network of a cluster: VPC, subnets, endpoints, routes and security groups."""
