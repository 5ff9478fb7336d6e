"""The rehearsed template: overrides, capacity and user data."""
