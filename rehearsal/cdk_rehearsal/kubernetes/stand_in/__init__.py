"""Control plane of Kubernetes that stands in for the real servers, as far as jobs of a training cluster use them."""
