"""The same Referee over HTTP, in the shapes trainers already speak. Needs the extra `serve` (FastAPI, uvicorn).

app             the application; `listen` the process that serves it
routes          our own paths; `trainer_routes` those of OpenRLHF, slime and LLaMA-Factory
schemas         bodies of requests and answers; unknown fields are refused. `openapi` describes them
refusals        what is answered instead of a result, and how a Referee's errors become that
gate            authentication and admission checks: token, Host header, size of the body
tokens          callers and their tokens; `teams` what each team reads and may spend
protocol        limits on headers and waiting, below the application
access          the access log and request ids; `logs` the format of lines
service         a Referee for many callers: admission, health, draining
shares          fair shares of a full queue among callers
tickets         tickets to collect later; `ticket_store` keeps them in Redis, for replicas, by `ticket_scripts`
reload          SIGHUP: another Referee for new work, the old one until its work is done
prometheus      the numbers at /metrics; `team_metrics` those of teams
"""

from referee.server.app import add_page, make_app
from referee.server.listen import run

__all__ = ["add_page", "make_app", "run"]
