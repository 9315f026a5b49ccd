"""Real processes killed, real files damaged, real limits reached."""
