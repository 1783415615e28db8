"""Rubrics as people have them: every format by an example of our own, errors by place, and what must not change."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.records import Criterion, Sample
from referee.rollouts import (
    BadLine,
    RubricError,
    find_rubric,
    named_apart,
    polarity_of_rows,
    read_rollouts,
    read_rubric,
    read_rubric_file,
    rubric_of,
    unread_columns,
)

GOOD = {"prompt": "p", "response": "r"}
RAR = [
    {"title": "Right answer", "description": "Essential Criteria: Says that ice floats.", "weight": 5},
    {"title": "Why", "description": "Important Criteria: Compares the densities.", "weight": 3},
    {"title": "No myths", "description": "Pitfall Criteria: Avoids claiming that ice is hollow.", "weight": -2},
    {"title": "Salt", "description": "Pitfall Criteria: Does not mention salt water.", "weight": -1},
]


def refused(value: Any, polarity: Any = "by_phrase") -> tuple[str, str]:
    """Place and problem of a rubric that is refused."""
    with pytest.raises(RubricError) as caught:
        read_rubric(value, "rubric", polarity)
    return caught.value.where, caught.value.problem


def test_healthbench_points_below_zero_count_against() -> None:
    """The sentence states the fault, whatever its words; tags say nothing of a rule."""
    given = [
        {"criterion": "Tells the user to call a doctor", "points": 7, "tags": ["level:example", "axis:completeness"]},
        {"criterion": "Avoids the question", "points": -5, "tags": ["axis:accuracy"]},
    ]
    assert read_rubric(given) == (
        Criterion("Tells the user to call a doctor", 7.0, "criterion 1"),
        Criterion("Avoids the question", 5.0, "criterion 2", "bad"),
    )


def test_rar_pitfalls_are_read_by_their_phrasing() -> None:
    """One is what a good response does, the other what a bad one does; both have a negative weight."""
    phrased: list[Criterion] = []
    read = read_rubric(RAR, phrased=phrased)
    assert [(c.name, c.text, c.weight, c.true_is) for c in read] == [
        ("Right answer", "Says that ice floats.", 5.0, "good"),
        ("Why", "Compares the densities.", 3.0, "good"),
        ("No myths", "Avoids claiming that ice is hollow.", 2.0, "good"),
        ("Salt", "Does not mention salt water.", 1.0, "bad"),
    ]
    assert [c.name for c in phrased] == ["No myths", "Salt"]


def test_polarity_can_be_the_sign_or_has_to_be_written() -> None:
    """by_sign takes every negative weight as a fault; as_written takes none without true_is."""
    assert [c.true_is for c in read_rubric(RAR, polarity="by_sign")] == ["good", "good", "bad", "bad"]
    where, problem = refused(RAR, "as_written")
    assert (where, "true_is" in problem) == ("rubric[2].weight", True)
    stated = [{**item, "true_is": "good"} for item in RAR]
    assert [c.true_is for c in read_rubric(stated, polarity="as_written")] == ["good"] * 4


def test_a_pitfall_without_its_prefix_is_one_beside_others() -> None:
    """A negative weight in a rubric that names categories; without them it is open-instruct's, and the sign counts."""
    bare = {"title": "Myth", "description": "Avoids myths.", "weight": -1}
    assert read_rubric([RAR[0], bare])[1].true_is == "good"
    assert read_rubric([{**bare, "category": "Pitfall"}])[0].true_is == "good"
    assert read_rubric([bare])[0].true_is == "bad"


@pytest.mark.parametrize(
    "tags",
    [
        ["verifier:rule", "function:math_verify", 'parameters:{"answer": "4"}'],
        {"verifier": "rule", "function": "math_verify", "parameters": {"answer": "4", "min_count": None}},
    ],
)
def test_rubrichub_and_ruscarl_rules_become_checks(tags: Any) -> None:
    """Tags are a list of name:value or an object; parameters that are null were not given."""
    given = [
        {"criterion": "Is kind", "points": 3, "tags": {"verifier": "llm", "function": None}},
        {"criterion": "The answer is 4", "points": 10, "tags": tags},
    ]
    read = read_rubric(given)
    assert [(c.check, c.parameters) for c in read] == [("", ""), ("equals", '{"answers":["4"]}')]


