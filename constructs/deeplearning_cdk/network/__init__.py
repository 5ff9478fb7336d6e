"""The network of a cluster: VPC, subnets, interfaces, endpoints, routes and security groups."""
