"""What /openapi.json says of bodies and answers, made from the shapes they are decoded into."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from referee.server import schemas
from referee.server.refusals import OPEN_PATHS, Problem
from referee.version import VERSION

SHAPES = (
    Problem,
    schemas.Health,
    schemas.LlamaFactoryReply,
    schemas.LlamaFactoryRequest,
    schemas.OpenRLHFReply,
    schemas.OpenRLHFRequest,
    schemas.ScoreReply,
    schemas.ScoreRequest,
    schemas.SlimeRequest,
    schemas.StreamEnd,
    schemas.TicketRequest,
)
REFUSALS = {
    400: "The body is not JSON.",
    401: "The token is missing or wrong.",
    403: "The token is another team's, or the path is the operator's.",
    404: "There is no such ticket.",
    408: "The body did not arrive in time.",
    413: "The body is too long, or holds too many samples.",
    415: "The body is not sent as application/json.",
    421: "No token is set, and the Host header is not a name of this machine.",
    422: "JSON of another shape, or a sample that cannot be judged.",
    429: "No room now, or the team's budget is spent; see Retry-After.",
    500: "A fault of the service or its settings.",
    503: "Not scored, no judge can answer, or the service is about to end; see Retry-After.",
}
OF_BODIES = (400, 408, 413, 415, 422, 429, 500, 503)
ALWAYS = (401, 403, 421)


MESSAGE: dict[str, Any] = {
    "type": "object",
    "description": "A chat message, or an item of OpenAI's Responses API. OpenAI's, Anthropic's and ShareGPT's fields "
    "are read: `role`, `content` (text, or parts), `name`, `tool_calls`, `tool_call_id`, `reasoning_content` (also "
    "`reasoning`, `thinking`, and thinking parts), `refusal`; of items, function_call, function_call_output and "
    "reasoning. A message of another shape is 422, which names the place. So are images and other parts that are not "
    'text, unless [judge] parts = "describe" puts a line in their place.',
}
TOOL: dict[str, Any] = {
    "type": "object",
    "description": "A tool as OpenAI's or Anthropic's API is told of it: a name, a description, a JSON schema.",
}


def ref(shape: type) -> dict[str, str]:
    """A reference to a shape's schema."""
    return {"$ref": f"#/components/schemas/{shape.__name__}"}


def takes(shape: type) -> dict[str, Any]:
    """The body a route reads."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": ref(shape)}}}}


def gives(
    schema: dict[str, Any], *refusals: int, status: int = 200, also: dict[str, Any] | None = None
) -> dict[int | str, dict[str, Any]]:
    """The answers of a route: its result under `status`, and the refusals it may give instead."""
    found: dict[int | str, dict[str, Any]] = {
        status: {"description": "Done.", "content": {"application/json": {"schema": schema}, **(also or {})}}
    }
    for code in sorted({*refusals, *ALWAYS}):
        problem: dict[str, Any] = {
            "description": REFUSALS[code],
            "content": {"application/json": {"schema": ref(Problem)}},
        }
        if code in (429, 503):
            problem["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
        found[code] = problem
    return found


TICKET_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id", "samples", "landed", "done", "results"],
    "properties": {
        "id": {"type": "string"},
        "samples": {"type": "integer"},
        "landed": {"type": "integer"},
        "done": {"type": "boolean"},
        "results": {"anyOf": [{"type": "array", "items": {"$ref": "#/components/schemas/Result"}}, {"type": "null"}]},
    },
}


def describe(app: FastAPI, secured: bool) -> None:
    """Make `app.openapi` tell of our shapes, and of the token where there is one."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=VERSION, description=app.description, routes=app.routes)
            parts = schema.setdefault("components", {})
            _, found = msgspec.json.schema_components(SHAPES, ref_template="#/components/schemas/{name}")
            parts["schemas"] = {**found, "Message": MESSAGE, "Tool": TOOL}
            if secured:
                parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                schema["security"] = [{"token": []}]
                for path in OPEN_PATHS & schema["paths"].keys():
                    schema["paths"][path]["get"]["security"] = []
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
