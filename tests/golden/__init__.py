"""Files and keys of each format version that was ever released."""
