"""Images in messages: which pieces are one, and the name by which a text refers to it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from hashlib import sha256

from msgspec import Struct

from referee.records import Media, Text

TYPES = frozenset({"image_url", "image", "input_image"})
"""What the formats of messages call an image."""

_DATA = re.compile(r"data:(image/[a-z0-9.+-]{1,40});base64,([A-Za-z0-9+/=_-]+)", re.ASCII)
_URL = re.compile(r"https?://[!-~]+", re.ASCII | re.IGNORECASE)


class Image(Struct, frozen=True):
    """One image: its data, or where it is."""

    name: str
    """What a text and the label before the image call it: "image 3fa2b1c4d5e6". Equal images have equal names, so the
    order in which texts are shown does not matter, and one that is shown twice is sent once."""
    digest: str
    media_type: str = ""
    """image/png and the like. Empty: it is a URL."""
    data: str = ""
    """In base64."""
    url: str = ""

    @property
    def source(self) -> str:
        """As one URL, which for data holds the data."""
        return self.url or f"data:{self.media_type};base64,{self.data}"

    @property
    def size(self) -> int:
        """Bytes of the image; 0 if only its URL is known."""
        return len(self.data) * 3 // 4 - self.data.count("=", -2)

    @property
    def described(self) -> str:
        """For records, which do not hold the image itself."""
        return self.url or f"{self.media_type}, {self.size} bytes, sha256 {self.digest}"


@functools.lru_cache(maxsize=32)
def read_image(media: Media) -> Image | None:
    """The image a piece of a message is; None: it is none, or neither data nor a URL is there."""
    if media.type not in TYPES:
        return None
    digest = sha256(media.source.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    name = f"image {digest[:12]}"
    if found := _DATA.fullmatch(media.source):
        return Image(name, digest, media_type=found[1], data=found[2])
    return Image(name, digest, url=media.source) if _URL.fullmatch(media.source) else None


def media_of(text: Text) -> Iterator[Media]:
    """All that is not text, in order."""
    for message in () if isinstance(text, str) else text:
        yield from message.media
