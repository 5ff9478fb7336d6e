"""The policy, pure: observations, records and the decisions that follow from them."""
