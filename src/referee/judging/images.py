"""Images that a judge is shown: which ones, how many, and what they add to a request.

In a text stands the image's name; the image itself is a piece of the judge's message, put there by the dialect before
the text under the same name. No fence can surround it, and what is written in it is the policy's text.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from referee.config import JudgeConfig
from referee.judging.digest import digest
from referee.judging.template import shipped
from referee.records import Ask, Media, Reason, Text, Unscored
from referee.rollouts import Image, media_of, read_image

RULES = shipped("images")
IMAGE_TOKENS = 1000
"""Estimate for one image, until the provider reports usage: from 258 (Gemini, small) to 1,600 (Anthropic, large)."""
FACET = "images"


def unusable(texts: Iterable[Text], config: JudgeConfig) -> Unscored | None:
    """Why a piece of these texts cannot be shown to the judge; None: all of them can."""
    for text in texts:
        for media in media_of(text):
            image = read_image(media)
            if image is None:
                problem = f"a part of type {media.type[:40]!r} is not an image as base64 data or a URL"
            elif image.url and not config.image_urls:
                problem = "an image is given by its URL, and judge.image_urls does not allow that"
            else:
                continue
            return Unscored(reason=Reason.CONFIG, detail=f"{problem}, so the judge would not see it")
    return None


def shown_in(text: str, texts: Iterable[Text]) -> dict[str, Image]:
    """The images of `texts` that the judge's text names, each once: of a cut or left-out message none is."""
    found = (image for given in texts for media in media_of(given) if (image := read_image(media)) is not None)
    return {image.name: image for image in found if f"[{image.name}]" in text}


def too_many(images: dict[str, Image], config: JudgeConfig) -> Unscored | None:
    """Why these are more than one request may hold."""
    size = sum(image.size for image in images.values())
    if len(images) > config.max_images:
        detail = f"{len(images)} images in one request, and judge.max_images is {config.max_images}"
    elif size > config.max_image_mb * 1e6:
        detail = f"{size / 1e6:.1f} MB of images in one request, and judge.max_image_mb is {config.max_image_mb:g}"
    else:
        return None
    return Unscored(reason=Reason.TOO_LONG, detail=detail)


def attach(ask: Ask, images: dict[str, Image]) -> Ask:
    """The question with these images."""
    *before, last = ask.messages
    media = tuple([Media("image", image.source) for image in images.values()])
    named = digest("".join([image.digest for image in images.values()]))
    return replace(
        ask,
        messages=(*before, replace(last, content=f"{RULES}\n\n{last.content}", media=media)),
        facets=(*ask.facets, (FACET, f"{digest(RULES)[:8]} {named}")),
        prompt_tokens=ask.prompt_tokens + IMAGE_TOKENS * len(images),
    )
