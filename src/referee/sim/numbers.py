"""Simulated models that generate no text: reward models and cross-encoders (`classify`, `score`, `pooling`, as vLLM
serves them, and as SGLang does where a request is in its form) and decision models (`decision`).

A response with [[quality=1.5]] has exactly that raw score; any other has one from a checksum of its text, from -5 to 5.
A decision model gives a yes the marker's tenths as its probability, and the level of a scale that is called by it the
most; without a marker, statements are decided as in `statements`.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from referee.sim.api import Api, ChatData
from referee.sim.chat import ChatMessage, ChatRequest
from referee.sim.spec import Fault
from referee.sim.statements import Statement

QUALITY = re.compile(r"\[\[quality=([^\]\s]{1,24})\]\]")
LEVEL = re.compile(r"(-?\d+) on a scale ")
SURE = 0.9
"""Probability of the answer that a decision model gives."""
ANSWER_TOKENS = 20


class NumberRequest(ChatRequest, frozen=True):
    """A request as its JSON, with its texts as messages; the last one is the response."""

    body: dict[str, Any] = msgspec.field(default_factory=dict)


class NumberApi(Api):
    """An API whose replies are numbers: written here, where those of others are made of chat completions."""

    def reply(self, request: NumberRequest, fault: Fault | None, asked: int) -> tuple[bytes, int]:
        """The body of a reply, corrupted by `fault`, and its completion tokens. `asked`: prompt tokens."""
        raise NotImplementedError


class _Scores(NumberApi):
    """What the three APIs of reward models have in common."""

    path: str
    forged = (b'"data":', b'"data":[],')

    def serves(self, path: str) -> bool:
        return path.endswith(self.path)

    def request(self, path: str, body: bytes) -> NumberRequest:
        data = msgspec.json.decode(body, type=dict[str, Any])
        return NumberRequest(messages=self.texts(data), model=str(data.get("model", "")), body=data)

    def texts(self, data: dict[str, Any]) -> list[ChatMessage]:
        """The messages, or the text in the model's own format."""
        if "messages" in data:
            return msgspec.convert(data["messages"], list[ChatMessage])
        text = data.get("text", data.get("input"))
        if not isinstance(text, str):
            raise ValueError("messages, input or text: field required")
        return [ChatMessage("user", text)]

    def error(self, status: int, kind: str, code: str | None, message: str, param: str | None) -> tuple[int, ChatData]:
        """vLLM repeats the status as the code."""
        return status, {"error": {"message": message, "type": kind, "param": param, "code": status}}

    def reply(self, request: NumberRequest, fault: Fault | None, asked: int) -> tuple[bytes, int]:
        body = request.body
        sglang = "text" in body or "items" in body
        number = raw_score(request.messages[-1].text)
        if body.get("use_activation", not sglang):
            number = 1 / (1 + math.exp(-number))
        numbers: list[Any] = _faulty(number, fault)
        usage = {"prompt_tokens": asked, "total_tokens": asked, "completion_tokens": 0, "prompt_tokens_details": None}
        found: ChatData = {"id": "sim", "object": "list", "model": request.model, "usage": usage}
        if fault == "no_choices":
            found |= {"data": None}
        elif sglang:
            found |= self.of_sglang(numbers, asked)
        else:
            found |= {"data": [{"index": 0, **self.result(numbers, body)}]}
        return corrupted(msgspec.json.encode(found), fault, self), 0

    def result(self, numbers: list[Any], body: ChatData) -> ChatData:
        """One result as vLLM writes it, to this request."""
        return {"label": "LABEL_0", "probs": numbers, "num_classes": len(numbers)}

    def of_sglang(self, numbers: list[Any], asked: int) -> ChatData:
        """What SGLang writes."""
        return {"embedding": numbers, "meta_info": {"prompt_tokens": asked}}


class ClassifyApi(_Scores):
    """POST /classify."""

    path = "/classify"


class PoolingApi(_Scores):
    """POST /pooling. With task = "token_classify", numbers for and against each of three steps; those for them come
    second, and the last one is the score."""

    path = "/pooling"

    def result(self, numbers: list[Any], body: ChatData) -> ChatData:
        if body.get("task") != "token_classify":
            return {"object": "pooling", "data": numbers}
        last = [number for number in numbers if number is not None]
        active = bool(body.get("use_activation"))
        before = [(number + 1) / 2 if active else number + 1 for number in last]
        rows = [[active - number for number in step] + step for step in (before, before, last)]
        return {"object": "pooling", "data": rows}


class ScoreApi(_Scores):
    """POST /score, and SGLang's /v1/score."""

    path = "/score"

    def texts(self, data: dict[str, Any]) -> list[ChatMessage]:
        found = (data["query"], *data["items"]) if "items" in data else (data.get("text_1"), data.get("text_2"))
        if len(found) != 2 or not all(isinstance(text, str) for text in found):
            raise ValueError("text_1 and text_2: field required")
        return [ChatMessage("user", text) for text in found]

    def result(self, numbers: list[Any], body: ChatData) -> ChatData:
        return {"object": "score", "score": numbers[0]} if numbers else {"object": "score"}

    def of_sglang(self, numbers: list[Any], asked: int) -> ChatData:
        return {"scores": [numbers], "object": "scoring"}


