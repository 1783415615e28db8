"""The same Referee over HTTP, in the shapes trainers already speak. Needs the extra `serve` (FastAPI, uvicorn).

refusals   what is answered instead of a result, and how a Referee's errors become that
shapes     what callers send and get, as data; unknown fields are refused
describe   what /openapi.json says of them
service    a Referee for many callers: admission, health, draining
held       tickets to collect later; `tickets` keeps them in Redis, for replicas
reload     SIGHUP: another Referee for new work, the old one until its work is done
shares     fair shares of a full queue among callers
access     the access log and request ids; `logs` says how lines look
gate       authentication and admission checks: token, Host header, size of the body
routes     our own paths; `foreign` those of OpenRLHF, slime and LLaMA-Factory
prometheus the numbers at /metrics
protocol   limits on headers and waiting, below the application
app        the application; `listen` the process that serves it
"""

from referee.server.app import add_page, make_app
from referee.server.listen import run

__all__ = ["add_page", "make_app", "run"]