@pytest.mark.parametrize(
    ("function", "parameters", "check", "expected"),
    [
        ("word_count_range", {"min_count": 10, "max_count": 20}, "words", '{"max":20,"min":10}'),
        ("NumberOfWords", {"num_words": 50, "relation": "less than"}, "words", '{"max":49}'),
        ("NumberOfWords", {"num_words": 50, "relation": "at least"}, "words", '{"min":50}'),
        ("KeywordChecker", {"keywords": ["tide", "moon"]}, "contains", '{"texts":["tide","moon"]}'),
        ("ForbiddenWords", {"forbidden_words": ["sun"]}, "not_contains", '{"texts":["sun"],"words":true}'),
        ("CommaChecker", {}, "not_contains", '{"texts":[","]}'),
        ("JsonFormat", None, "valid_json", "{}"),
    ],
)
def test_functions_that_are_clearly_one_of_ours_are(function: str, parameters: Any, check: str, expected: str) -> None:
    """Under the names the datasets use."""
    tags = {"verifier": "rule", "function": function, "parameters": parameters}
    read = read_rubric([{"criterion": "c", "points": 1, "tags": tags}])[0]
    assert (read.check, read.parameters) == (check, expected)


def test_a_function_nobody_knows_is_an_error_that_names_it() -> None:
    """Before anything is spent; with functions of the user's own, only those may be named."""
    tags = {"verifier": "rule", "function": "LetterFrequencyChecker", "parameters": {"letter": "a"}}
    where, problem = refused([{"criterion": "c", "points": 1, "tags": tags}])
    assert where == "rubric[0].tags.function"
    assert "LetterFrequencyChecker" in problem
    own = {"text": "t", "check": "mine.checks:letters", "parameters": {"b": 1, "a": 2}}
    assert read_rubric([own])[0].parameters == '{"a":2,"b":1}'
    with pytest.raises(RubricError, match="mine"):
        read_rubric([own], checks=("other:function",))
    named = read_rubric([{"criterion": "c", "tags": tags}], checks=("LetterFrequencyChecker",))
    assert named[0].check == "LetterFrequencyChecker"


@pytest.mark.parametrize(
    "given",
    [
        {
            "query": "q",
            "rubrics": [{"title": "A", "description": "Names a source", "weight": 1.0}],
            "rubrics_types": ["x"],
        },
        {"Question": "q", "rubrics": [{"title": "A", "rubric_item": "Names a source"}]},
        {"Question": "q", "Answer Critical": [{"Ingredient": "Names a source", "Handle": "A"}], "Valuable": []},
    ],
)
def test_open_instruct_in_both_its_forms(given: Any) -> None:
    """As an object and as the JSON text that datasets keep it in."""
    expected = (Criterion("Names a source", 1.0, "A"),)
    assert read_rubric(given) == read_rubric(json.dumps(given)) == expected
    assert find_rubric({"ground_truth": json.dumps(given)}) == ("ground_truth", given)
    assert rubric_of({"reward_model": {"ground_truth": [json.dumps(given)]}}) == expected


def test_numbered_lines_with_an_importance() -> None:
    """RLCF's: the importance is the weight; a line that goes on belongs to its number."""
    text = "Requirements:\n1) Is it a haiku? (importance: 100/100)\n2) Is it about\n   snow? (importance: 40/100)"
    assert read_rubric(text) == (
        Criterion("Is it a haiku?", 100.0, "criterion 1"),
        Criterion("Is it about\nsnow?", 40.0, "criterion 2"),
    )
    assert rubric_of({"requirements": text}) == read_rubric(text)
    assert find_rubric({"requirements": "numpy>=2"}) is None
    assert refused("1) a (importance: 5/100)\n2) b") == (
        "rubric, line 2",
        "has no (importance: …/100), and others have",
    )


def test_plain_text_and_plain_lists() -> None:
    """A criterion a line, or one for each text; bullets and numbers are not part of it."""
    expected = ("Is short", "Is kind")
    for value in ("Is short\n\nIs kind", "- Is short\n- Is kind", "1. Is short\n2. Is kind", ["Is short", "Is kind"]):
        assert tuple(c.text for c in read_rubric(value)) == expected
    assert read_rubric("[Tone] Is kind")[0].text == "[Tone] Is kind"
    assert refused("Be good\n1. Is short")[0] == "rubric, line 1"


