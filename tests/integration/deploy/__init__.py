"""What is deployed beside a server: dashboard and alert rules, in real Prometheus."""