class DecisionApi(NumberApi):
    """POST /v1/systemone."""

    forged = (b'"noul":', b'"noul":1.0,')

    def serves(self, path: str) -> bool:
        return path.endswith("/systemone")

    def request(self, path: str, body: bytes) -> NumberRequest:
        data = msgspec.json.decode(body, type=dict[str, Any])
        questions = data.get("questions")
        if not isinstance(questions, dict) or not questions or "state" not in data:
            raise ValueError("state and questions: field required")
        for question in questions.values():
            _check_question(question)
        state = data["state"] if isinstance(data["state"], dict) else {"state": str(data["state"])}
        texts = [str(question["instructions"]) for question in questions.values()]
        messages = [ChatMessage("user", text) for text in (*texts, *map(str, state.values()))]
        return NumberRequest(messages=messages, model=str(data.get("model", "")), body=data)

    def error(self, status: int, kind: str, code: str | None, message: str, param: str | None) -> tuple[int, ChatData]:
        """Requests of a wrong shape are 422."""
        return 422 if kind == "invalid_request_error" and status == 400 else status, {
            "detail": {"error_type": code or kind, "message": message}
        }

    def reply(self, request: NumberRequest, fault: Fault | None, asked: int) -> tuple[bytes, int]:
        candidate = request.messages[-1].text
        questions: dict[str, Any] = request.body["questions"]
        answers = {name: _answer(name, question, candidate) for name, question in questions.items()}
        first = next(iter(answers))
        match fault:
            case "no_verdict" | "empty_content" | "refusal":
                del answers[first]
            case "two_verdicts":
                answers["another"] = answers[first]
            case "out_of_range":
                answers[first] = {"type": "noul", "noul": 1.5, "probabilities": {"0": 1.5}}
            case "nan_score":
                answers[first] = {"type": "noul", "noul": None, "probabilities": None}
            case _:
                pass
        used = ANSWER_TOKENS * len(questions)
        usage = {"input_tokens": asked, "output_tokens": used}
        found = {"model": request.model, "answers": None if fault == "no_choices" else answers, "usage": usage}
        return corrupted(msgspec.json.encode(found), fault, self), used


def raw_score(text: str) -> float:
    """What a reward model thinks of a response."""
    marks = QUALITY.findall(text)
    return float(marks[-1]) if marks else zlib.crc32(text.encode()) % 1001 / 100 - 5


def corrupted(body: bytes, fault: Fault | None, api: Api) -> bytes:
    """JSON that says two things, or none."""
    key, forged = api.forged
    match fault:
        case "malformed":
            return body.replace(b'":', b'"', 1)
        case "nan_json":
            return b'%b,"cost":NaN}' % body[:-1]
        case "duplicate_keys":
            return body.replace(key, forged + key, 1)
        case _:
            return body


def _faulty(number: float, fault: Fault | None) -> list[Any]:
    match fault:
        case "no_verdict" | "empty_content" | "refusal":
            return []
        case "two_verdicts":
            return [number, -number]
        case "nan_score":
            return [None]  # as msgspec and orjson write NaN
        case _:
            return [number]


def _check_question(question: Mapping[str, Any]) -> None:
    kind, criteria = question.get("type"), question.get("criteria")
    good = "instructions" in question and (
        kind == "noul"
        or (kind == "score" and isinstance(criteria, list) and 2 <= len(criteria) <= 10)
        or (kind == "choice" and isinstance(criteria, dict) and 2 <= len(criteria) <= 255)
    )
    if not good:
        raise ValueError(f"questions: not a question: {question!r:.100}")


def _answer(name: str, question: Mapping[str, Any], candidate: str) -> ChatData:
    marks = QUALITY.findall(candidate)
    mark = float(marks[-1]) if marks else None
    if question["type"] == "noul":
        said = Statement(name, str(question["instructions"])).verdict(candidate)
        share = SURE if said == "yes" else 1 - SURE
        return {"type": "noul", "noul": round(share if mark is None else min(max(mark / 10, 0.02), 0.98), 2)}
    criteria = question["criteria"]
    answers = list(map(str, range(len(criteria)))) if question["type"] == "score" else list(criteria)
    said = Statement(name, str(question["instructions"]), len(answers)).verdict(candidate)
    best = int(said)
    if mark is not None and question["type"] == "score":
        levels = [LEVEL.match(text) for text in criteria]
        numbers = [int(level[1]) for level in levels if level]
        best = numbers.index(int(mark)) if mark in numbers else round((len(answers) - 1) * min(max(mark / 10, 0), 1))
    rest = (1 - SURE) / (len(answers) - 1)
    shares = {answer: SURE if place == best else rest for place, answer in enumerate(answers)}
    if question["type"] == "choice":
        return {"type": "choice", "choice": answers[best], "confidence": SURE, "probabilities": shares}
    score = math.fsum(place * share for place, share in enumerate(shares.values()))
    legend = {answer: text for answer, text in zip(answers, criteria, strict=True)}
    return {"type": "score", "score": score, "confidence": SURE, "legend": legend, "probabilities": shares}
