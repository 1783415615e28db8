"""Groups that are judged as a whole: the coordinator's bookkeeping, without waiting, threads or Ray."""

from __future__ import annotations

import random
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from referee.runtime.ray_judged_groups import Call, Case, End, Ends, JudgedGroups, Text, Told

LATE = End(b"", "late")


def made(**more: int) -> JudgedGroups:
    """Bookkeeping of a coordinator that is called c."""
    return JudgedGroups("c", 1e9, 1000, **more)


def sent(groups: JudgedGroups, client: str, *, expected: int = 2, data: bytes = b"text", call: int = 1) -> list[Told]:
    """What a client's text settles; its member is called like the client."""
    return groups.text(Text("u", client, data, expected, call), client, 0.0)


def due(groups: JudgedGroups, client: str, call: int = 1) -> list[Told]:
    """What a client's impatience settles."""
    return groups.text(Text("u", client, b"", 2, call, due=True), client, 0.0)


def ends_of(told: list[Told]) -> Ends:
    """The ends of the case that a client was handed, named after their members."""
    ((_, case),) = told
    assert isinstance(case, Case)
    return Ends(
        case.uid, case.id, case.expected, {(client, call): member.encode() for client, call, member in case.calls}, 99
    )


def test_the_last_one_is_handed_the_whole_group_and_all_get_their_ends() -> None:
    """Once: nothing is handed out before it is complete, and no text is kept after its ends are there."""
    groups = made()
    assert sent(groups, "a") == []
    handed = sent(groups, "b")
    assert handed == [Told(("b", 1), Case("u", "c/1", 2, {"a": b"text", "b": b"text"}, [("a", 1, "a"), ("b", 1, "b")]))]
    assert due(groups, "a") == []
    assert groups.ends(ends_of(handed), "b", 0.0) == [Told(("a", 1), End(b"a")), Told(("b", 1), End(b"b"))]
    assert groups.ends(ends_of(handed), "b", 0.0) == []
    assert groups.bytes == 0


def test_messages_that_come_twice_count_once() -> None:
    """Texts before and after the group was handed out."""
    groups = made()
    sent(groups, "a")
    assert sent(groups, "a") == []
    handed = sent(groups, "b")
    assert sent(groups, "a") == sent(groups, "b") == []
    assert groups.bytes == 8
    groups.ends(ends_of(handed), "b", 0.0)
    assert sent(groups, "a") == []


def test_the_group_is_what_is_there_when_one_has_waited_long_enough() -> None:
    """The ones that come afterwards are late, while it is judged and when it is over."""
    groups = made()
    sent(groups, "a", expected=4)
    sent(groups, "b", expected=4)
    handed = due(groups, "a")
    assert [told.call for told in handed] == [("a", 1)]
    assert sent(groups, "d", expected=4) == [Told(("d", 1), LATE)]
    assert [told.found for told in groups.ends(ends_of(handed), "a", 0.0)] == [End(b"a"), End(b"b")]
    assert sent(groups, "e", expected=4) == [Told(("e", 1), LATE)]
    assert sent(groups, "a", expected=4, call=2) == []  # all have come: this one begins another group


def test_a_case_of_a_silent_client_goes_to_another_one() -> None:
    """With the text of the silent one; its own ends, if it has some after all, count if they are first."""
    for first in ("b", "a"):
        groups = made()
        sent(groups, "a")
        handed = sent(groups, "b")
        assert groups.without({"c"}) == []
        again = groups.without({"b"})
        assert [told.call for told in again] == [("a", 1)]
        assert [told.found for told in again] == [told.found for told in handed]
        assert groups.without({"b", "a"}) == []  # nobody is left; whoever is heard again gets it
        told = groups.ends(ends_of(again), first, 0.0)
        assert [one.found for one in told] == [End(b"a"), End(b"b")]
        assert groups.ends(ends_of(handed), "b", 0.0) == []


def test_a_case_that_cannot_be_judged_there_goes_to_another_one() -> None:
    """Each is asked once; a client that was given up has no say in it."""
    groups = made()
    sent(groups, "a", expected=3)
    sent(groups, "b", expected=3)
    sent(groups, "d", expected=3)
    assert groups.ends(Ends("u", "c/1", 3, {}, 2), "a", 0.0) == []
    (to_a,) = groups.ends(Ends("u", "c/1", 3, {}, 2), "d", 0.0)
    assert to_a.call == ("a", 1)
    (to_b,) = groups.ends(Ends("u", "c/1", 3, {}, 2), "a", 0.0, {"d"})
    assert to_b.call == ("b", 1)


