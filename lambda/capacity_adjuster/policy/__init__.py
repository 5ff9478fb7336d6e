"""Policy, as pure functions: observations, records and the decisions from them."""
