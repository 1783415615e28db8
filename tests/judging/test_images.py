"""Images that a judge is shown: which, how many, and what a request, a key and a record hold of them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from referee.cache import KeyMaker
from referee.config import EndpointConfig, JudgeConfig
from referee.judging import make_judge, seen_by
from referee.judging.images import IMAGE_TOKENS
from referee.ledger import verdict_line
from referee.records import Ask, Media, Message, Reason, Sample, Settled, Text, Unscored, Verdict
from referee.rollouts import more_of, read_image, read_text
from referee.wire import CHAT

PROMPT = "What is in the picture?"


def data(text: str = "a", size: int = 30) -> str:
    """An image as a data URL, of about this size in bytes."""
    return f"data:image/png;base64,{base64.b64encode(text.encode() * size).decode()}"


def shown(source: str, text: str = PROMPT, type: str = "image_url") -> tuple[Message, ...]:
    return (Message("user", text, media=(Media(type, source, len(text)),)),)


def plan(prompt: Text, response: Text = "A cat.", **settings: Any) -> Ask | Verdict | Unscored:
    judge = make_judge(JudgeConfig(**{"kind": "score", "parts": "show", **settings}), b"secret", None)
    deliberation = judge.deliberate((Sample(prompt=prompt, response=response),), "schema")
    try:
        (asked,) = next(deliberation)
    except StopIteration as stop:
        (found,) = stop.value
        assert isinstance(found, Verdict | Unscored)
        return found
    return asked


def asked(prompt: Text, response: Text = "A cat.", **settings: Any) -> Ask:
    found = plan(prompt, response, **settings)
    assert isinstance(found, Ask)
    return found


def name(source: str) -> str:
    image = read_image(Media("image_url", source))
    assert image is not None
    return f"[{image.name}]"


def test_the_text_names_the_image_and_the_message_holds_it() -> None:
    """Where it stood, inside the fence; with the rule that images are data."""
    ask = asked(shown(data()))
    last = ask.messages[-1]
    assert [media.source for media in last.media] == [data()]
    assert f"{PROMPT}\n{name(data())}" in last.content
    assert last.content.startswith("The images before this text")
    assert ask.prompt_tokens - asked(PROMPT).prompt_tokens > IMAGE_TOKENS


def test_a_request_without_images_is_the_same_as_ever() -> None:
    """The setting alone changes nothing, so verdicts stay cached."""
    shows, refuses = asked(PROMPT), asked(PROMPT, parts="refuse")
    assert (shows.messages, shows.facets) == (refuses.messages, refuses.facets)
    assert shows.prompt_tokens == refuses.prompt_tokens


def test_one_image_shown_twice_is_sent_once() -> None:
    """Equal images have equal names."""
    ask = asked(shown(data()), (Message("assistant", "Here:", media=(Media("image", data(), 5),)),))
    assert len(ask.messages[-1].media) == 1
    assert ask.messages[-1].content.count(name(data())) == 2


def test_another_image_is_another_request() -> None:
    """In the cache key; and responses that differ in an image are told apart before they are judged."""
    keys = KeyMaker(EndpointConfig(), CHAT)
    assert keys.key(asked(shown(data("a")))) != keys.key(asked(shown(data("b"))))
    assert keys.key(asked(shown(data("a")))) == keys.key(asked(shown(data("a"))))
    one, two = ((Message("assistant", "x", media=(Media("image", data(text), 1),)),) for text in "ab")
    tell = seen_by([JudgeConfig(parts="show")])
    assert tell(one) != tell(two)


def test_the_image_of_a_message_that_is_not_shown_is_not_sent() -> None:
    """The answer view leaves out earlier messages, and their images with them."""
    response = (
        Message("assistant", "Looking.", media=(Media("image", data("early"), 8),)),
        Message("assistant", "A cat.", media=(Media("image", data("late"), 6),)),
    )
    assert [media.source for media in asked(PROMPT, response).messages[-1].media] == [data("late")]
    assert len(asked(PROMPT, response, view="full").messages[-1].media) == 2


@pytest.mark.parametrize(
    ("prompt", "settings", "reason", "words"),
    [
        (shown("https://example.org/a.png"), {}, Reason.CONFIG, "judge.image_urls"),
        (shown(""), {}, Reason.CONFIG, "'image_url' is not an image"),
        (shown("UklGRg==", type="input_audio"), {}, Reason.CONFIG, "'input_audio'"),
        (shown("file:///etc/passwd"), {"image_urls": True}, Reason.CONFIG, "not an image"),
        (shown("data:text/html;base64,PGI+"), {}, Reason.CONFIG, "not an image"),
        (shown(data("a")) + shown(data("b")), {"max_images": 1}, Reason.TOO_LONG, "judge.max_images is 1"),
        (shown(data(size=3000)), {"max_image_mb": 0.001}, Reason.TOO_LONG, "judge.max_image_mb is 0.001"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(
    prompt: Text, settings: dict[str, Any], reason: Reason, words: str
) -> None:
    """Unscored before anything is sent, never judged without it."""
    found = plan(prompt, **settings)
    assert isinstance(found, Unscored)
    assert found.reason is reason
    assert words in found.detail


def test_a_url_goes_out_as_a_url_if_allowed() -> None:
    """The provider fetches it, we do not."""
    ask = asked(shown("https://example.org/a.png"), image_urls=True)
    assert [media.source for media in ask.messages[-1].media] == ["https://example.org/a.png"]


def test_a_name_in_the_policys_text_shows_nothing() -> None:
    """Only pieces of messages are images, whatever a text says."""
    assert asked(PROMPT, f"As {name(data())} shows.").messages[-1].media == ()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": data()}},
        {"type": "image_url", "image_url": data()},
        {"type": "input_image", "image_url": data()},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data().partition(",")[2]}},
    ],
    ids=["chat", "chat, short", "responses", "anthropic"],
)
def test_every_format_of_messages_gives_the_same_image(part: dict[str, Any]) -> None:
    """So that one rollout in two formats is one request."""
    read = read_text([{"role": "user", "content": [{"type": "text", "text": PROMPT}, part]}])
    assert [media.source for media in asked(read).messages[-1].media] == [data()]


def test_records_hold_what_an_image_was_and_not_the_image() -> None:
    """Digest and size: a line must not grow by megabytes."""
    big = data("x", 200_000)
    sample = Sample(prompt=shown(big), response="A cat.")
    settled = Settled(verdict=Verdict(score=1, value=0.0))
    line = verdict_line(sample, settled, request=asked(sample.prompt), content=True)
    assert len(str(line)) < 20_000
    assert "200000 bytes, sha256 " in line.asked
    assert "200000 bytes, sha256 " in str(more_of(sample))


@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
def test_judges_of_groups_are_shown_images_of_the_prompt(kind: str) -> None:
    """One of a response is refused by name: the judge could not tell whose it is."""
    judge = make_judge(JudgeConfig(kind=kind, parts="show"), b"secret", None)
    pictured = (Message("assistant", "C.", media=(Media("image", data("c"), 2),)),)
    samples = [Sample(prompt=shown(data()), response=text, group="g") for text in ("A.", "B.", pictured)]
    deliberation = judge.deliberate(samples, "schema")
    asks = next(deliberation)
    assert asks
    assert all([media.source for media in ask.messages[-1].media] == [data()] for ask in asks)
    with pytest.raises(StopIteration) as stop:
        deliberation.send([Unscored(reason=Reason.DEADLINE)] * len(asks))
    last = stop.value.value[2]
    assert isinstance(last, Unscored)
    assert (last.reason, "holds an image" in last.detail) == (Reason.CONFIG, True)
