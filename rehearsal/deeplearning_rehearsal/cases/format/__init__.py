"""The format of fault cases: how their TOML is read and checked."""
