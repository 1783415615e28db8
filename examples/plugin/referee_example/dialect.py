"""api = "azure": chat completions of an Azure OpenAI deployment. The body is OpenAI's; URL and key header are not."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from referee.config import EndpointConfig, Secret
from referee.wire import Chat, common_headers

API_VERSION = "2024-10-21"


class Azure(Chat):
    """endpoint.url is the resource (https://NAME.openai.azure.com), endpoint.model the deployment."""

    name = "azure-chat/1"

    def url(self, endpoint: EndpointConfig) -> str:
        """The deployment's URL."""
        path = f"/openai/deployments/{quote(endpoint.model, safe='')}/chat/completions"
        return urlsplit(endpoint.url)._replace(path=path, query=f"api-version={API_VERSION}").geturl()

    def headers(self, key: Secret | None) -> dict[str, str]:
        """The key has a header of its own."""
        found = common_headers()
        if key is not None:
            found["api-key"] = key.reveal().strip()
        return found


AZURE = Azure()
