"""Strict reading of a judge's reply: exactly one verdict, where it must stand, with a value that was offered.

Everything else is Unscored. Nothing is guessed, clamped or searched for. No function here raises on any reply.

    truncated      the reply did not end by itself (token limit, abort, error, any unknown finish_reason), whatever it
                   holds; a bare word or number of which nothing shows that it is whole
    refused        the provider says so; a refusal in prose is no_verdict
    empty          no text
    no_verdict     no tag, not at the end, not an integer or label in it; not JSON; only reasoning
    ambiguous      two tags, a JSON key twice, yes and no, too little probability on yes and no
    schema         JSON of another shape or type; log-probabilities that are none
    out_of_range   a number off the scale
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from referee.judging.guard import scrub
from referee.judging.reasoning import strip_reasoning
from referee.records import Ask, How, Reason, Reply, Unscored, Verdict

LONGEST_REASON = 2000
"""Characters of the judge's words that are kept."""

# Endings, in lower case. A list of bad ones would let the next provider's own word for "cut" pass as an ending.
_ENDED = frozenset(
    {
        *("stop", "eos", "eos_token", "end_turn", "stop_sequence", "stop_token", "end_of_turn", "end_of_text"),
        *("complete", "completed", "finish", "finished", "finish_reason_stop"),
        "normal",  # Qianfan
        *("tool_calls", "tool_call", "tool_use", "function_call"),  # a proxy may make a tool of the schema
    }
)
_REFUSED = frozenset(
    {
        *(
            "content_filter",
            "content_filtered",
            "refusal",
            "refused",
            "blocked",
            "sensitive",
            "moderation",
            "error_toxic",
        ),
        *("safety", "recitation", "blocklist", "prohibited_content", "spii", "finish_reason_safety"),  # Gemini
        *("guardrail", "guardrails", "guardrail_intervened"),  # Bedrock
    }
)
_FULL = frozenset(
    {
        *("length", "max_tokens", "model_length", "max_output_tokens", "max_length", "token_limit"),
        *("finish_reason_max_tokens", "context_length_exceeded", "model_context_window_exceeded"),
    }
)
_BLANK = " \t\r\n\x0b\x0c\x85\xa0\u2028\u2029\u3000\ufeff\u200b"
_MARKUP = _BLANK + "*_`"
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_CODE_BLOCK = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)
_LONGEST_NUMBER = 40
"""Digits. A longer number is outside any scale, and turning it into an int would be slow or refused."""
_OFF_ANY_SCALE = int("9" * _LONGEST_NUMBER)
_decode_plain = msgspec.json.Decoder(dict[str, str | int]).decode


def visible(reply: Reply) -> str | Unscored:
    """What the judge said, its own reasoning aside."""
    if reply.refusal or (reply.finish and reply.finish not in _ENDED):
        unfinished = _unfinished(reply)
        if unfinished is not None:
            return unfinished
    said = reply.text.strip(_BLANK)
    if not said:
        return Unscored(reason=Reason.EMPTY, detail="the judge's reply holds no text")
    if said[0] == "{" and said[-1] == "}":
        return said  # JSON from end to end: a reasoning tag in it is a mention inside a string
    said = strip_reasoning(said, judge=True).strip(_BLANK)
    if not said:
        return Unscored(reason=Reason.NO_VERDICT, detail="the judge's reply is reasoning without an end")
    return said


def _unfinished(reply: Reply) -> Unscored | None:
    """Why nothing may be read from this reply, from how the provider says it ended; None: it ended well."""
    # Also FinishReason.STOP, as a proxy writes it that prints an enum, and content-filter.
    finish = reply.finish.strip().lower().rpartition(".")[2].replace("-", "_")
    if reply.refusal or finish in _REFUSED:
        return Unscored(
            reason=Reason.REFUSED, detail=scrub(reply.refusal or f"finish_reason is {reply.finish!r}")[:200]
        )
    if finish in _ENDED or not reply.finish.strip():
        return None
    detail = f"the judge's reply was cut (finish_reason {scrub(reply.finish)[:60]!r})"
    return Unscored(reason=Reason.TRUNCATED, detail=f"{detail}; raise judge.max_tokens" if finish in _FULL else detail)


def ended(request: Ask, reply: Reply) -> Unscored | None:
    """For a bare word or number: None if it is whole. A tag or a JSON object shows its own end; 1 may be half of 10.

    Honest servers leave finish_reason out now and then. Then fewer tokens than the limit must have been counted.
    """
    if reply.finish.strip() or 0 < reply.tokens_out < request.sampling.max_tokens:
        return None
    detail = (
        "the endpoint says neither how the reply ended (finish_reason) nor how long it is (usage), so a bare answer "
        'may be half of one; use kind = "score", whose replies show their own end'
    )
    return Unscored(reason=Reason.TRUNCATED, detail=detail)


def json_object(said: str) -> dict[str, Any] | Unscored:
    """The whole text as one JSON object, in a code block or not. A key given twice is two verdicts."""
    plain = _plain_object(said)
    if plain is not None:
        return plain
    block = _CODE_BLOCK.fullmatch(said)
    try:
        value = _DECODER.decode(block[1] if block else said)
    except _Twice as error:
        return Unscored(reason=Reason.AMBIGUOUS, detail=str(error))
    except (ValueError, RecursionError):
        return Unscored(reason=Reason.NO_VERDICT, detail="the reply is not one JSON object")
    if not isinstance(value, dict):
        return Unscored(reason=Reason.SCHEMA, detail="the reply is JSON but not an object")
    return value


