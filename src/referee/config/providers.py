"""Providers by name. Data only: `resolve` fills it in; prices are in `prices`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field

from referee.config.schema import EndpointConfig

LOCAL = "local"
LOCAL_URL = "http://local.invalid/v1"
"""Stands for the address of an embedded server, which is known once it runs. A reserved name: it never resolves."""
LOCAL_MODEL = "smollm2-135m-instruct"
"""What `provider = "local"` without a model runs."""


class Provider(Struct, frozen=True, kw_only=True):
    """What is known of one provider."""

    url: str = ""
    """Base of its API. Empty: the user must give `endpoint.url`."""
    api: str = "chat"
    key_env: str = ""
    """Variable that usually holds its key. Empty: no key is sent."""
    extra: dict[str, Any] = field(default_factory=dict)
    """More fields for its requests; those of `endpoint.extra` win."""
    flex: float | None = None
    """What `tier = "flex"` costs, as a share of the standard price; None: it has no such tier."""
    batch: float | None = None
    """The same of its batch API; None: `referee score --batch` does not speak it."""
    example_url: str = ""
    """Where `url` is empty: what such a URL looks like."""


PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider(url="https://api.anthropic.com/v1", api="anthropic", key_env="ANTHROPIC_API_KEY", batch=0.5),
    "azure": Provider(
        key_env="AZURE_OPENAI_API_KEY",
        flex=0.5,
        example_url="https://YOUR-RESOURCE.openai.azure.com/openai/v1",
    ),
    "dashscope": Provider(url="https://dashscope.aliyuncs.com/compatible-mode/v1", key_env="DASHSCOPE_API_KEY"),
    "deepseek": Provider(url="https://api.deepseek.com/v1", key_env="DEEPSEEK_API_KEY"),
    "fireworks": Provider(url="https://api.fireworks.ai/inference/v1", key_env="FIREWORKS_API_KEY"),
    "gemini": Provider(
        url="https://generativelanguage.googleapis.com/v1beta",
        api="gemini",
        key_env="GEMINI_API_KEY",
        flex=0.5,
    ),
    "groq": Provider(url="https://api.groq.com/openai/v1", key_env="GROQ_API_KEY", flex=1.0),
    "llamacpp": Provider(url="http://127.0.0.1:8080/v1"),
    LOCAL: Provider(url=LOCAL_URL),
    "mistral": Provider(url="https://api.mistral.ai/v1", key_env="MISTRAL_API_KEY"),
    "ollama": Provider(url="http://127.0.0.1:11434/v1"),
    "openai": Provider(url="https://api.openai.com/v1", key_env="OPENAI_API_KEY", flex=0.5, batch=0.5),
    "openrouter": Provider(
        url="https://openrouter.ai/api/v1",
        key_env="OPENROUTER_API_KEY",
        # Otherwise a server that ignores the JSON schema may be chosen.
        extra={"provider": {"require_parameters": True}},
    ),
    "qianfan": Provider(url="https://qianfan.baidubce.com/v2", key_env="QIANFAN_API_KEY"),
    "sglang": Provider(url="http://127.0.0.1:30000/v1"),
    "together": Provider(url="https://api.together.xyz/v1", key_env="TOGETHER_API_KEY"),
    "vllm": Provider(url="http://127.0.0.1:8000/v1"),
}


def provider_name(endpoint: EndpointConfig) -> str:
    """The name of an endpoint's provider: the one it gives, else the one whose host its URL has; "": an unknown one."""
    if endpoint.provider:
        return endpoint.provider
    host = endpoint.host
    return next((name for name, known in PROVIDERS.items() if host and _host(known) == host), "")


def _host(known: Provider) -> str:
    """Empty for servers on this machine: any program may listen there."""
    return urlsplit(known.url).netloc if known.url.startswith("https:") else ""


def runs_here(endpoint: EndpointConfig) -> bool:
    """Whether an endpoint needs an embedded server to be started; one with a URL of its own has a server."""
    return endpoint.provider == LOCAL and endpoint.url == LOCAL_URL


def provider_of(endpoint: EndpointConfig) -> Provider | None:
    """The provider of an endpoint: the named one, else the one whose host its URL has; None: an unknown one."""
    return PROVIDERS.get(provider_name(endpoint))
