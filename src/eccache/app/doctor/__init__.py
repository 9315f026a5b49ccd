"""`eccache doctor`: what goes wrong in practice, each with cause and remedy."""

from eccache.app.doctor.checks import CHECKS, examine
from eccache.app.doctor.finding import Finding, Severity
from eccache.app.doctor.machine import Machine
from eccache.app.doctor.subject import Subject

__all__ = ["CHECKS", "Finding", "Machine", "Severity", "Subject", "examine"]
