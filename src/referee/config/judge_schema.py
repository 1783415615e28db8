"""Every setting of a judge, and which kinds read it. Data only, as in `schema`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from referee.records import Criterion

GateAction = Literal["lowest", "unscored", "off"]
OfCriteria = Literal["weighted", "healthbench", "signed", "all", "any", "threshold", "implicit"]
OfJurors = Literal["mean", "median", "majority", "min", "trimmed"]
Combine = OfCriteria | OfJurors


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


class Until(Struct, frozen=True, forbid_unknown_fields=True):
    """When a member of a cascade decides, and no further one is asked. Both: both must hold. Neither: the first member
    that has a verdict decides."""

    uncertainty: float | None = None
    """Its verdict is at most so uncertain: the entropy of a yes or no in nats, or the standard deviation of several
    answers, jurors or levels; see `referee docs trust`."""
    outside: tuple[float, float] | None = None
    """Its value, from 0 to 1, is not within these ends: [0.3, 0.7] asks the next about what is neither good nor bad."""


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
    each sample's, that are true of the response or not. listwise: all responses of a group in one request, a score for
    each. pairwise: responses of a group two at a time, see `schedule`. jury: several judges, whose verdicts are
    combined. cascade: judges from cheap to strong, the next only while one is unsure. reward_model: a model that
    answers with numbers instead of text, see `referee docs reward_models`. Other names are judges of
    installed packages, see `referee docs extending`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Settings of a judge from another package, as its documentation says. The shipped kinds have none. No keys."""
    low: int = 1
    """Lower end of the scale for kind = "score", "integer" and "listwise", and for combine = "implicit"; included."""
    high: int = 10
    """Upper end of it, included."""
    system_prompt: str = ""
    """For kind = "integer": the whole system message, as it is. Empty: the shipped one."""
    ask_above: float | None = None
    """Ask only about samples whose rule score is above this; the judge adds 0 to the others, or
    `lowest` where scores are a reward model's raw numbers. Unset: ask about all."""
    criteria: str = ""
    """What makes an answer good, in your words. Empty: a general default. For yes_no: the question."""
    prompt_file: str = ""
    """A template of your own instead of the shipped one; see `referee docs judging` for its placeholders. Relative: to
    the TOML file that says so."""
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
    out: whole messages stay at both ends, and the text says what was cut. For kind = "listwise" the responses of one
    request together; a larger group is asked about in several, which share some responses. Unset: no bound."""
    parts: Literal["refuse", "describe", "show"] = "refuse"
    """What becomes of images and other parts of messages that are not text. refuse: such a rollout is an error before
    anything is spent. describe: a line in the text says what stood there. show: images are sent with the request, where
    endpoint.api takes them; a rollout with anything else that is not text is unscored (config)."""
    image_urls: bool = False
    """For parts = "show": send images that a rollout names by URL as that URL, which the provider then fetches. False:
    only images that are in the rollout as data, and a rollout with a URL is unscored (config)."""
    max_images: Annotated[int, Meta(ge=1)] = 16
    """For parts = "show": images in one request. A rollout that shows more is unscored (too_long)."""
    max_image_mb: Annotated[float, Meta(gt=0)] = 10.0
    """For parts = "show": megabytes of images in one request, as files."""
    trusted_columns: tuple[str, ...] = ()
    """Columns whose {{columns.name}} in the template is your own text, not the policy's: shown without a fence, as an
    instruction to the judge."""
    criterion: tuple[Criterion, ...] = ()
    """For kind = "rubric": criteria for every sample, each a table [[judge.criterion]] with text, name, weight,
    true_is, choices, values, may_not_apply, check and parameters; see `referee docs rubrics`. A sample's own are
    added."""
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
    combine: Combine | None = None
    """How several verdicts make one. For kind = "rubric": weighted (the default), healthbench, signed, all, any,
    threshold, implicit; `referee docs rubrics` has the formulas, and with implicit the judge sees the criteria and
    gives one score from `low` to `high`. For kind = "jury": mean (the default), median, majority (1 or 0; a tie is
    0.5), min, or trimmed: the mean without the lowest and the highest."""
    threshold: float = 0.5
    """For combine = "threshold": the weighted mean that is worth 1; below it is 0."""
    clip: bool = False
    """Keep the score of a rubric within 0 and 1. "healthbench" and "signed" may be negative."""
    partial: Literal["unscored", "skip"] = "unscored"
    """For kind = "rubric" and "listwise": some criteria, or some `permutations` or chunks of a group, have no verdict.
    unscored: then the sample has none. skip: its verdict is made of the others, and says how many are missing. A
    cascade whose last member has none: skip takes the last verdict there is, though its member was unsure; of a group
    that is compared, all of them are one member's."""
    permutations: int = 1
    """For kind = "listwise": in how many orders to ask about the group; the value is the mean. With an even number a
    judge that favours a place in the list favours no response, and the spread says how sure it is."""
    ranks: bool = False
    """For kind = "listwise": value and score are the share of its siblings that a response is scored above, ties half,
    instead of its grade, which is in the parts."""
    schedule: Literal["circular", "all", "knockout", "swiss", "anchor"] = "swiss"
    """For kind = "pairwise": which responses of a group are compared. circular: each with two others. all: each with
    every other. knockout: winners go on. swiss: in rounds, each with one that has won as often. anchor: each with
    `anchor` instead of its siblings."""
    rounds: int = 0
    """For kind = "pairwise": how far a schedule goes. circular: each with 2 * rounds others. knockout: how many
    tournaments. swiss: how many rounds. 0: one; for swiss, as many as it takes to find a winner."""
    both_orders: bool = True
    """For kind = "pairwise": ask every comparison twice, each response first once. Won is what is won both times; what
    changes with the order is a tie."""
    strength: Literal["bradley_terry", "win_rate"] = "bradley_terry"
    """For kind = "pairwise": how comparisons make a value. bradley_terry: also counts which ones it has won against.
    win_rate: the share it has won, ties half."""
    min_comparisons: int = 1
    """For kind = "pairwise": a response with fewer comparisons that have a verdict is unscored. Where
    `schedule` asks for fewer about it, those are enough."""
    anchor: str = "reference"
    """For schedule = "anchor": what each response is compared with, the sample's `reference` or a column by name. It is
    data, shown as a response is: by `view`, fenced, of at most `max_view_tokens`."""
    alone: str = "unscored"
    """For kind = "listwise" and "pairwise": a response without siblings that it can be compared with. unscored: it has
    no verdict. Otherwise the name of another judge, which judges it by itself, its score put on this one's scale; that
    one is not a term of the reward."""
    members: tuple[str, ...] = ()
    """For kind = "jury" and "cascade": names of other judges; those are no terms of the reward by themselves. Of a
    cascade from cheap to strong. They may be juries and cascades."""
    ask: Literal["all", "one"] = "all"
    """For kind = "jury": all members, or one for each prompt, drawn by a digest of it: siblings, and the same prompt in
    every run, have the same member."""
    quorum: int | None = None
    """For kind = "jury": how many members must have a verdict. Unset: all of them."""
    until: Until = field(default_factory=Until)
    repeat: int = 1
    """How many times to ask the same; the value is the mean, and the spread is the uncertainty. Where answers are yes
    or no, the rest is not asked once it could not change the majority. More than half must have a verdict.
    `temperature` stays as it is: at 0 many models answer the same every time."""
    expected: bool = False
    """For kind = "score" and "rubric": the mean of the levels by the judge's own probabilities instead of the level it
    names, where the endpoint gives log-probabilities. Levels must be of one digit (`low` at least 0, `high` at most 9);
    a rubric needs combine = "implicit" or criteria_per_call = 1."""
    activation: Literal["sigmoid", "raw", "server"] = "sigmoid"
    """For kind = "reward_model": what becomes of the model's number x. sigmoid: score and value are 1 / (1 + exp(-x)).
    raw: the score is x itself, for [shaping] scale = "native", and the value its sigmoid. server: the endpoint applies
    the model's own activation; what it gives must be from 0 to 1."""
    output: int | None = None
    """For kind = "reward_model": which number of the model's vector counts, from 0. Unset: there must be only one."""
    steps: Literal["one", "last", "mean", "min", "product"] = "one"
    """For kind = "reward_model" with api = "pooling": what numbers for each token or step come to. one: there must be a
    single one."""
    compare_with: Literal["prompt", "reference"] = "prompt"
    """For kind = "reward_model" with api = "score": what the response is scored against."""
    lowest: float | None = None
    """For kind = "reward_model" with activation = "raw": the score that gates and ask_above give, since raw numbers
    have no lower end. Needed unless all gates are "unscored" or "off" and ask_above is unset."""
    abstain_above: float | None = None
    """Verdicts more uncertain than this become unscored (uncertain), which abort_above does not count. In the unit of
    the judge's uncertainty, as in `until`. Unset: all verdicts count."""
    uses: tuple[JudgeConfig, ...] = field(default_factory=tuple)  # the judges it names; filled in by `load`
    api: str = field(default_factory=str)  # that of its endpoints, if they generate no text; filled in by `load`
    max_tokens: int = 512
    """Cap on the judge's reply. Token limits reserve this much and the budget twice that, so keep it small."""
    temperature: float | Literal["default"] = 0.0
    """Sampling temperature of the judge. "default" leaves it out, for models that do not take it."""
    ask_again: int = 2
    """New attempts after a reply without a usable verdict."""
    gates: Gates = field(default_factory=Gates)

    @property
    def combined_by(self) -> Combine:
        """`combine`, or what its kind does unless told otherwise."""
        return self.combine or ("mean" if self.kind == "jury" else "weighted")