def _plain_object(said: str) -> dict[str, str | int] | None:
    """The fast way, for an object of strings and integers as nearly every judge writes it. None: look closer.

    A string has two quotation marks, and those that are escaped inside only add to them. So if there are two for each
    key and each string that was found, no key stood there twice.
    """
    try:
        found = _decode_plain(said)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    strings = len(found)
    for value in found.values():
        strings += isinstance(value, str)
    return found if said.count('"') == 2 * strings else None


def fields(said: str, name: str) -> tuple[str, Any] | Unscored:
    """The judge's words and the value under `name`, of a JSON object that holds `reason`, `name` and nothing else."""
    value = json_object(said)
    if isinstance(value, Unscored):
        return value
    if value.keys() != {"reason", name}:
        return Unscored(reason=Reason.SCHEMA, detail=f"the JSON object must hold `reason` and `{name}`, nothing else")
    if not isinstance(value["reason"], str):
        return Unscored(reason=Reason.SCHEMA, detail="`reason` is not a string")
    return value["reason"], value[name]


def tagged(said: str, nonce: str) -> tuple[str, str] | Unscored:
    """The judge's words and what stands in its verdict tag: one tag, with this nonce, at the end.

    Tags with another nonce are quotations and do not count. After the tag only white space and the end of emphasis or
    of a code block may follow.
    """
    opening, closing = f"<verdict-{nonce}>", f"</verdict-{nonce}>"
    if said.count(opening) > 1 or said.count(closing) > 1:
        return Unscored(reason=Reason.AMBIGUOUS, detail="more than one verdict tag")
    words, opened, rest = said.partition(opening)
    inside, closed, after = rest.partition(closing)
    if not opened or not closed:
        return Unscored(reason=Reason.NO_VERDICT, detail="no verdict tag")
    if after.strip(_MARKUP):
        return Unscored(reason=Reason.NO_VERDICT, detail="the verdict tag is not at the end of the reply")
    return words.strip(_MARKUP), inside.strip(_MARKUP)


def given(said: str, request: Ask, name: str) -> tuple[str, Any, How, Reason] | Unscored:
    """The judge's words and its verdict, in the tag or under `name` in JSON; which of these it was, and why there is no
    verdict if that value was not offered."""
    if request.sampling.schema is None:
        found = tagged(said, request.nonce)
        return found if isinstance(found, Unscored) else (*found, "tag", Reason.NO_VERDICT)
    found = fields(said, name)
    return found if isinstance(found, Unscored) else (*found, "schema", Reason.SCHEMA)


def read_label(labels: Mapping[str, float], said: str, request: Ask, _: Reply) -> Verdict | Unscored:
    """A reason, then one of these labels."""
    found = given(said, request, "verdict")
    if isinstance(found, Unscored):
        return found
    words, word, how, otherwise = found
    value = labels.get(word.lower() if how == "tag" else word) if isinstance(word, str) else None
    if value is None:
        return Unscored(reason=otherwise, detail=f"the verdict is none of: {', '.join(labels)}")
    return Verdict(score=value, value=value, reason=kept(words), how=how)


def pairs_in(said: str, nonce: str, name: str, form: str) -> list[tuple[str, str, str]] | Unscored:
    """Of a tag with several verdicts, such as c1=yes; c2=no (`form`): the name (a pattern), the words on its line, and
    the verdict of each, in order."""
    found = tagged(said, nonce)
    if isinstance(found, Unscored):
        return found
    words, inside = found
    line = re.compile(rf"^[ \t*_`-]*(?:Response )?({name})[*_`]*[ \t]*[:.)][ \t]*(.*)$", re.ASCII | re.MULTILINE)
    reasons = {match[1]: match[2] for match in line.finditer(words)}
    pieces = [piece.strip() for piece in inside.replace("\n", ";").split(";")]
    pairs = [re.fullmatch(rf"({name})\s*=\s*(\S+)", piece, re.ASCII) for piece in pieces if piece]
    if not all(pairs):
        return Unscored(reason=Reason.NO_VERDICT, detail=f"the verdict tag does not hold pairs such as {form}")
    return [(pair[1], reasons.get(pair[1], ""), pair[2]) for pair in pairs if pair is not None]


def integer(text: str) -> int | None:
    """ASCII digits with an optional minus and no leading zero: not 7.0, +7, 07, 8/10, ７ or 1e1."""
    if not _INTEGER.fullmatch(text):
        return None
    return int(text[: _LONGEST_NUMBER + 1])


def whole(number: object) -> int | None:
    """A JSON number as an integer. 7.0 is one (JSON Schema says so); 7.5, true and "7" are not."""
    if isinstance(number, float):
        if not math.isfinite(number):
            return _OFF_ANY_SCALE
        return int(number) if number.is_integer() else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def scaled(number: int, low: int, high: int, words: str, how: How) -> Verdict | Unscored:
    """The verdict, if the number is on the scale."""
    if not low <= number <= high:
        shown = str(number) if abs(number) < 10**9 else "a huge number"
        return Unscored(reason=Reason.OUT_OF_RANGE, detail=f"{shown} is outside {low} to {high}")
    return Verdict(score=float(number), value=(number - low) / (high - low), reason=kept(words), how=how)


def kept(words: str) -> str:
    """The judge's words as they go into records: it may have quoted the candidate's control characters."""
    words = words.strip()[:LONGEST_REASON]
    return words if words.isascii() and words.isprintable() else scrub(words)


class _Twice(Exception):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Twice("a key stands twice in the JSON object")
    return found


def _json_integer(text: str) -> int:
    return int(text[: _LONGEST_NUMBER + 1])


# strict=False lets a reason hold a raw line break; NaN and Infinity become None, which no field takes.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_once, parse_int=_json_integer, parse_constant=lambda _: None, strict=False
)
