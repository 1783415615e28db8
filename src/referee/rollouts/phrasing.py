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


# Texts and not compiled patterns: `re` compiles them when the first pitfall is read, which in most runs is never.
_SUBJECT = (
    r"(?:(?:the|a|an|this|its|overall,?)\s+)*(?:(?:model|final|assistant|student|candidate|written|generated)(?:'s)?\s+)*"
    r"(?:response|answer|explanation|solution|assistant|model|candidate|student|reply|output|text|it|author|derivation|"
    r"calculation|analysis|discussion|diagnosis|plan|proof|argument|argumentation|reasoning)\b"
)
_LEAD_IN = (
    r"^(?:when|if|while|in|for|by|after|before|given|although|despite|during|with|on|where|throughout)\b[^,]{1,140},\s*"
)
_QUESTION = rf"^(?:does|do|did|is|are|was|has|have|will|would)\s+(?={_SUBJECT})"
_NORM = rf"(?:{_SUBJECT}\s+)?(?:should|must|shall|(?:needs?|has|have|ought|is\s+required|is\s+expected)\s+to)\b"
_NAMED_SUBJECT = rf"^{_SUBJECT}\s+(?:(?:also|that|which)\s+)?"
_FAULTY = (
    r"\b(?:"
    + _stems(
        "incorrect wrong false falsely erroneous mistak improper inappropriat unnecessar needless prematur overly "
        "excessiv unjustif unwarrant unsupport unsubstantiat unfounded unverif baseless irrelevan unrelated "
        "extraneous outdated obsolete harmful dangerous unsafe inaccura fabricat invent imagin fictitious biased "
        "redundan off-topic speculat contradict offensive mislead deceptiv vague ambiguous confus jargon error flaw "
        "fallac careless blind unclear unrealistic inconsisten invalid illegitimate nonexistent unethical misinform "
        "hallucinat superfluous unqualified verbose rambl repetiti judgmental condescending dismissive stigmatiz "
        "alarmist definitiv =too =simply =merely =solely =only =exclusively instead arbitrar circular oversimplif "
        "overgeneral generic spurious guess"
    )
    + r"|rather\s+than|as\s+(?:if|though|the\s+only|(?:an?\s+)?facts?)|without\s+(?:justif|evidence|support|reason))"
)
_TERMS = (
    r"\b(?:(?:standard|sampling|measurement|type\s+\w+)\s+errors?|error\s+(?:bars?|propagation|margins?)|false[\s-](?:positive|"
    r"negative)s?)"
)
"""Terms that hold a faulty word and name no fault."""
_OBJECT_ENDS = r"\b(?:of|that|for|about|to|by|between|whether|how|why|which|who|where|when|because)\b"
_VIRTUES = (
    r"(?:(?:explicitly|clearly|consistently|carefully|always)\s+)?(?:"
    + _stems(
        "correct accurate proper appropriate ensur recogni acknowledg distinguish differentiat clarif verif "
        "double-check remain maintain respect adher =stay =stays =keep =keeps warn caution discourag account"
    )
    + r"|makes?\s+sure|takes?\s+(?:care|into\s+account)|is\s+(?:careful|free\s+(?:of|from))|advis\w*\s+against)"
)
_AVOIDS = (
    r"(?:avoid|refrain|abstain|eschew|guard|resist|prevent|abstention|avoidance)\w*\b|(?:steer|stay|keep|keeps|stays|steers)"
    r"\s+(?:clear|away)\b|free\s+(?:of|from)\b"
)
_EVADES = r"avoid\w*\s+(?:directly\s+)?(?:answering|addressing|engaging|responding)\b"
_FAILS = (
    r"(?:"
    + _stems(
        "fail neglect omit omission overlook ignor =miss =misses =missing lack forget forgot disregard skip absen "
        "exclud"
    )
    + r"|leaves?\s+out|falls?\s+short)"
)
_NOT = (
    r"(?:(?:does|do|did|is|are|was|were|has|have|had|can|could|would|will)\s+(?:not|never)|"
    r"(?:does|do|did|is|are|was|were|has|have|had|ca|could|would|wo)n['’]t|cannot|never|not|neither)\b\s*"
)
_NO = r"(?:(?:makes?|gives?|offers?|provides?|contains?|includes?|has|shows?|introduces?|uses?)\s+)?no\b\s*"
_FAULT_VERBS = (
    r"(?:\w+ly\s+)?(?:"
    + _stems(
        "invent fabricat hallucinat confus conflat contradict assum claim assert =imply =implies implied implying mis "
        "over underest understat underrat exaggerat speculat violat resort double-count rambl digress deviat stray "
        "insult blam sham equat ignor omit neglect fail skip forget dismiss discard downplay trivial promis guess "
        "round truncat drop lose =rely =relies depend jump rush repeat pad copy plagiari insist pretend distort mix "
        "swap invert revers attribut presum endors lump force leak proceed"
    )
    + r"|treat\w*\b.*\bas\b|(?:makes?|made|making)\s+up\b)"
)
_DUTY_NOUNS = (
    r"(?:\w+\s+)?(?:"
    + _stems(
        "mention discuss referenc explanation justif consider acknowledg indicat evidenc recogni descri detail advice "
        "warning caution attempt distinction reason recommend information citation source link example step unit "
        "conclusion answer guidance follow"
    )
    + ")"
)
_WITHOUT = r"\bwithout\s+(?P<what>[^,.;]*)"


def true_is(sentence: str) -> Literal["good", "bad"]:
    """What it means for a response if this sentence is true of it."""
    text = " ".join(sentence.lower().split()).strip(" .:;-*\"'“”")
    text = re.sub(_LEAD_IN, "", text, count=1)
    text = re.sub(_QUESTION, "", text, count=1)
    if re.match(_NORM, text):
        return "good"  # a norm is true of what keeps to it
    text = re.sub(_NAMED_SUBJECT, "", text, count=1)
    return "good" if _is_good(text) else "bad"


def _is_good(clause: str) -> bool:
    negated = re.match(_NOT, clause)
    if negated:
        return _not_is_good(clause[negated.end() :])
    none = re.match(_NO, clause)
    if none:
        rest = clause[none.end() :]
        return bool(re.match(_FAULTY, rest) or re.match(_FAULT_VERBS, rest)) or not re.match(_DUTY_NOUNS, rest)
    plain = re.sub(r"^(?:\w+ly|also|and)\s+", "", clause)
    if re.match(_FAULTY, clause) or re.match(_FAILS, plain):
        return False
    if re.match(_AVOIDS, plain):
        return not re.match(_EVADES, plain)
    if re.match(_VIRTUES, clause):
        return True
    without = re.search(_WITHOUT, clause)
    return without is not None and not re.search(_FAULTY, clause[: without.start()]) and _not_is_good(without["what"])


def _not_is_good(rest: str) -> bool:
    """Of what is not done: whether that is good, because doing it would be a fault."""
    if re.match(_AVOIDS, rest) or re.match(_VIRTUES, rest):
        return False
    if re.match(_FAULT_VERBS, rest) or re.match(_FAILS, rest):
        return True
    its_object = re.split(_OBJECT_ENDS, re.sub(_TERMS, "", rest), maxsplit=1)[0]
    return bool(re.search(_FAULTY, its_object))


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
