"""What reward hacking looks like, and when that is an alarm. Pure: no clock, no files, no chance.

A Watch is fed with judged samples and with the answers to the audit's own questions, and returns alarms.
"""

from referee.signals.alarm import NAMES, Alarm
from referee.signals.asked import Asked
from referee.signals.seen import Seen, presence
from referee.signals.watch import Watch, WatchSettings

__all__ = ["NAMES", "Alarm", "Asked", "Seen", "Watch", "WatchSettings", "presence"]