def test_texts_have_a_bound() -> None:
    """Those of groups under judgement go first, and then nothing can be taken over; what has no room is told so."""
    groups = made(max_bytes=10)
    sent(groups, "a")
    sent(groups, "b")
    assert groups.text(Text("v", "d", b"1234567", 3, 1), "d", 0.0) == []
    assert groups.bytes == 7
    assert groups.text(Text("v", "e", b"1234", 3, 1), "e", 0.0) == [Told(("e", 1), End(b"", "full"))]
    assert groups.without({"b"}) == [Told(("a", 1), End(b"", "lost")), Told(("b", 1), End(b"", "lost"))]


def test_a_text_that_has_no_room_costs_no_case_its_texts() -> None:
    """A case can still be handed to another client."""
    groups = made(max_bytes=10)
    sent(groups, "a")
    sent(groups, "b")
    assert groups.text(Text("v", "d", b"x" * 50, 2, 1), "d", 0.0) == [Told(("d", 1), End(b"", "full"))]
    assert groups.bytes == 8
    assert [told.call for told in groups.without({"b"})] == [("a", 1)]


def test_a_member_without_a_text_is_not_waited_for() -> None:
    """Whether it was refused, or is gone; the others are judged when they are there."""
    groups = made(max_bytes=10)
    sent(groups, "a")
    full, handed = sent(groups, "b", data=b"1234567")
    assert full == Told(("b", 1), End(b"", "full"))
    assert [told.found for told in groups.ends(ends_of([handed]), "a", 0.0)] == [End(b"a")]
    for order in ("agb", "gab", "abg"):
        groups, told = made(), []
        for client in order:
            assert told == []
            gone = Text("u", "g", b"", 3, 1, gone=True)
            told = groups.text(gone, "g", 0.0) if client == "g" else sent(groups, client, expected=3)
        assert set(ends_of(told).ends) == {("a", 1), ("b", 1)}


def test_a_group_of_which_all_are_gone_leaves_its_name_to_the_next() -> None:
    """The members of that one wait for each other."""
    groups = made()
    for client in "ab":
        assert groups.text(Text("u", client, b"", 2, 1, gone=True), client, 0.0) == []
    assert sent(groups, "a", call=2) == []
    assert len(sent(groups, "b", call=2)) == 1


def test_old_groups_are_forgotten_with_their_texts() -> None:
    """By age and by number."""
    groups = JudgedGroups("c", 10.0, 2)
    for number, now in enumerate((0.0, 1.0, 2.0, 20.0)):
        groups.text(Text(f"u{number}", "a", b"text", 2, number), "a", now)
    assert (len(groups), groups.bytes) == (1, 4)


def test_a_new_coordinator_takes_the_ends_of_a_case_it_never_knew() -> None:
    """For calls that are made again before or after, and whoever was late there is late here."""
    old, new = made(), JudgedGroups("n", 1e9, 1000)
    for client in "abd":
        sent(old, client, expected=4)
    ends = ends_of(due(old, "d"))
    assert sent(new, "a", expected=4) == []
    assert new.ends(ends, "d", 0.0) == [Told(("a", 1), End(b"a"))]
    assert sent(new, "b", expected=4) == [Told(("b", 1), End(b"b"))]
    assert sent(new, "e", expected=4) == [Told(("e", 1), LATE)]


