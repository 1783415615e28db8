"""How long judging takes and what it costs, before it is paid for: a workload, rehearsed in virtual time."""

from referee.plan.plan import Plan, make_plan
from referee.plan.workload import Workload, limits_in, observe

__all__ = ["Plan", "Workload", "limits_in", "make_plan", "observe"]