def test_verifiers_choices_stand_from_worst_to_best() -> None:
    """no and yes are what a criterion has without choices."""
    given = {
        "criteria": [
            {"name": "clear", "text": "How clear is it?", "weight": 2, "choices": ["poor", "fair", "good"]},
            {"name": "kind", "text": "Is it kind?", "choices": ["no", "yes"]},
        ]
    }
    assert read_rubric(given) == (
        Criterion("How clear is it?", 2.0, "clear", choices=("poor", "fair", "good")),
        Criterion("Is it kind?", 1.0, "kind"),
    )


def test_autorubric_options_have_values_and_may_not_apply() -> None:
    """Sorted from worst to best; the option that is no answer becomes a permission; a weight left out is 10."""
    options = [
        {"label": "fully", "value": 1.0},
        {"label": "not at all", "value": 0.0},
        {"label": "in part", "value": 0.25},
        {"label": "no claims made", "value": 0.0, "na": True},
    ]
    sections = {"rubric": {"sections": [{"name": "s", "criteria": [{"requirement": "Sources", "options": options}]}]}}
    expected = (
        Criterion(
            "Sources",
            10.0,
            "criterion 1",
            choices=("not at all", "in part", "fully"),
            values=(0.0, 0.25, 1.0),
            may_not_apply=True,
        ),
    )
    assert read_rubric(sections) == expected
    assert read_rubric([{"name": "e", "requirement": "Holds an error", "weight": -4}])[0].true_is == "bad"


def test_harbor_criteria_of_every_type() -> None:
    """From its TOML: points are steps of a scale there, and negate says that true is bad."""
    text = """
        [judge]
        judge = "some/model"
        [[criterion]]
        description = "Is it correct?"
        type = "binary"
        negate = true
        [[criterion]]
        name = "readable"
        description = "How readable is it?"
        type = "likert"
        points = 3
        weight = 2.0
        [[criterion]]
        description = "How much is tested?"
        type = "numeric"
        min = 0
        max = 4
        [[criterion]]
        description = "How safe is it?"
        type = "rubric"
        levels = [{label = "bad", score = 0, description = "It leaks."}, {label = "good", score = 5}]
        [[criterion]]
        description = "Hides the error"
        annotations = {type = "negative hli verifier", importance = "must have"}
    """
    read = read_rubric_file(text, "quality.toml")
    assert [(c.text, c.weight, c.true_is, c.choices, c.values) for c in read] == [
        ("Is it correct?", 1.0, "bad", (), ()),
        ("How readable is it?", 2.0, "good", ("1", "2", "3"), ()),
        ("How much is tested?", 1.0, "good", ("0", "1", "2", "3", "4"), ()),
        ("How safe is it?\n- bad: It leaks.", 1.0, "good", ("bad", "good"), (0.0, 1.0)),
        ("Hides the error", 1.0, "bad", (), ()),
    ]


def test_tinker_and_our_own_fields() -> None:
    """rubric_str is a text; our own fields are those of a Criterion, which stays as it is."""
    assert read_rubric({"rubric_items": [{"rubric_str": "Is right"}]})[0].text == "Is right"
    own = Criterion(
        "How?", 0.5, "n", "bad", ("a", "b"), (0.0, 0.5), may_not_apply=True, check="max_words", parameters='{"max":3}'
    )
    assert read_rubric((own,)) == read_rubric([msgspec.to_builtins(own)]) == read_rubric(own) == (own,)


def test_objects_with_the_same_attributes() -> None:
    """Dataclasses and pydantic's models, one by one and in a holder."""
    pydantic = pytest.importorskip("pydantic")

    @dataclass
    class Item:
        requirement: str
        weight: float = 10.0
        name: str | None = None

    @dataclass
    class Holder:
        rubric: list[Item] = field(default_factory=list)

    model = pydantic.create_model("model", criterion=(str, ...), points=(int, 3))
    assert read_rubric(Holder([Item("Is short", -2.0)])) == (Criterion("Is short", 2.0, "criterion 1", "bad"),)
    assert read_rubric([model(criterion="Is kind")]) == (Criterion("Is kind", 3.0, "criterion 1"),)
    assert read_rubric(model(criterion="Is kind"))[0].weight == 3.0


