"""The async pipe from a request to its settled end: coalesce, cache, admission, attempt, retry."""

from referee.engine.endpoint import Endpoint
from referee.engine.engine import Engine
from referee.engine.flight import Flight
from referee.engine.keys import find_key
from referee.engine.port import Response, Transport, TransportFault

__all__ = ["Endpoint", "Engine", "Flight", "Response", "Transport", "TransportFault", "find_key"]