SHIPPED_KINDS = (
    "score",
    "yes_no",
    "reference",
    "integer",
    "monitor",
    "rubric",
    "reward_model",
    "listwise",
    "pairwise",
    "jury",
    "cascade",
)

Readers = tuple[dict[str, tuple[str, ...]], ...]
"""Which judges read a setting: those for which one of the tables holds, of values that other settings may have."""

_TEXT: Readers = ({"api": ("",)},)
_FOLDED = ("weighted", "healthbench", "signed", "all", "any", "threshold")
_TOURNAMENTS = ("circular", "all", "knockout", "swiss")
_SCALE: Readers = ({"kind": ("score", "integer", "listwise")}, {"kind": ("rubric",), "combine": ("implicit",)})
_RUBRIC: Readers = ({"kind": ("rubric",)},)
_FOLDED_RUBRIC: Readers = ({"kind": ("rubric",), "combine": _FOLDED},)
_LISTWISE: Readers = ({"kind": ("listwise",)},)
_PAIRWISE: Readers = ({"kind": ("pairwise",)},)
_SHOWN: Readers = ({"parts": ("show",)},)
_REWARD_MODEL: Readers = ({"kind": ("reward_model",)},)
_TOURNAMENT: Readers = ({"kind": ("pairwise",), "schedule": _TOURNAMENTS},)

