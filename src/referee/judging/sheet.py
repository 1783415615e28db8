"""From a judge's fixed parts and a sample's texts to a JudgeRequest.

All that does not depend on the sample is put together once (`prepare`). Order in the messages: instructions, prompt,
reference, response, how to reply. The prompt and the reference are fenced with a code that depends on them alone, so
the rollouts of one group share their beginning and providers can reuse it; the response's fence and the verdict tag
carry the nonce, which depends on everything.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from referee.judging.digest import code, digest, measure
from referee.judging.guard import FIELDS, fence
from referee.judging.kind import Form, Kind
from referee.judging.template import Pieces, Template, fill, shipped, uses
from referee.records import JudgeRequest, Message, Sampling

RULES = shipped("rules.txt")
BARE = "bare/1"
GUARD = "guard/1"
"""Version of the fences. What the guard does to texts shows in the texts' own digests."""
MESSAGE_TOKENS = 4
"""What a chat format adds to each message, about."""


class Sheet(Struct, frozen=True):
    """The fixed part of every request of one judge in one form."""

    fenced: bool
    system: Message
    user: Pieces
    fields: tuple[str, ...]
    sampling: Sampling
    facets: tuple[tuple[str, str], ...]
    digest: str
    tokens: int


def prepare(kind: Kind, template: Template, form: Form, fenced: bool = True) -> Sheet:
    """The sheet for one form of reply. Not `fenced`: no rules about fences, and the template says how to reply."""
    reply, sampling = kind.replies[form] if fenced else "", kind.sampling[form]
    rules = RULES if fenced else ""
    system = "".join(literal for literal, _ in fill(template.system, kind.values))
    system = f"{system}\n\n{rules}".strip()
    user = fill(template.user, kind.values, {"reply": fill(reply, kind.values)})
    sent_as = "text" if sampling.schema is None else "schema"
    facets = (
        ("judge", f"{kind.name} {GUARD if fenced else BARE}"),
        ("form", sent_as),
        ("template", digest("\0".join((template.system, template.user, rules, reply)))),
        *((("criteria", digest(kind.values["criteria"])),) if uses(template, "criteria") else ()),
        *kind.facets,
        ("sampling", msgspec.json.encode(sampling, order="deterministic").decode()),
    )
    fixed = system + "".join(literal for literal, _ in user)
    return Sheet(
        fenced=fenced,
        system=Message("system", system),
        user=user,
        fields=tuple(name for name in FIELDS if uses(template, name)),
        sampling=sampling,
        facets=facets,
        digest=digest("\0".join(f"{name}={text}" for name, text in facets)),
        tokens=measure(fixed)[1] + 2 * MESSAGE_TOKENS,
    )


def compose(sheet: Sheet, texts: Mapping[str, str], key: bytes) -> JudgeRequest:
    """The request for these texts, which the guard has already been over."""
    facets: list[tuple[str, str]] = []
    tokens = sheet.tokens
    shared = content = sheet.digest
    for name in sheet.fields:
        named, size = measure(texts[name])
        facets.append((name, named))
        tokens += size
        content += named
        if name != "response":
            shared += named
    nonce, common = code(content, key, b"request"), code(shared, key, b"group")
    filled = {"nonce": nonce, "": ""}
    for name in sheet.fields:
        text = texts[name]
        filled[name] = fence(name, text, nonce if name == "response" else common) if sheet.fenced else text
    text = "".join([literal + filled[slot] for literal, slot in sheet.user])
    body = Message("user", text if sheet.fenced else text.rstrip())
    return JudgeRequest(
        messages=(sheet.system, body) if sheet.system.content else (body,),
        sampling=sheet.sampling,
        facets=(*sheet.facets, *facets),
        nonce=nonce,
        prompt_tokens=tokens,
    )
