"""Which request parameter an error refuses: from its labels where it has them, else from its message."""

from __future__ import annotations

import re

from referee.wire.error_body import ErrorBody
from referee.wire.vocabulary import UNSUPPORTED

# Longer names first: top_logprobs holds logprobs.
_NAMES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"max_completion_tokens"), "max_completion_tokens"),
    (re.compile(r"max_(?:output_)?tokens"), "max_tokens"),
    (
        re.compile(
            r"response_format|json[_ ]?schema|structured[_ ]outputs?|guided_json|\bgrammar\b|\btext\.format|"
            r"output[_ ](?:format|config)|response_?schema|json[_ ]mode|\btool_choice\b|\binput_schema\b|^tools\b",
            re.I,
        ),
        "response_format",
    ),
    # The Responses API asks for them by `include`, which is then the field that an error names.
    (re.compile(r"(?<!prompt_)(?:top_)?logprobs|log probabilities|^include\b", re.I), "logprobs"),
    (re.compile(r"\btemperature\b", re.I), "temperature"),
    (re.compile(r"service_?tier", re.I), "tier"),
)

_COMPLAINT = re.compile(
    r"unsupported|not (?:yet |currently )?support|n't support|unavailable|not available|not permitted|not allowed|"
    r"not enabled|not implemented|unrecognized|unknown|unexpected|extra inputs|extra_forbidden|deprecated|"
    r"invalid (?:parameter|input|schema|top_logprobs|json)|only the default|max allowed|failed to parse|cannot be used|"
    r"invalid value at|may (?:not be|only be set)",
    re.I,
)
_ABOUT_SCHEMA = re.compile(
    r"(?:output_config\.format|tools\.\d+|\* GenerateContentRequest\.generation_config\.response_(?:json_)?schema)\b|"
    r"(?:the )?(?:specified schema produces|schema is too complex|compiled grammar is too large|grammar compilation)",
    re.I,
)
_INSTEAD = re.compile(r"max_tokens.{0,80}max_completion_tokens", re.S)


def unsupported(said: ErrorBody) -> str:
    """The parameter by our name, the server's name if it is none of ours, or "" if the error is no such refusal."""
    words = said.message[:300]
    if _INSTEAD.search(words):
        return "max_tokens"
    named = _ours(said.param)
    if said.labels & UNSUPPORTED and said.param:
        return named or said.param.split(".")[0]
    if named == "response_format" or _ABOUT_SCHEMA.match(words):
        return "response_format"  # whatever is wrong with our schema, not sending it helps
    if not _COMPLAINT.search(words):
        return ""
    return named or _ours(words)


def _ours(text: str) -> str:
    """The first of our parameters named in `text`."""
    found = ((match.start(), name) for pattern, name in _NAMES if (match := pattern.search(text)))
    return min(found, default=(0, ""))[1]
