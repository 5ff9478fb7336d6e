"""EKS: a cluster of managed node groups, its control plane, its add-ons, its identities and its checks."""