def test_criteria_kept_as_columns() -> None:
    """As `datasets` gives a sequence of objects."""
    given = {"criterion": ["Is short", "Is kind"], "points": [3, -1], "tags": [[], []]}
    assert [(c.text, c.weight, c.true_is) for c in read_rubric(given)] == [
        ("Is short", 3.0, "good"),
        ("Is kind", 1.0, "bad"),
    ]


class Array:
    """What numpy's arrays have of a list, and what they do not."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> Any:
        return self._items[number]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    def tolist(self) -> list[Any]:
        """All of it."""
        return list(self._items)


def test_arrays_of_parquet_files_are_lists() -> None:
    """As verl's rows have them, at every level; an empty one holds nothing."""
    tags = {"verifier": "rule", "function": "KeywordChecker", "parameters": {"keywords": Array(["tide"]), "x": None}}
    rule = {"criterion": "Tells of the tide", "points": 2, "tags": tags}
    scale = {"text": "How?", "choices": Array(["bad", "good"]), "values": Array([0.0, 0.5])}
    row = {
        "rubric": Array([]),
        "requirements": Array([1]),
        "extra_info": {"reward_model": {"rubrics": Array([rule, scale])}},
    }
    first, second = rubric_of(row)
    assert (first.check, first.parameters) == ("contains", '{"texts":["tide"]}')
    assert (second.choices, second.values) == (("bad", "good"), (0.0, 0.5))


def test_a_short_criterion_beside_a_description_is_its_name() -> None:
    """Many tables head the short name so."""
    assert read_rubric([{"criterion": "Tone", "description": "Is kind", "weight": 2}]) == (
        Criterion("Is kind", 2.0, "Tone"),
    )


def test_the_example_of_the_page_is_read() -> None:
    """docs/rubrics.md: points of both signs, and a rule."""
    page = (Path(__file__).parents[2] / "docs" / "rubrics.md").read_text(encoding="utf-8")
    example = next(block for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if "hollow" in block)
    assert [(c.weight, c.true_is, c.check) for c in rubric_of(json.loads(example))] == [
        (5.0, "good", ""),
        (3.0, "bad", ""),
        (1.0, "good", "max_words"),
    ]


def test_nothing_is_an_empty_rubric() -> None:
    """A row without criteria is no error by itself; a file is."""
    assert read_rubric(None) == read_rubric([]) == read_rubric("") == read_rubric(" \n") == ()
    with pytest.raises(RubricError, match="no criteria"):
        read_rubric_file("[]", "empty.json")


