"""Every setting of a judge. Data only, as in `schema`."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from referee.records import Criterion

GateAction = Literal["lowest", "unscored", "off"]


class Gates(Struct, frozen=True, forbid_unknown_fields=True):
    """Answers that need no judge. `lowest` gives the bottom of the scale, `unscored` no reward, `off` asks anyway."""

    empty: GateAction = "lowest"
    """Nothing but white space (after reasoning is stripped)."""
    no_alphanumerics: GateAction = "lowest"
    """Only punctuation; not applied when the reference itself is like that."""
    echo: GateAction = "lowest"
    """The prompt repeated back."""
    truncated: GateAction = "lowest"
    """Generation stopped at its token limit (`truncated = true` on the sample)."""


class JudgeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What to ask and how to read the answer. `[judge]` is one judge, `[[judge]]` several: each is a term of the
    reward."""

    name: str = ""
    """Shown in rows and records, and by which other settings refer to it. Empty: `judge`; several judges need names."""
    weight: float = 1.0
    """Its share of the reward: coefficient * (sum of weight * judge). 0: asked and recorded, but not rewarded."""
    optional: bool = False
    """True: without its verdict the reward is made of the other terms, whose weights stay as they are. False: then
    there is no reward."""
    endpoint: str | tuple[str, ...] = ""
    """Names of the endpoints it asks. Empty: all of them; they must serve the same model, or be `backup`."""
    kind: str = "score"
    """score: an integer on a scale. yes_no: one question, as P(yes) where the endpoint gives log-probabilities.
    reference: does the answer agree with the known one. integer: a system prompt, the bare response, and a reply that
    is one integer. monitor: a hidden yes or no, predicted from the reasoning alone. rubric: criteria, the judge's or
    each sample's, that are true of the response or not. Other names are judges of installed packages, see
    docs/extending.md."""
    options: dict[str, Any] = field(default_factory=dict)
    """Settings of a judge from another package, as its documentation says. The shipped kinds have none. No keys."""
    low: int = 1
    """Lower end of the scale for kind = "score" and "integer", included."""
    high: int = 10
    """Upper end of it, included."""
    system_prompt: str = ""
    """For kind = "integer": the whole system message, as it is. Empty: the shipped one."""
    ask_above: float | None = None
    """Ask only about samples whose rule score is above this; the judge adds 0 to the others. Unset: ask about all."""
    criteria: str = ""
    """What makes an answer good, in your words. Empty: a general default. For yes_no: the question."""
    prompt_file: str = ""
    """A template of your own instead of the shipped one; see docs/judging.md for its placeholders. Relative: to the
    TOML file that says so."""
    reply: Literal["auto", "schema", "text"] = "auto"
    """schema: JSON by response_format. text: a verdict tag. auto: schema, and text where the endpoint refuses it."""
    fences: bool = True
    """False shows the texts bare, without fences and the rules about them, for a model too small to follow those. Only
    with kind = "yes_no", whose verdict is a probability and not read from text that a candidate could imitate."""
    view: Literal["answer", "full", "reasoning"] = "answer"
    """What the judge sees of a response. answer: its last message, without reasoning (<think>…). full: everything the
    policy wrote and did, tool calls, their results and reasoning. reasoning: what it thought and nothing else."""
    max_view_tokens: int | None = None
    """Most tokens, by estimate, of a prompt and of a response that the judge sees. Of longer ones the middle is left
    out: whole messages stay at both ends, and the text says what was cut. Unset: no bound."""
    parts: Literal["refuse", "describe"] = "refuse"
    """What becomes of images and other parts of messages that are not text. refuse: such a rollout is an error before
    anything is spent. describe: a line in the text says what stood there."""
    trusted_columns: tuple[str, ...] = ()
    """Columns whose {{columns.name}} in the template is your own text, not the policy's: shown without a fence, as an
    instruction to the judge."""
    criterion: tuple[Criterion, ...] = ()
    """For kind = "rubric": criteria for every sample, each a table [[judge.criterion]] with text, name, weight,
    true_is, choices, values, may_not_apply, check and parameters; see docs/rubrics.md. A sample's own are added."""
    rubric_file: str = ""
    """The same from a TOML or JSON file, in any format that rubrics come in. Relative: to the TOML file that says
    so."""
    polarity: Literal["by_phrase", "by_sign", "as_written"] = "by_phrase"
    """Whether a criterion of negative weight is bad if true. by_sign: yes. by_phrase: yes, but where a dataset is
    ambiguous (pitfalls), its phrasing decides. as_written: negative weights need `true_is`, or are an error."""
    checks: tuple[str, ...] = ()
    """Functions of your own, as package.module:function, that criteria may name in `check` beside the shipped rules.
    They must be importable wherever judging happens."""
    criteria_per_call: int | Literal["all"] = "all"
    """Criteria in one request to the judge. 1: each by itself, as P(yes) where the endpoint gives log-probabilities."""
    combine: Literal["weighted", "healthbench", "signed", "all", "any", "threshold", "implicit"] = "weighted"
    """How verdicts on criteria make a score; docs/rubrics.md has the formulas. implicit: the judge sees the criteria
    and gives one score from `low` to `high`."""
    threshold: float = 0.5
    """For combine = "threshold": the weighted mean that is worth 1; below it is 0."""
    clip: bool = False
    """Keep the score of a rubric within 0 and 1. "healthbench" and "signed" may be negative."""
    partial: Literal["unscored", "skip"] = "unscored"
    """A rubric of which some criteria have no verdict. unscored: no verdict on the sample. skip: it is made of the
    others, and says how many are missing."""
    max_tokens: int = 512
    """Cap on the judge's reply. Token limits reserve this much and the budget twice that, so keep it small."""
    temperature: float | Literal["default"] = 0.0
    """Sampling temperature of the judge. "default" leaves it out, for models that do not take it."""
    ask_again: int = 2
    """New attempts after a reply without a usable verdict."""
    gates: Gates = field(default_factory=Gates)
