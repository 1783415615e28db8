"""No fault invents a verdict: every one of them through the real wire and the real reading, in virtual time."""

from __future__ import annotations

import pytest

from referee.config import EndpointConfig, JudgeConfig
from referee.engine.port import TransportFault
from referee.judging import Form, make_judge
from referee.records import Ask, Failure, Reply, Sample, Unscored, Verdict
from referee.sim.provider import Provider
from referee.sim.spec import FAULTS, Fault, ProviderSpec
from referee.sim.transport import SimTransport
from referee.sim.virtual import run_virtual
from referee.wire import CHAT, from_fault

HARMLESS = {"nan_json"}
"""The verdict itself is whole: taking it or refusing the body are both right."""


def outcome(kind: str, form: Form, fault: Fault | None) -> Verdict | Unscored | Failure:
    """What becomes of one sample under a fault."""
    judge = make_judge(JudgeConfig(kind=kind), b"0123456789abcdef")  # type: ignore[arg-type]
    request = judge.plan(Sample(prompt="How many?", response="Seven. [[quality=7]]", reference="7"), form)
    assert isinstance(request, Ask)
    spec = ProviderSpec(faults={fault: 1.0} if fault else {}, huge_bytes=100_000)

    async def main() -> Verdict | Unscored | Failure:
        transport = SimTransport(Provider(spec))
        try:
            answer = await transport.post(
                "http://judge.test/v1", {}, CHAT.encoder(EndpointConfig()).encode(request), 30.0
            )
        except TransportFault as trouble:
            return from_fault(trouble.kind, trouble.detail)
        found = CHAT.read(answer.status, answer.headers, answer.body, 0.0)
        return judge.read(request, found) if isinstance(found, Reply) else found

    return run_virtual(main())


@pytest.mark.parametrize("form", ["schema", "text"])
@pytest.mark.parametrize("kind", ["score", "yes_no", "reference"])
def test_a_fault_is_never_a_score(kind: str, form: Form) -> None:
    """Under every fault the sample is unscored, or has the very verdict it has without one."""
    clean = outcome(kind, form, None)
    assert isinstance(clean, Verdict)
    for fault in FAULTS:
        found = outcome(kind, form, fault)
        if isinstance(found, Verdict):
            assert fault in HARMLESS, f"{fault} gave {found}"
            assert found == clean, fault