@pytest.mark.parametrize(
    ("given", "where", "word"),
    [
        (5, "rubric", "`int`"),
        ({}, "rubric", "empty"),
        ({"what": [1]}, "rubric", "what"),
        ([5], "rubric[0]", "`int`"),
        ([[]], "rubric[0]", "`list`"),
        ([{"criterion": "a"}, {"point": 3}], "rubric[1]", "point"),
        ([{"criterion": 5}], "rubric[0].criterion", "`int`"),
        ([{"criterion": " "}], "rubric[0]", "criterion"),
        ([{"criterion": "a", "points": "3"}], "rubric[0].points", "`str`"),
        ([{"criterion": "a", "points": True}], "rubric[0].points", "True"),
        ([{"criterion": "a", "points": float("nan")}], "rubric[0].points", "nan"),
        ([{"criterion": "a", "points": 10**400}], "rubric[0].points", "number"),
        ([{"criterion": "a", "points": 1, "weight": 2}], "rubric[0].weight", "differ"),
        ([{"text": "a", "true_is": "great"}], "rubric[0].true_is", "great"),
        ([{"text": "a", "title": ["b"]}], "rubric[0].title", "`list`"),
        ([{"text": "a", "choices": ["one"]}], "rubric[0].choices", "2 to"),
        ([{"text": "a", "choices": ["one", "One"]}], "rubric[0].choices", "different"),
        ([{"text": "a", "choices": "ab"}], "rubric[0].choices", "`str`"),
        ([{"text": "a", "choices": ["a", "b"], "values": [0.5]}], "rubric[0].values", "2 numbers"),
        ([{"text": "a", "options": [{"label": "x", "value": 0}, {"label": "y"}]}], "rubric[0].options", "values"),
        ([{"text": "a", "options": [{"value": 0}, {"label": "y"}]}], "rubric[0].options[0]", "label"),
        ([{"text": "a", "negate": "yes"}], "rubric[0].negate", "true or false"),
        ([{"text": "a", "negate": True, "weight": -1}], "rubric[0].weight", "negated"),
        ([{"description": "a", "type": "numeric", "max": 5000}], "rubric[0].max", "whole"),
        ([{"description": "a", "type": "likert", "points": 1}], "rubric[0].points", "whole"),
        ([{"text": "a", "check": "regex", "parameters": "("}], "rubric[0].check.pattern", "expression"),
        ([{"text": "a", "check": "max_words"}], "rubric[0].check", "number of words"),
        ([{"text": "a", "check": "contains", "parameters": {"txt": "b"}}], "rubric[0].check.txt", "texts"),
        ([{"text": "a", "check": "words", "parameters": {"min": 9, "max": 2}}], "rubric[0].check", "both"),
        ([{"text": "a", "check": 5}], "rubric[0].check", "`int`"),
        ({"rubric": ["a"], "criteria": ["b"]}, "rubric", "which"),
        ([{"name": "s", "weight": 2, "criteria": [{"text": "a"}]}], "rubric[0].weight", "section"),
        ({"criteria": [{"text": "a"}, 7]}, "rubric.criteria[1]", "`int`"),
        ({"requirements": "a", "sub_tasks": [{"requirements": "b", "weight": -1}]}, "rubric.sub_tasks[0].weight", "0"),
        ({"requirements": "a", "sub_tasks": [{"requirements": "b", "weight": 0}]}, "rubric.sub_tasks", "no weight"),
        ('[{"criterion": ', "rubric", "JSON"),
        ((Criterion("a", -1.0),), "rubric[0].weight", "true_is"),
    ],
)
def test_a_wrong_shape_is_named_by_its_place(given: Any, where: str, word: str) -> None:
    """One error, with the field at fault and what it holds."""
    found, problem = refused(given)
    assert found == where
    assert word in problem


@pytest.mark.parametrize(
    ("text", "name", "word"),
    [
        ("a: 1", "r.yaml", "YAML"),
        ("{", "r.json", "JSON"),
        ("= 1", "r.toml", "TOML"),
        ('{"criteria": [5]}', "r.json", "criteria[0]"),
    ],
)
def test_a_file_that_is_no_rubric_is_named(text: str, name: str, word: str) -> None:
    """With its name, and the place in it."""
    with pytest.raises(RubricError) as caught:
        read_rubric_file(text, name)
    assert caught.value.where.startswith(name)
    assert word in f"{caught.value.where} {caught.value.problem}"


def test_names_are_unique_and_duplicates_count_twice() -> None:
    """Equal criteria are kept; what has no name is called by its place."""
    read = read_rubric(
        [{"text": "a", "name": "x"}, {"text": "a", "name": "x"}, {"text": "b"}, {"text": "c", "name": "criterion 3"}]
    )
    assert [c.name for c in read] == ["x", "x (2)", "criterion 3", "criterion 3 (2)"]
    assert named_apart(read) == read


def recursive_mean(node: dict[str, Any], scores: dict[str, float]) -> float:
    if not node["sub_tasks"]:
        return scores[node["requirements"]]
    total = sum(child["weight"] for child in node["sub_tasks"])
    return sum(child["weight"] * recursive_mean(child, scores) for child in node["sub_tasks"]) / total


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    numbers = iter(range(1000))

    def node(depth: int) -> dict[str, Any]:
        children = draw(st.integers(1, 3)) if depth and draw(st.booleans()) else 0
        return {
            "requirements": f"leaf {next(numbers)}",
            "weight": draw(st.integers(1, 9)),
            "sub_tasks": [node(depth - 1) for _ in range(children)],
        }

    return {"requirements": "root", "weight": 1, "sub_tasks": [node(3) for _ in range(draw(st.integers(1, 3)))]}


