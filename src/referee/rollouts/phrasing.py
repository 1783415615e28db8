"""Whether it is good or bad for a response that a sentence is true of it, by the sentence's phrasing alone.

For datasets whose signs do not say it: one corpus writes a pitfall as what a good response does ("Avoids rounding too
early"), another as what a bad one does ("Does not mention the dose"), and both give it weight -1. The rules follow the
main clause: avoiding, and not doing something faulty, is good; not doing one's duty, failing, and a fault that is
stated plainly are bad. Where none of that shows, the sentence is taken for a stated fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from referee.records import Criterion

EXAMPLES = 3
LONGEST_EXAMPLE = 80


def _stems(words: str) -> str:
    """A pattern of whole words that begin like one of these; `=` marks one that must be the word itself."""
    return "|".join(f"{word[1:]}\\b" if word.startswith("=") else f"{word}\\w*" for word in words.split())


_SUBJECT = (
    r"(?:(?:the|a|an|this|its|overall,?)\s+)*(?:(?:model|final|assistant|student|candidate|written|generated)(?:'s)?\s+)*"
    r"(?:response|answer|explanation|solution|assistant|model|candidate|student|reply|output|text|it|author|derivation|"
    r"calculation|analysis|discussion|diagnosis|plan|proof|argument|argumentation|reasoning)\b"
)
_LEAD_IN = re.compile(
    r"^(?:when|if|while|in|for|by|after|before|given|although|despite|during|with|on|where|throughout)\b[^,]{1,140},\s*"
)
_QUESTION = re.compile(rf"^(?:does|do|did|is|are|was|has|have|will|would)\s+(?={_SUBJECT})")
_NORM = re.compile(
    rf"(?:{_SUBJECT}\s+)?(?:should|must|needs?\s+to|has\s+to|have\s+to|ought\s+to|shall|is\s+(?:required|expected)\s+to)\b"
)
_NAMED_SUBJECT = re.compile(rf"^{_SUBJECT}\s+(?:(?:also|that|which)\s+)?")
_FAULTY = re.compile(
    r"\b(?:"
    + _stems(
        "incorrect wrong false falsely erroneous mistak improper inappropriat unnecessar needless prematur overly excessiv "
        "unjustif unwarrant unsupport unsubstantiat unfounded unverif baseless irrelevan unrelated extraneous outdated "
        "obsolete harmful dangerous unsafe inaccura fabricat invent imagin fictitious biased redundan off-topic speculat "
        "contradict offensive mislead deceptiv vague ambiguous confus jargon error flaw fallac careless blind unclear "
        "unrealistic inconsisten invalid illegitimate nonexistent unethical misinform hallucinat superfluous unqualified "
        "verbose rambl repetiti judgmental condescending dismissive stigmatiz alarmist definitiv =too =simply =merely "
        "=solely =only =exclusively instead arbitrar circular oversimplif overgeneral generic spurious guess"
    )
    + r"|rather\s+than|as\s+(?:if|though|the\s+only|(?:an?\s+)?facts?)|without\s+(?:justif|evidence|support|reason|check))"
)
_TERMS = re.compile(
    r"\b(?:(?:standard|sampling|measurement|type\s+\w+)\s+errors?|error\s+(?:bars?|propagation|margins?)|false[\s-](?:positive|"
    r"negative)s?)"
)
"""Terms that hold a faulty word and name no fault."""
_OBJECT_ENDS = re.compile(r"\b(?:of|that|for|about|to|by|between|whether|how|why|which|who|where|when|because)\b")
_VIRTUES = re.compile(
    r"(?:(?:explicitly|clearly|consistently|carefully|always)\s+)?(?:"
    + _stems(
        "correct accurate proper appropriate ensur recogni acknowledg distinguish differentiat clarif verif double-check "
        "remain maintain respect adher =stay =stays =keep =keeps warn caution discourag account"
    )
    + r"|makes?\s+sure|takes?\s+(?:care|into\s+account)|is\s+(?:careful|free\s+(?:of|from))|advis\w*\s+against)"
)
_AVOIDS = re.compile(
    r"(?:avoid|refrain|abstain|eschew|guard|resist|prevent|abstention|avoidance)\w*\b|(?:steer|stay|keep|keeps|stays|steers)"
    r"\s+(?:clear|away)\b|free\s+(?:of|from)\b"
)
_EVADES = re.compile(r"avoid\w*\s+(?:directly\s+)?(?:answering|addressing|engaging|responding)\b")
_FAILS = re.compile(
    r"(?:"
    + _stems(
        "fail neglect omit omission overlook ignor =miss =misses =missing lack forget forgot disregard skip absen exclud"
    )
    + r"|leaves?\s+out|falls?\s+short)"
)
_NOT = re.compile(
    r"(?:(?:does|do|did|is|are|was|were|has|have|had|can|could|would|will)\s+(?:not|never)|"
    r"(?:does|do|did|is|are|was|were|has|have|had|ca|could|would|wo)n['’]t|cannot|never|not|neither)\b\s*"
)
_NO = re.compile(r"(?:(?:makes?|gives?|offers?|provides?|contains?|includes?|has|shows?|introduces?|uses?)\s+)?no\b\s*")
_FAULT_VERBS = re.compile(
    r"(?:\w+ly\s+)?(?:"
    + _stems(
        "invent fabricat hallucinat confus conflat contradict assum claim assert =imply =implies implied implying mis over "
        "underest understat underrat exaggerat speculat violat resort double-count rambl digress deviat stray insult blam "
        "sham equat ignor omit neglect fail skip forget dismiss discard downplay trivial promis guess round truncat drop "
        "lose =rely =relies depend jump rush repeat pad copy plagiari insist pretend distort mix swap invert revers "
        "attribut presum endors lump force leak proceed"
    )
    + r"|treat\w*\b.*\bas\b|(?:makes?|made|making)\s+up\b)"
)
_DUTY_NOUNS = re.compile(
    r"(?:\w+\s+)?(?:"
    + _stems(
        "mention discuss referenc explanation justif consider acknowledg indicat evidenc recogni descri detail advice "
        "warning caution attempt distinction reason recommend information citation source link example step unit "
        "conclusion answer guidance follow"
    )
    + ")"
)
_WITHOUT = re.compile(r"\bwithout\s+(?P<what>[^,.;]*)")


def true_is(sentence: str) -> Literal["good", "bad"]:
    """What it means for a response if this sentence is true of it."""
    text = " ".join(sentence.lower().split()).strip(" .:;-*\"'“”")
    text = _LEAD_IN.sub("", text, count=1)
    text = _QUESTION.sub("", text, count=1)
    if _NORM.match(text):
        return "good"  # a norm is true of what keeps to it
    text = _NAMED_SUBJECT.sub("", text, count=1)
    return "good" if _is_good(text) else "bad"


def _is_good(clause: str) -> bool:
    negated = _NOT.match(clause)
    if negated:
        return _not_is_good(clause[negated.end() :])
    none = _NO.match(clause)
    if none:
        rest = clause[none.end() :]
        return bool(_FAULTY.match(rest) or _FAULT_VERBS.match(rest)) or not _DUTY_NOUNS.match(rest)
    plain = re.sub(r"^(?:\w+ly|also|and)\s+", "", clause)
    if _FAULTY.match(clause) or _FAILS.match(plain):
        return False
    if _AVOIDS.match(plain):
        return not _EVADES.match(plain)
    if _VIRTUES.match(clause):
        return True
    without = _WITHOUT.search(clause)
    return bool(without) and not _FAULTY.search(clause[: without.start()]) and _not_is_good(without["what"])


def _not_is_good(rest: str) -> bool:
    """Of what is not done: whether that is good, because doing it would be a fault."""
    if _AVOIDS.match(rest) or _VIRTUES.match(rest):
        return False
    if _FAULT_VERBS.match(rest) or _FAILS.match(rest):
        return True
    return bool(_FAULTY.search(_OBJECT_ENDS.split(_TERMS.sub("", rest), maxsplit=1)[0]))


class PolarityReport(Struct, frozen=True):
    """What was decided by phrasing: how many sentences each way, each counted once, and a few of them."""

    good: int
    bad: int
    good_examples: tuple[str, ...]
    bad_examples: tuple[str, ...]

    def lines(self) -> list[str]:
        """A few lines for people; none if nothing was decided so."""
        count = self.good + self.bad
        if not count:
            return []
        return [
            f"{count} {'pitfall was' if count == 1 else 'pitfalls were'} read by phrasing (judge.polarity):",
            f"  true is good: {self.good}{_quoted(self.good_examples)}",
            f"  true is bad: {self.bad}{_quoted(self.bad_examples)}",
        ]


def polarity_report(criteria: Iterable[Criterion]) -> PolarityReport:
    """The report on criteria whose polarity was decided by phrasing (what `read_rubric` puts into `phrased`)."""
    found = {criterion.text: criterion.true_is for criterion in criteria}
    good = [text for text, way in found.items() if way == "good"]
    bad = [text for text, way in found.items() if way == "bad"]
    return PolarityReport(len(good), len(bad), tuple(good[:EXAMPLES]), tuple(bad[:EXAMPLES]))


def _quoted(texts: Iterable[str]) -> str:
    flat = (" ".join(text.split()) for text in texts)
    short = [f'"{text if len(text) <= LONGEST_EXAMPLE else text[: LONGEST_EXAMPLE - 1] + "…"}"' for text in flat]
    return f", as in {'; '.join(short)}" if short else ""
