"""What reward hacking looks like, and when that is an alarm. Pure: no clock, no files, no chance.

A Watch is fed with judged samples and with the answers to the audit's own questions, and returns alarms.
"""

from referee.signals.alarm import Alarm
from referee.signals.observations import AuditAnswer, Observation, presence
from referee.signals.watch import RATE, Watch

__all__ = ["RATE", "Alarm", "AuditAnswer", "Observation", "Watch", "presence"]
