"""Kubernetes of a rehearsal: its control plane, its nodes and their pods."""
