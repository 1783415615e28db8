"""A round of questions, from a case to the engine and back.

In which form a question is asked, JSON by schema or text, is decided here: judges and engine do not depend on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from referee.config import Config, pool_of
from referee.engine import Engine
from referee.judging import Form
from referee.records import Ask, Reason, Settled, Unscored, Verdict
from referee.scoring.case import NOTHING, Case, with_costs
from referee.scoring.forms import LearnedForm
from referee.scoring.job import Job, OpenAsk
from referee.soundness import sound

log = logging.getLogger("referee")


class Asker:
    """Takes the questions of cases to the engine, and the answers back to them."""

    def __init__(
        self, config: Config, engine: Engine, used: Callable[[Job], None], complete: Callable[[Job, Case], None]
    ) -> None:
        """`used(job)` is called for each question that the engine is asked, `complete(job, case)` when a round has all
        its answers."""
        self._engine = engine
        self._used = used
        self._complete = complete
        self._forms = {(number, pool_of(judge)): LearnedForm(judge.reply) for number, judge in enumerate(config.judge)}
        """By the judge's number and the pool it asks. Judges that another one uses ask pools of their own, which are
        added with their first question."""
        self._own = list(self._forms)

    def forms(self) -> list[Form]:
        """In which form each judge is asked from now on."""
        return [self._forms[own].now(self._engine.takes_schema(own[1])) for own in self._own]

    def _form(self, case: Case, request: Ask) -> LearnedForm:
        own = case.judge, request.pool
        form = self._forms.get(own)
        if form is None:
            form = self._forms[own] = LearnedForm()
        return form

    def ask(self, job: Job, case: Case, asks: Sequence[Ask], keys: Iterator[str]) -> None:
        """Ask a round of questions, known to the engine by the next `keys`. Known answers may complete it at once."""
        job.open[case] = None
        for slot, request in enumerate(asks):
            self._ask(job, case, slot, request, next(keys), NOTHING)

    def give_up(self, case: Case, why: Unscored) -> None:
        """Answer a case's open questions with `why`. What each has cost so far is kept."""
        for slot, opened in enumerate(case.slots):
            if not isinstance(opened, OpenAsk):
                continue
            end, detail = NOTHING, why.detail
            if opened.flight is not None:
                detail = f"{why.detail}: {opened.flight.trouble()}"
                end = self._engine.leave(opened.flight, opened) or NOTHING
            end = replace(end, verdict=Unscored(reason=why.reason, detail=detail))
            case.answered(slot, opened.request, with_costs(end, opened.before))

    def _ask(self, job: Job, case: Case, slot: int, request: Ask, key: str, before: Settled) -> None:
        if request.in_text is not None and self._wants_text(case, request):
            self._ask_in_text(job, case, slot, request, before)
            return
        known = self._engine.known(request, key)
        if known is not None:
            self._take(job, case, slot, request, known, before)
            return
        opened = case.slots[slot] = OpenAsk(self._answered, job, case, slot, request, before)
        opened.flight = self._engine.ask(request, key, job.due, opened, job.work.team)
        self._used(job)

    def _wants_text(self, case: Case, request: Ask) -> bool:
        """Whether its pool is asked in text by now, also with questions that were planned before."""
        return self._form(case, request).now(self._engine.takes_schema(request.pool)) == "text"

    def _ask_in_text(self, job: Job, case: Case, slot: int, request: Ask, before: Settled) -> None:
        assert request.in_text is not None
        try:
            other = request.in_text()
            key = self._engine.key(other) if isinstance(other, Ask) else ""
        except Exception as error:
            log.exception("a question could not be asked in text")
            other = Unscored(reason=Reason.CONFIG, detail=f"internal error: {type(error).__name__}")
        if isinstance(other, Ask):
            self._ask(job, case, slot, other, key, before)
        else:
            self._take(job, case, slot, request, replace(before, verdict=sound(other)), NOTHING)

    def _answered(self, opened: OpenAsk, settled: Settled) -> None:
        """The engine has an end for a question."""
        job, case = opened.job, opened.case
        if case not in job.open or case.slots[opened.slot] is not opened:
            return
        request, before = opened.request, opened.before
        if request.sampling.schema is not None or request.in_text is not None:
            form, verdict = self._form(case, request), settled.verdict
            if isinstance(verdict, Verdict):
                form.read()
            elif (
                form.wants_text(verdict, settled.origin, self._engine.takes_schema(request.pool))
                and request.in_text is not None
            ):
                self._ask_in_text(job, case, opened.slot, request, with_costs(settled, before))
                return
        self._take(job, case, opened.slot, request, settled, before)

    def _take(self, job: Job, case: Case, slot: int, request: Ask, settled: Settled, before: Settled) -> None:
        if before is not NOTHING:
            settled = with_costs(settled, before)
        if case.answered(slot, request, settled):
            self._complete(job, case)