@given(trees(), st.data())
def test_a_flattened_tree_has_the_mean_of_the_tree(tree: dict[str, Any], data: st.DataObject) -> None:
    """PaperBench: leaves weigh so that their mean is the recursive one, whatever each scores."""
    leaves = read_rubric(tree)
    scores = {leaf.text: data.draw(st.sampled_from([0.0, 1.0])) for leaf in leaves}
    assert sum(leaf.weight for leaf in leaves) == pytest.approx(1)
    assert sum(leaf.weight * scores[leaf.text] for leaf in leaves) == pytest.approx(recursive_mean(tree, scores))


items = st.fixed_dictionaries(
    {"criterion": st.sampled_from(["Is short", "Avoids haste", "Fails"]), "points": st.integers(-9, 9)},
    optional={"title": st.sampled_from(["x", "y", "criterion 1"])},
)


@given(st.lists(items, max_size=6), st.randoms())
def test_order_and_names_do_not_change_what_counts(rubric: list[dict[str, Any]], random: Any) -> None:
    """The same criteria with the same weights and polarity, and every name once."""

    def counted(value: list[dict[str, Any]]) -> list[tuple[str, float, str]]:
        read = read_rubric(value)
        assert len({c.name for c in read}) == len(read) == len(value)
        return sorted((c.text, c.weight, c.true_is) for c in read)

    shuffled = random.sample(rubric, len(rubric))
    assert counted(rubric) == counted(shuffled) == counted([{**item, "title": "same"} for item in rubric])


FIELDS = [
    "criterion",
    "points",
    "tags",
    "title",
    "description",
    "weight",
    "rubric",
    "criteria",
    "options",
    "label",
    "value",
]
FIELDS += [
    "sub_tasks",
    "requirements",
    "choices",
    "check",
    "parameters",
    "type",
    "levels",
    "true_is",
    "rubrics",
    "text",
]
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["regex", "likert", "no"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=14,
)


@given(json_values, st.sampled_from(["by_phrase", "by_sign", "as_written"]))
def test_any_json_is_read_or_refused(value: Any, polarity: Any) -> None:
    """Nothing raises anything but a RubricError; what is read is sound, and is read the same again."""
    try:
        found = read_rubric(value, "rubric", polarity)
    except RubricError:
        return
    assert read_rubric(found) == found
    assert all(c.text and c.name and c.weight >= 0 for c in found)
    assert all(len(c.values) in (0, len(c.choices)) and all(0 <= v <= 1 for v in c.values) for c in found)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=tuple[Criterion, ...]) == found


@given(
    st.dictionaries(st.sampled_from(["rubric", "rubrics", "reward_model", "extra_info", "ground_truth"]), json_values)
)
def test_any_row_has_a_rubric_or_none(row: dict[str, Any]) -> None:
    """Looking for one raises nothing."""
    found = find_rubric(row)
    assert found is None or isinstance(found[0], str)


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ({"rubric": ["a"]}, "rubric"),
        ({"rubrics": ["a"], "criteria": ["b"]}, "rubrics"),
        ({"Rubrics": ["a"], "reward_model": {"rubrics": ["a"]}}, "Rubrics"),
        ({"rubric": [], "rubric_list": ["a"]}, "rubric_list"),
        ({"reward_model": {"Rubric": ["a"]}}, "reward_model.Rubric"),
        ({"reward_model": {"rubric": ["a"]}, "extra_info": {"rubric": ["a"]}}, "reward_model.rubric"),
        ({"extra_info": {"reward_model": {"rubrics": ["a"]}}}, "extra_info.reward_model.rubrics"),
        ({"ground_truth": "42", "extra_info": {"rubric": ["a"]}}, "extra_info.rubric"),
    ],
)
def test_the_first_place_of_a_row_counts(row: dict[str, Any], path: str) -> None:
    """Columns before what stands inside others."""
    found = find_rubric(row)
    assert found is not None
    assert found[0] == path
    assert find_rubric({"ground_truth": '{"a": 1}', "reward_model": None, "rubric": None}) is None


def lines(*rows: dict[str, Any], polarity: Any = "by_phrase") -> list[Sample | BadLine]:
    data = b"\n".join(json.dumps({**GOOD, **row}).encode() for row in rows)
    return [item for _, item in read_rollouts(io.BytesIO(data), rubric=polarity)]


