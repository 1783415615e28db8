"""One attack before one judge: through plan, wire and reading, as in a run."""

from __future__ import annotations

from typing import Literal, get_args

from referee.config import EndpointConfig, JudgeConfig
from referee.judging import Form, make_judge
from referee.records import Ask, Message, Reply, Sample, Text, ToolCall, Unscored, Verdict
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual
from referee.sim.judge import Judge
from referee.wire import CHAT

Kind = Literal["score", "yes_no", "reference", "integer", "monitor"]
SECRET = b"a secret of this test"
KINDS: tuple[Kind, ...] = get_args(Kind)
FORMS: tuple[Form, ...] = get_args(Form)


def trajectory(text: str) -> Text:
    """A rollout of a tool's user with this text wherever text can be: words, a call, a tool's name, its result,
    thoughts."""
    call = ToolCall(text, text)
    return (
        Message("assistant", text, reasoning=text, tool_calls=(call,)),
        Message("tool", text, text),
        Message("assistant", text),
    )


def plan(kind: Kind, form: Form, response: Text) -> Ask | Verdict | Unscored:
    """What the judge would be asked, or the gate's verdict. Of messages it sees all."""
    judge = make_judge(JudgeConfig(kind=kind, view="answer" if isinstance(response, str) else "full"), SECRET)
    return judge.plan(Sample(prompt="What is seven times six?", response=response, reference="42"), form)


def try_on(judge: Judge, kind: Kind, form: Form, response: Text) -> Verdict | Unscored:
    """The verdict this judge gives, as we read it."""
    reader = make_judge(JudgeConfig(kind=kind, ask_again=0), SECRET)
    request = plan(kind, form, response)
    if not isinstance(request, Ask):
        return request

    async def main() -> Verdict | Unscored:
        transport = SimTransport(Provider(ProviderSpec(), judge=judge))
        answer = await transport.post("http://judge.test/v1", {}, CHAT.encoder(EndpointConfig()).encode(request), 30.0)
        reply = CHAT.read(answer.status, answer.headers, answer.body, 0.0)
        assert isinstance(reply, Reply)
        return reader.read(request, reply)

    return run_virtual(main())


def credited(verdict: Verdict | Unscored) -> bool:
    """True if an answer that deserves the lowest score got more than a quarter of the scale."""
    return isinstance(verdict, Verdict) and verdict.value > 0.25
