"""Checks of props: types, rules, and values that are looked up at synthesis."""
