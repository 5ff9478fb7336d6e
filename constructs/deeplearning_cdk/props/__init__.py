"""Checks of props: types, rules, regions, tags, and values that are looked up at synthesis."""