READ_BY: dict[str, Readers] = {
    "system_prompt": _TEXT,
    "prompt_file": ({"api": ("", "classify", "pooling")},),
    "reply": _TEXT,
    "fences": _TEXT,
    "trusted_columns": _TEXT,
    "max_tokens": _TEXT,
    "temperature": _TEXT,
    "criteria": ({"api": ("", "decision")},),
    "max_view_tokens": ({"api": ("", "decision")},),
    "low": _SCALE,
    "high": _SCALE,
    "view": (
        {"kind": tuple(kind for kind in SHIPPED_KINDS if kind not in ("monitor", "jury", "cascade"))},
        {"kind": ("monitor",), "view": ("reasoning",)},
    ),
    "image_urls": _SHOWN,
    "max_images": _SHOWN,
    "max_image_mb": _SHOWN,
    "criterion": _RUBRIC,
    "rubric_file": _RUBRIC,
    "polarity": _RUBRIC,
    "checks": _RUBRIC,
    "combine": ({"kind": ("rubric", "jury")},),
    "members": ({"kind": ("jury", "cascade")},),
    "ask": ({"kind": ("jury",)},),
    "quorum": ({"kind": ("jury",)},),
    "until": ({"kind": ("cascade",)},),
    "expected": ({"kind": ("score", "rubric")},),
    "criteria_per_call": _FOLDED_RUBRIC,
    "clip": _FOLDED_RUBRIC,
    "threshold": ({"kind": ("rubric",), "combine": ("threshold",)},),
    "partial": (*_FOLDED_RUBRIC, *_LISTWISE, {"kind": ("cascade",)}),
    "permutations": _LISTWISE,
    "ranks": _LISTWISE,
    "schedule": _PAIRWISE,
    "both_orders": _PAIRWISE,
    "rounds": ({"kind": ("pairwise",), "schedule": ("circular", "knockout", "swiss")},),
    "strength": _TOURNAMENT,
    "min_comparisons": _TOURNAMENT,
    "anchor": ({"kind": ("pairwise",), "schedule": ("anchor",)},),
    "alone": (*_LISTWISE, *_TOURNAMENT),
    "activation": _REWARD_MODEL,
    "output": _REWARD_MODEL,
    "steps": ({"kind": ("reward_model",), "api": ("pooling",)},),
    "compare_with": ({"kind": ("reward_model",), "api": ("score",)},),
    "lowest": ({"kind": ("reward_model",), "activation": ("raw",)},),
}
"""Settings that only some of the shipped kinds read."""

SHIPPED_ONLY = ("combine", "members", "ask", "quorum", "until", "expected")
"""Those of them that no judge of another package can read; what else it reads is not known here."""
