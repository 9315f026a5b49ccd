"""What only a store that is full, or very large, shows."""