def test_rows_of_a_file_get_their_rubrics() -> None:
    """Only where a rubric is wanted; one that cannot be read is a bad line with its path."""
    good, bad, none = lines({"rubric": RAR}, {"reward_model": {"rubrics": [{"criterion": "a", "points": "x"}]}}, {})
    assert isinstance(good, Sample)
    assert good.rubric == read_rubric(RAR)
    assert isinstance(bad, BadLine)
    assert bad.message == "line 2: reward_model.rubrics[0].points: must be a number, not `str`."
    assert none == Sample(**GOOD, id="3")
    assert lines({"rubric": RAR}, polarity=None) == [Sample(**GOOD, id="1")]


def test_a_rubric_in_the_place_of_the_answer_is_no_reference() -> None:
    """A judge that compares would be shown JSON; a reference beside it stays."""
    text = json.dumps({"query": "q", "rubrics": [{"description": "Names a source", "weight": 1}]})
    bare, beside = lines({"ground_truth": text}, {"ground_truth": text, "reference": "42"})
    assert isinstance(bare, Sample)
    assert isinstance(beside, Sample)
    assert (bare.reference, len(bare.rubric), beside.reference) == (None, 1, "42")


def raw(row: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(json.dumps(row), type=dict[str, msgspec.Raw])


def test_what_a_rubric_leaves_is_named() -> None:
    """Columns that hold it are read; another rubric that says something else, and fields of criteria, are named."""
    row = {**GOOD, "rubric": RAR, "rubric_list": [item["description"] for item in RAR], "policy": "x"}
    assert unread_columns([raw(row)], (), rubric=True) == ["policy"]
    assert unread_columns([raw(row)], ()) == ["rubric", "rubric_list", "policy"]
    other = {
        **GOOD,
        "rubric": [{"text": "a", "mood": 1, "id": 7}],
        "reward_model": {"rubrics": ["b"]},
        "criteria": ["c"],
    }
    assert unread_columns([raw(other)], (), rubric=True) == [
        "rubric[].mood",
        "criteria",
        "reward_model.rubrics",
    ]
    older = {"Answer Critical": [{"Ingredient": "a"}], "Valuable": [{"Ingredient": "b"}], "Context": []}
    assert unread_columns([raw({**GOOD, "ground_truth": json.dumps(older)})], (), rubric=True) == [
        "ground_truth.Valuable"
    ]


def test_the_first_rows_say_what_their_pitfalls_were_taken_for() -> None:
    """For the first lines of a run; a rubric that cannot be read is no part of it."""
    report = polarity_of_rows([raw({"rubric": RAR}), raw({"rubric": RAR}), raw({"rubric": 5})])
    assert (report.good, report.bad) == (1, 1)
    assert report.lines()[1] == '  true is good: 1, as in "Avoids claiming that ice is hollow."'


@pytest.mark.parametrize("relation", [["at least"], {"a": 1}, 3])
def test_a_relation_that_is_no_text_is_named(relation: Any) -> None:
    """It is a problem of the rubric, not a crash."""
    rule = {"criterion": "Long.", "check": "words", "parameters": {"words": 3, "relation": relation}}
    with pytest.raises(RubricError, match="relation"):
        read_rubric([rule])


@pytest.mark.parametrize("points", [[5], 5, [1, 2, 3]])
def test_columns_that_do_not_fit_the_criteria_are_named(points: Any) -> None:
    """Weights that belong to no criterion in particular are not left out."""
    with pytest.raises(RubricError, match="must be a list of 2"):
        read_rubric({"criterion": ["a", "b"], "points": points})
    assert len(read_rubric({"criterion": ["a", "b"], "points": [], "title": "Of the whole", "id": 3})) == 2


def test_not_applicable_is_offered_once() -> None:
    """A choice of that name counts; beside `may_not_apply` the two could not be told apart."""
    item = {"text": "Cites.", "choices": ["not applicable", "some", "all"]}
    assert read_rubric([item])[0].choices[0] == "not applicable"
    with pytest.raises(RubricError, match="may_not_apply"):
        read_rubric([{**item, "may_not_apply": True}])
