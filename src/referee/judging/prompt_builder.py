"""From a judge's fixed parts and the texts of a sample, or of a group's, to an Ask.

All that does not depend on the sample is put together once (`prepare`). Order in the messages: instructions, prompt,
reference, response, how to reply. The prompt and the reference are fenced with a code that depends on them alone, so
the rollouts of one group share their beginning and providers can reuse it; the response's fence and the verdict tag
carry the nonce, which depends on everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from referee.judging.digest import code, digest, measure
from referee.judging.guard import COLUMN, FIELDS, bare, fence
from referee.judging.kind import Decided, Form, Kind, Reader
from referee.judging.template import COLUMNS, Pieces, Template, columns_in, fill, shipped, uses
from referee.records import Ask, Message, Query, Reply, Sampling, Unscored, Verdict

RULES = shipped("rules")
BARE = "bare/1"
GUARD = "guard/2"
"""Version of the fences. What the guard does to texts shows in the texts' own digests."""
SHARED = frozenset({"prompt", "reference"})
"""What the rollouts of one prompt have in common; so have they its columns."""
RESPONSES = "responses"
"""The placeholder for several responses to one prompt."""
LETTERS = "BCDFGHJKMNPQRSTV"
LABEL_LETTERS = 6
"""24 bits: enough that no response can refer to itself or to a sibling, and short enough for a judge to copy."""
LABEL_TOKENS = 40
"""What a label and a fence add to each response, about."""
MESSAGE_TOKENS = 4
"""What a chat format adds to each message, about."""


class Frame(Struct, frozen=True):
    """The fixed part of every request of one judge in one form."""

    fenced: bool
    system: Message
    user: Pieces
    fields: tuple[str, ...]
    sampling: Sampling
    facets: tuple[tuple[str, str], ...]
    digest: str
    tokens: int
    head: int
    """Tokens of what stands before the first text that differs within a group, without the group's own texts."""


def prepare(kind: Kind, template: Template, form: Form, fenced: bool = True) -> Frame:
    """The frame for one form of reply. Not `fenced`: no rules about fences, and the template says how to reply."""
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
    head = system
    for literal, slot in user:
        head += literal
        if slot not in SHARED and not slot.startswith(COLUMNS):
            break
    return Frame(
        fenced=fenced,
        system=Message("system", system),
        user=user,
        fields=(*(name for name in FIELDS if uses(template, name)), *(COLUMNS + name for name in columns_in(template))),
        sampling=sampling,
        facets=facets,
        digest=digest("\0".join(f"{name}={text}" for name, text in facets)),
        tokens=measure(fixed)[1] + 2 * MESSAGE_TOKENS,
        head=measure(head)[1] + MESSAGE_TOKENS,
    )


class Wording(Struct, frozen=True):
    """What tells apart several questions about one response."""

    values: Mapping[str, str]
    """Texts for placeholders that the template leaves open. They are ours or the trainer's, not the policy's."""
    sampling: Sampling
    read: Reader
    queries: tuple[Query, ...] = ()
    decided: Decided | None = None
    """As in Kind."""


class Group(Struct, frozen=True):
    """A frame with its prompt and reference filled in: what the rollouts of one prompt have in common."""

    frame: Frame
    prompt: str
    """As the judge may see it."""
    user: Pieces
    """What is still open: the response and the nonce."""
    facets: tuple[tuple[str, str], ...]
    content: str
    """The digests so far, one after another."""
    tokens: int
    prefixes: tuple[tuple[str, int], ...]
    """As in Ask."""


def gather(frame: Frame, texts: Mapping[str, str], key: bytes, trusted: frozenset[str] = frozenset()) -> Group:
    """The group of these texts (prompt, reference, columns), which the guard has been over. `trusted` names those that
    stand there as they are."""
    facets: list[tuple[str, str]] = []
    tokens, content = frame.tokens, frame.digest
    names = [name for name in frame.fields if name in texts]
    for name in names:
        named, size = measure(texts[name])
        facets.append((f"trusted {name}" if name in trusted else name, named))
        tokens += size
        content += named
    common = code(content, key, b"group")
    shown = {
        name: fence(COLUMN if name.startswith(COLUMNS) else name, texts[name], common)
        if frame.fenced and name not in trusted
        else bare(texts[name])
        for name in names
    }
    user: list[tuple[str, str]] = []
    literal = ""
    for before, slot in frame.user:
        literal += before
        if slot in shown:
            literal += shown[slot]
        else:
            user.append((literal, slot))
            literal = ""
    prefixes = ((common, frame.head + tokens - frame.tokens),)
    return Group(frame, texts["prompt"], tuple(user), (*frame.facets, *facets), content, tokens, prefixes)


class Shown(Struct, frozen=True):
    """What is asked about, as it stands in the request."""

    slot: str
    """The placeholder it is put in."""
    text: str
    named: str
    """Digest of the texts themselves."""
    nonce: str
    tokens: int
    labels: tuple[str, ...] = ()
    """Of several responses: what each stands under, which its writer could not know."""


def show_one(group: Group, response: str, key: bytes) -> Shown:
    """One response, which the guard has been over."""
    named, size = measure(response)
    nonce = code(group.content + named, key, b"request")
    text = fence("response", response, nonce) if group.frame.fenced else bare(response)
    return Shown("response", text, named, nonce, size)


def show_several(group: Group, texts: Sequence[str], key: bytes) -> Shown:
    """These responses, in this order, each under a label. Labels depend on the secret, so the cache key and what the
    reader returns must not depend on them."""
    measured = [measure(text) for text in texts]
    named = digest("".join([name for name, _ in measured]))
    nonce = code(group.content + named, key, b"request")
    labels: list[str] = []
    number = 0
    while len(labels) < len(texts):
        found = "".join(LETTERS[int(digit, 16)] for digit in code(f"{nonce}{number}", key, b"label")[:LABEL_LETTERS])
        number += 1
        if found not in labels:
            labels.append(found)
    shown = [f"Response {name}:\n{fence('response', text, nonce)}" for name, text in zip(labels, texts, strict=True)]
    size = sum([tokens for _, tokens in measured]) + LABEL_TOKENS * len(texts)
    return Shown(RESPONSES, "\n\n".join(shown), named, nonce, size, tuple(labels))


def compose(
    group: Group,
    shown: Shown,
    sampling: Sampling,
    read: Callable[[Ask, Reply], Verdict | Unscored],
    again: int,
    pool: str,
    in_text: Callable[[], Ask | Verdict | Unscored] | None,
    values: Mapping[str, str] | None = None,
) -> Ask:
    """The question about what is shown of a group. `values`: as in Wording; the rest as in Ask.

    The nonce does not depend on the wording: several questions about one response share all that stands before it.
    """
    frame = group.frame
    filled = {shown.slot: shown.text, "nonce": shown.nonce, "": ""}
    facets, tokens = (*group.facets, (shown.slot, shown.named)), group.tokens + shown.tokens
    prefixes = group.prefixes
    if values is not None:
        prefixes = (*prefixes, (shown.nonce, prefixes[0][1] + shown.tokens))
        filled |= values
        for name, value in values.items():
            said, more = measure(value)
            facets, tokens = (*facets, (name, said)), tokens + more
    text = "".join([literal + filled[slot] for literal, slot in group.user])
    body = Message("user", text if frame.fenced else text.rstrip())
    return Ask(
        messages=(frame.system, body) if frame.system.content else (body,),
        sampling=sampling,
        facets=facets,
        nonce=shown.nonce,
        prompt_tokens=tokens,
        read=read,
        again=again,
        pool=pool,
        in_text=in_text,
        prefixes=prefixes,
    )
