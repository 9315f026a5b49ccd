"""vLLM's extension point for encoder outputs, translated into the driving ports."""
