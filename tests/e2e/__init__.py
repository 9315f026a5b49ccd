"""Real vLLM."""
