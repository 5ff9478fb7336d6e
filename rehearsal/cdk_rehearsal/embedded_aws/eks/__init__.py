"""Amazon EKS: clusters, node groups, add-ons, access and identities, in front of a control plane of the lab."""
