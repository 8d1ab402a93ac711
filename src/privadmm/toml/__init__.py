"""TOML into frozen dataclasses: declared fields, a reader that names file, line and key, and generated pages."""
