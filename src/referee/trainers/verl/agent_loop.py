"""verl's tool agent, with its conversation passed on to the reward. Imports verl: named in an agent loop configuration.

    - name: judged_tool_agent
      _target_: referee.trainers.verl.agent_loop.JudgedToolAgentLoop

As shipped, verl's agent keeps messages to itself, and a reward manager is given their tokens as one response.
"""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

from referee.trainers.verl.data import MESSAGES


class JudgedToolAgentLoop(ToolAgentLoop):  # type: ignore[misc]
    """ToolAgentLoop that leaves `messages` and `tools` in its output's extra_fields. verl makes one per rollout."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """As verl's own, with the conversation beside the tokens."""
        self._conversation: list[dict[str, Any]] = []
        self._cut_off: list[dict[str, Any]] = []
        self._offered: list[Any] = []
        output = await super().run(sampling_params, **kwargs)
        messages = [self._passed_on(message) for message in (*self._conversation, *self._cut_off)]
        output.extra_fields.update({MESSAGES: messages, "tools": self._offered})
        return output

    async def _handle_generating_state(self, agent_data: Any, *args: Any, **kwargs: Any) -> Any:
        known = len(agent_data.messages)
        state = await super()._handle_generating_state(agent_data, *args, **kwargs)
        self._conversation = agent_data.messages
        self._offered = getattr(agent_data, "_active_tool_schemas", None) or self.tool_schemas
        if len(agent_data.messages) == known:  # at a limit verl stops before it takes the last words for a message
            said = self.tokenizer.decode(agent_data.response_ids, skip_special_tokens=True)
            self._cut_off = [{"role": "assistant", "content": said}]
        return state

    def _passed_on(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message without the tokens that end a turn, and with the names of images instead of their data."""
        content = message["content"]
        if isinstance(content, str):
            for token in self.tokenizer.all_special_tokens:
                content = content.rstrip().removesuffix(token) if content.rstrip().endswith(token) else content
        elif content is not None:
            content = [part if isinstance(part, str) or "text" in part else {"type": part["type"]} for part in content]
        return {**message, "content": content}
