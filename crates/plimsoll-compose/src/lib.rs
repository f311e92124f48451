//! Compose file to specs.
