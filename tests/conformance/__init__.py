"""Every adapter against the suite of its port."""