class World:
    """Clients that send texts, judge what they are handed, go away, and a coordinator that may be replaced."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = 0
        self.groups = self.coordinator()
        self.clients = {name: 0 for name in "abcd"}
        self.gone: set[str] = set()
        self.open: dict[Call, Text] = {}
        self.got: dict[Call, list[End]] = defaultdict(list)
        self.of: dict[Call, tuple[str, int]] = {}
        """Name and generation of a call's group."""
        self.cases: list[tuple[str, Case]] = []
        """In work, by client."""
        self.done: list[tuple[str, Ends]] = []

    def coordinator(self) -> JudgedGroups:
        self.names += 1
        return JudgedGroups(f"c{self.names}", 1e9, 1000)

    def take(self, told: list[Told], lost: float = 0.0) -> None:
        """Deliver messages; each of them is lost with this probability, as when the coordinator ends."""
        for (client, call), found in told:
            if client in self.gone or self.rng.random() < lost:
                continue
            if isinstance(found, Case):
                generations = {data.decode().rpartition("/")[0] for data in found.texts.values()}
                assert len(generations) == 1, "a mixed group"
                if (client, found) not in self.cases:
                    self.cases.append((client, found))
            elif (client, call) in self.open:
                del self.open[client, call]
                self.got[client, call].append(found)

    def arrive(self, uid: str, generation: int, member: int, expected: int) -> None:
        """A member's text, from any client that lives."""
        client = self.rng.choice([name for name in self.clients if name not in self.gone])
        self.clients[client] += 1
        call = (client, self.clients[client])
        text = Text(uid, str(member), f"{uid}/{generation}/{member}".encode(), expected, call[1])
        self.open[call], self.of[call] = text, (uid, generation)
        self.take(self.groups.text(text, client, 0.0))

    def be_due(self) -> None:
        for client, call in self.rng.sample(sorted(self.open), len(self.open)):
            if text := self.open.get((client, call)):
                self.take(self.groups.text(text._replace(data=b"", due=True), client, 0.0))

    def judge(self, lost: float = 0.0) -> None:
        """One of the cases in work has its ends."""
        if not self.cases:
            return
        client, case = self.cases.pop(self.rng.randrange(len(self.cases)))
        ends = {(name, number): f"{case.id}".encode() for name, number, _ in case.calls}
        message = Ends(case.uid, case.id, case.expected, ends, 0)
        self.done.append((client, message))
        self.take(self.groups.ends(message, client, 0.0, self.gone), lost)

    def die(self) -> None:
        """A client goes away, with its calls and its work; it is noticed."""
        client = self.rng.choice(sorted(self.clients))
        if len(self.gone) == len(self.clients) - 1:
            return
        self.gone.add(client)
        self.open = {call: text for call, text in self.open.items() if call[0] != client}
        self.cases = [(name, case) for name, case in self.cases if name != client]
        self.take(self.groups.without(self.gone))

    def replace(self) -> None:
        """The coordinator is another one; clients tell it what is open and what they have judged, in any order."""
        self.judge(lost=0.5)
        self.groups = self.coordinator()
        messages: list[tuple[str, Text | Ends]] = [(client, text) for (client, _), text in self.open.items()]
        messages += self.done
        self.rng.shuffle(messages)
        for client, message in messages:
            if isinstance(message, Text):
                self.take(self.groups.text(message, client, 0.0))
            else:
                self.take(self.groups.ends(message, client, 0.0))


@given(seed=st.integers(0, 2**32), deaths=st.booleans(), losses=st.booleans())
def test_no_group_is_ever_mixed_and_everybody_has_one_end(seed: int, deaths: bool, losses: bool) -> None:
    """Random arrivals, deaths of clients, losses of the coordinator, names that come again: each call that lives has
    exactly one end, and all ends of a group are of one judgement. Where both the coordinator and the client that judged
    are lost before all have heard of it, some are judged again, by themselves."""
    rng = random.Random(seed)
    world = World(rng)
    expected = rng.randint(2, 5)
    for generation in range(3):
        world.done.clear()  # long ago, when a name comes again
        names = [f"{name}{generation}" if deaths and losses else name for name in "uvw"]
        arrivals = [(uid, member) for uid in names for member in range(expected)]
        rng.shuffle(arrivals)
        for uid, member in arrivals:
            world.arrive(uid, generation, member, expected)
            happens = rng.random()
            if happens < 0.2:
                world.judge()
            elif happens < 0.3:
                world.be_due()
            elif happens < 0.35 and deaths:
                world.die()
            elif happens > 0.95 and losses:
                world.replace()
        for _ in range(100):
            world.be_due()
            world.judge()
        while world.cases:  # of an earlier coordinator
            world.judge()
    lives = {call for call in world.of if call[0] not in world.gone}
    assert all(len(world.got[call]) == 1 for call in lives)
    judged = defaultdict(set)
    for call, (end,) in ((call, world.got[call]) for call in lives):
        if not end.why:
            judged[world.of[call]].add(end.data)
        else:
            assert end == LATE
    assert all(len(cases) == 1 for cases in judged.values()) or (deaths and losses)
    assert deaths or world.groups.bytes == 0
