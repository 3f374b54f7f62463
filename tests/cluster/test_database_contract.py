"""What every implementation of the database port has to do: claims, fences, turns, repeats, mail and leases."""

from __future__ import annotations

from cluster.tables import NOW, ONE, SCOPE, TWO, Tables, after, change, created, push
from msgspec import structs

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.store import WOKEN, DedupeKey, Note, PushState, Sweep, TaskRow, Write
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.stores.postgres.database import NodeInfo
from dragoman.stores.postgres.sql import claims, reader

# -- the fence -------------------------------------------------------------------------------------------------------


async def test_a_task_is_its_creators_with_epoch_1(tables: Tables) -> None:
    row = await tables.create(ONE)
    owner = (await tables.database.owners(ONE, [row.number]))[row.number]
    assert owner == (ONE, 1, 1, row.id)
    assert set(await tables.database.run(claims.owned, ONE)) == {row.number}
    working = after(row, State.WORKING)
    assert await tables.commit(TWO, change(working, 1)) == "refused"
    assert await tables.commit(ONE, change(working, 2)) == "refused"
    assert await tables.commit(ONE, change(working, 1)) == "committed"


async def test_a_change_that_does_not_follow_is_refused_whole(tables: Tables) -> None:
    row = await tables.create()
    late = after(after(row, State.WORKING), State.WORKING)
    assert await tables.commit(ONE, change(late, 1)) == "refused"
    one = after(row, State.WORKING)
    assert await tables.commit(ONE, change(one, 1), change(after(late, State.WORKING), 1)) == "refused"
    assert (await tables.database.run(reader.task, row.id)).row == row
    assert await tables.commit(ONE, change(one, 1), change(after(one, State.WORKING), 1)) == "committed"
    assert [r.generation for r in await tables.database.run(reader.records, row.number, 0, 10)] == [1, 2, 3]


async def test_each_sequence_of_a_batch_has_its_own_outcome(tables: Tables) -> None:
    first, second = await tables.create(), tables.row()
    batch = [[change(after(first, State.WORKING), 9)], [created(second)], [created(first)]]
    outcomes = await tables.database.commit(ONE, batch)
    assert [outcome.kind for outcome in outcomes] == ["refused", "committed", "refused"]


async def test_notes_alone_need_the_claim(tables: Tables) -> None:
    row = await tables.create()
    note = (Note(1, "begun", b"k"),)
    assert await tables.commit(TWO, Write(row, print, notes=note, epoch=1)) == "refused"
    assert await tables.commit(ONE, Write(row, print, notes=note, epoch=1)) == "committed"
    assert [note.kind for note in await tables.database.run(reader.notes, row.number)] == ["request", "begun"]


async def test_a_repeated_statement_leaves_notes_and_drafts_as_they_are(tables: Tables) -> None:
    row, draft = await tables.create(), tables.row()
    noted = Write(row, print, notes=(Note(1, "begun", b"k"),), epoch=1, key=1)
    for _ in range(2):
        assert await tables.commit(ONE, noted) == "committed"
    drafted = Write(draft, print, draft=True, snapshot=b"d", notes=(Note(1, "request", b"{}"),), key=2)
    assert await tables.commit(ONE, drafted) == "committed"
    # Both are right: whoever asks who owns it learns that it is there.
    assert await tables.commit(ONE, drafted) in ("committed", "refused")
    assert await tables.commit(ONE, Write(row, print, notes=(Note(1, "begun", b"k"),), epoch=1, key=3)) == "committed"
    assert [note.kind for note in await tables.database.run(reader.notes, row.number)] == ["request", "begun", "begun"]
    assert [stored.snapshot for stored in await tables.database.run(reader.drafts, "agent")] == [b"d"]
    deleted = Write(draft, print, draft=True, delete=True, epoch=1)
    assert await tables.commit(ONE, deleted) == "committed"
    assert await tables.commit(ONE, deleted) in ("committed", "refused")
    assert await tables.database.run(reader.drafts, "agent") == []


async def test_a_run_that_begins_without_a_record_needs_the_claim(tables: Tables) -> None:
    row = await tables.create()
    begins = Write(row, print, begins=True, serial=True, epoch=1)
    assert await tables.commit(TWO, begins) == "refused"
    assert await tables.commit(ONE, begins) == "committed"
    assert await tables.commit(ONE, change(after(row, State.COMPLETED), 1)) == "committed"
    assert await tables.commit(ONE, begins) == "refused"
    assert (await tables.database.owners(ONE, [row.number]))[row.number].owner is None


async def test_an_end_and_a_pause_end_the_claim(tables: Tables) -> None:
    for state in (State.INPUT_REQUIRED, State.COMPLETED):
        row = await tables.create()
        settled = after(row, state)
        assert await tables.commit(ONE, change(settled, 1)) == "committed"
        assert (await tables.database.owners(ONE, [row.number]))[row.number] == (None, 1, 2, row.id)
        assert await tables.commit(ONE, change(after(settled, State.WORKING), 1)) == "refused"
    assert await tables.database.run(claims.owned, ONE) == {}


# -- claims ----------------------------------------------------------------------------------------------------------


async def test_a_waiting_task_is_claimed_once(tables: Tables) -> None:
    row = await tables.waiting()
    assert await tables.database.claim(TWO, row.number, 1, revoke=False) is None  # it has moved on
    claimed = await tables.database.claim(TWO, row.number, 2, revoke=False)
    assert (claimed.claim, claimed.begun, claimed.stored.row) == ((row.number, 2, 0), False, row)
    assert await tables.database.claim(ONE, row.number, 2, revoke=False) is None
    assert await tables.commit(ONE, change(after(row, State.WORKING), 1)) == "refused"
    assert await tables.commit(TWO, change(after(row, State.WORKING), 2)) == "committed"


async def test_a_released_task_is_queued_unless_it_has_begun(tables: Tables) -> None:
    idle, begun = await tables.create(), await tables.create(begins=True)
    assert not await tables.database.release(TWO, idle.number, 1)
    assert not await tables.database.release(ONE, idle.number, 2)
    assert await tables.database.release(ONE, idle.number, 1)
    assert not await tables.database.release(ONE, begun.number, 1)
    assert await tables.take(TWO) == [idle.number]


async def test_without_queued_tasks_only_those_that_had_begun_on_dead_nodes_are_taken(tables: Tables) -> None:
    begun, _ = await tables.create(TWO, begins=True), await tables.create(TWO)
    await tables.create(queued=True)
    await tables.kill(TWO)
    taken = await tables.database.take(ONE, "agent", parallel=False, limit=10, queued=False)
    assert [claimed.claim.task for claimed in taken] == [begun.number]


async def test_a_node_that_runs_nothing_has_no_agents_for_the_others(tables: Tables) -> None:
    for runs in (True, False, True):
        await tables.database.beat(TWO, runs=runs)
        agents = {peer.id: peer.agents for peer in (await tables.database.beat(ONE)).peers}
        assert agents[TWO] == (("agent",) if runs else ())


async def test_queued_tasks_are_taken_oldest_first_by_one_node(tables: Tables) -> None:
    queued = [(await tables.create(queued=True)).number for _ in range(3)]
    assert await tables.take(TWO, limit=2) == queued[:2]
    assert await tables.take(ONE) == queued[2:]
    assert await tables.take(ONE) == []


async def test_an_answered_task_that_waits_for_its_turn_is_taken(tables: Tables) -> None:
    row = await tables.waiting()
    claimed = await tables.database.claim(TWO, row.number, 2, revoke=False)
    assert await tables.commit(TWO, change(after(row, State.WORKING), claimed.claim.epoch)) == "committed"
    assert await tables.database.release(TWO, row.number, claimed.claim.epoch)
    assert await tables.take(ONE) == [row.number]


# -- turns -----------------------------------------------------------------------------------------------------------


async def test_runs_of_one_context_begin_one_after_another(tables: Tables) -> None:
    first = await tables.create(ONE, begins=True, serial=True)
    row = tables.row(first.context_id)
    assert await tables.commit(TWO, created(row, joins_context=True, begins=True, serial=True)) == "busy"
    assert await tables.database.run(reader.task, row.id) is None
    assert await tables.commit(TWO, created(row, joins_context=True, queued=True)) == "committed"
    assert await tables.take(TWO) == []  # an older one is unfinished
    (outcome,) = await tables.database.commit(ONE, [[change(after(first, State.COMPLETED), 1)]])
    assert outcome == ("committed", True)
    (claimed,) = await tables.database.take(TWO, "agent", parallel=False, limit=5)
    begins = change(after(row, State.WORKING), claimed.claim.epoch, begins=True, serial=True)
    assert await tables.commit(TWO, begins) == "committed"
    third = tables.row(first.context_id)
    assert await tables.commit(ONE, created(third, joins_context=True, begins=True, serial=True)) == "busy"


async def test_the_older_message_is_taken_first_also_with_a_higher_number(tables: Tables) -> None:
    # Nodes reserve numbers in blocks: a later message may get a smaller one.
    first = await tables.create(ONE, begins=True, serial=True)
    later, earlier = tables.row(first.context_id), tables.row(first.context_id)
    for row in (earlier, later):
        assert await tables.commit(TWO, created(row, joins_context=True, queued=True)) == "committed"
    assert await tables.commit(ONE, change(after(first, State.COMPLETED), 1)) == "committed"
    assert await tables.take(TWO) == [earlier.number]


async def test_an_older_task_that_is_answered_waits_for_the_younger_that_is_at_work(tables: Tables) -> None:
    older = await tables.waiting(context="c")
    younger = await tables.create(TWO, "c", begins=True, serial=True)
    claimed = await tables.database.claim(ONE, older.number, 2, revoke=False)
    begins = change(after(older, State.WORKING), claimed.claim.epoch, begins=True, serial=True)
    assert await tables.commit(ONE, begins) == "busy"
    assert await tables.commit(TWO, change(after(younger, State.COMPLETED), 1)) == "committed"
    assert await tables.commit(ONE, begins) == "committed"


async def test_a_pause_frees_the_context(tables: Tables) -> None:
    first = await tables.create(ONE, "c", begins=True, serial=True)
    assert await tables.commit(ONE, change(after(first, State.AUTH_REQUIRED), 1)) == "committed"
    await tables.create(TWO, "c", begins=True, serial=True)


async def test_parallel_runs_take_no_turns(tables: Tables) -> None:
    await tables.create(ONE, "c", begins=True)
    second = await tables.create(ONE, "c", queued=True)
    assert await tables.take(TWO, parallel=True) == [second.number]


async def test_a_pinned_context_is_left_to_its_node_while_that_lives(tables: Tables) -> None:
    first = await tables.create(TWO, "c", begins=True, pins=True)
    assert await tables.commit(TWO, change(after(first, State.COMPLETED), 1)) == "committed"
    row = await tables.create(ONE, "c", queued=True)
    assert await tables.take(ONE) == []
    await tables.kill(TWO)
    (claimed,) = await tables.database.take(ONE, "agent", parallel=False, limit=5)
    assert (claimed.claim.task, claimed.home) == (row.number, f"node-{TWO}")


async def test_a_run_whose_cancel_was_cut_off_goes_back_to_the_node_of_its_session(tables: Tables) -> None:
    await tables.database.join(NodeInfo(3, "node-3", ("agent",), "1"))
    row = await tables.create(TWO, "c", begins=True, pins=True)
    assert await tables.database.claim(3, row.number, 1, revoke=True) is not None
    await tables.kill(3)
    assert await tables.take(ONE) == []
    (claimed,) = await tables.database.take(TWO, "agent", parallel=False, limit=5)
    assert (claimed.claim.task, claimed.begun, claimed.home) == (row.number, True, None)


async def test_a_pinned_context_waits_for_a_node_that_was_stopped_and_comes_back(tables: Tables) -> None:
    first = await tables.create(TWO, "c", begins=True, pins=True)
    assert await tables.commit(TWO, change(after(first, State.COMPLETED), 1)) == "committed"
    row = await tables.create(ONE, "c", queued=True)
    await tables.database.leave(TWO)
    assert await tables.take(ONE) == []
    await tables.database.join(NodeInfo(3, f"node-{TWO}", ("agent",), "1"))
    (claimed,) = await tables.database.take(3, "agent", parallel=False, limit=5)
    assert (claimed.claim.task, claimed.home) == (row.number, None)


# -- repeats, mail, drafts -------------------------------------------------------------------------------------------


async def test_a_number_that_another_task_has_creates_nothing(tables: Tables) -> None:
    row, key = await tables.create(), DedupeKey(b"\0key", NOW + 1000)
    namesake = TaskRow(row.number, "another", SCOPE, "another", V1_0, State.SUBMITTED, NOW, 1, NOW)
    for write in (created(namesake, dedupe_key=key), Write(namesake, print, draft=True, snapshot=b"d", dedupe_key=key)):
        assert await tables.commit(TWO, write) == "refused"
    assert await tables.database.run(reader.duplicate_of, b"\0key", NOW) is None
    assert await tables.database.run(reader.task, "another") is None


async def test_a_dedupe_key_is_one_tasks(tables: Tables) -> None:
    key = DedupeKey(b"k" * 32, NOW + 60_000)
    row = await tables.create(dedupe_key=key)
    other = tables.row()
    assert await tables.commit(TWO, created(other, dedupe_key=key)) == "repeated"
    assert await tables.database.run(reader.task, other.id) is None
    assert await tables.database.run(reader.duplicate_of, key.digest, NOW) == row.id
    assert await tables.commit(ONE, created(row, dedupe_key=key)) == "refused"  # sent once more: no repeat


async def test_mail_is_numbered_and_posted_once(tables: Tables) -> None:
    row = await tables.create()
    key = DedupeKey(b"m" * 32, NOW + 60_000)
    assert (await tables.database.post(row, b"one", key, None, 1)).kind == "committed"
    assert (await tables.database.post(row, b"one", key, None, 1)).kind == "committed"  # sent once more
    assert (await tables.database.post(row, b"two", None, 1, 2)).kind == "committed"
    assert (await tables.database.post(row, b"three", None, 2, 3)).kind == "refused"
    assert (await tables.database.post(row, b"four", key, None, 4)).kind == "repeated"
    assert await tables.database.run(reader.mail, row.number, 0) == [(1, b"one"), (2, b"two")]
    assert await tables.database.run(reader.mail, row.number, 1) == [(2, b"two")]
    assert (await tables.database.run(claims.owned, ONE))[row.number] == (1, 2, row.scope.agent, row.id)
    done = change(after(row, State.COMPLETED), 1, snapshot=b"s", mail=1)
    assert await tables.commit(ONE, done) == "committed"
    stored = await tables.database.run(reader.task, row.id)
    assert (stored.mail, stored.snapshot_mail, stored.epoch) == (2, 1, 1)
    assert (await tables.database.post(row, b"five", None, None, 5)).kind == "refused"
    assert (await tables.database.post(row, b"two", None, None, 2)).kind == "committed"  # sent once more


async def test_the_id_of_a_draft_is_taken(tables: Tables) -> None:
    row = tables.row()
    assert await tables.commit(ONE, Write(row, print, draft=True, snapshot=b"d")) == "committed"
    namesake = structs.replace(tables.row(), id=row.id)
    assert await tables.commit(TWO, Write(namesake, print, draft=True, snapshot=b"d")) == "refused"
    assert await tables.commit(TWO, created(namesake)) == "refused"


async def test_a_draft_is_claimed_again_by_its_own_node_only(tables: Tables) -> None:
    row = tables.row()
    assert await tables.commit(ONE, Write(row, print, draft=True, snapshot=b"d", begins=True, epoch=1)) == "committed"
    assert await tables.database.claim(TWO, row.number, 1, revoke=False) is None
    assert await tables.database.claim(TWO, row.number, 1, revoke=True) is None
    claimed = await tables.database.claim(ONE, row.number, 1, revoke=False)
    assert (claimed.claim.epoch, claimed.begun, claimed.draft) == (2, True, True)
    opened = created(row, opens_draft=True)
    assert await tables.commit(ONE, structs.replace(opened, epoch=1)) == "refused"
    assert await tables.commit(ONE, structs.replace(opened, epoch=2)) == "committed"


async def test_a_draft_is_taken_when_its_node_is_dead(tables: Tables) -> None:
    row = tables.row()
    draft = Write(row, print, draft=True, snapshot=b"d", notes=(Note(1, "request", b"{}"),), begins=True)
    assert await tables.commit(TWO, draft) == "committed"
    assert await tables.database.run(reader.task, row.id) is None
    await tables.kill(TWO)
    (claimed,) = await tables.database.take(ONE, "agent", parallel=False, limit=5)
    assert (claimed.draft, claimed.claim.epoch, claimed.stored.snapshot) == (True, 2, b"d")
    opened = Write(row, print, create=True, opens_draft=True, records=(Record(1, b"r1"),), epoch=1)
    assert await tables.commit(TWO, opened) == "refused"
    opened.epoch = 2
    assert await tables.commit(ONE, opened) == "committed"
    assert (await tables.database.run(reader.task, row.id)).row == row


async def test_an_old_statement_does_not_bring_an_answered_draft_back(tables: Tables) -> None:
    row, key = tables.row(), DedupeKey(b"o" * 32, NOW + 60_000)
    draft = Write(row, print, draft=True, snapshot=b"d", dedupe_key=key, begins=True)
    assert await tables.commit(ONE, draft) == "committed"
    replied = Write(row, print, draft=True, delete=True, dedupe_key=key, reply=b"reply", epoch=1)
    assert await tables.commit(ONE, replied) == "committed"
    assert await tables.commit(ONE, draft) == "repeated"
    # The caller chose the id and sends the message again: the reply is what it gets.
    again = TaskRow(tables.row().number, row.id, SCOPE, row.context_id, V1_0, State.SUBMITTED, NOW, 1, NOW)
    assert await tables.commit(TWO, created(again, dedupe_key=key)) == "repeated"
    assert await tables.database.run(reader.drafts, "agent") == []
    assert await tables.database.run(reader.reply, key.digest, NOW) == b"reply"


async def test_an_old_statement_begins_nothing_that_has_settled(tables: Tables) -> None:
    row = await tables.waiting()
    claimed = await tables.database.claim(ONE, row.number, 2, revoke=False)
    epoch = claimed.claim.epoch
    working = after(row, State.WORKING)
    assert await tables.commit(ONE, change(working, epoch)) == "committed"
    begins = Write(working, print, begins=True, serial=True, epoch=epoch)
    for _ in range(2):
        assert await tables.commit(ONE, begins) == "committed"
    assert await tables.commit(ONE, change(after(working, State.COMPLETED), epoch)) == "committed"
    assert await tables.commit(ONE, begins) == "refused"
    assert await tables.database.run(claims.owned, ONE) == {}


async def test_a_reply_deletes_its_draft_and_is_found_by_repeats(tables: Tables) -> None:
    row, key = tables.row(), DedupeKey(b"r" * 32, NOW + 60_000)
    assert await tables.commit(ONE, Write(row, print, draft=True, snapshot=b"d", dedupe_key=key)) == "committed"
    replied = Write(row, print, draft=True, delete=True, dedupe_key=key, reply=b"reply", epoch=1)
    assert await tables.commit(TWO, replied) == "refused"
    assert await tables.commit(ONE, replied) == "committed"
    assert await tables.database.run(reader.drafts, "agent") == []
    assert await tables.database.run(reader.reply, key.digest, NOW) == b"reply"
    assert await tables.database.owners(ONE, [row.number]) == {}


# -- webhooks, leases, retention -------------------------------------------------------------------------------------


async def test_a_webhook_belongs_to_the_node_that_stored_it_until_that_is_dead(tables: Tables) -> None:
    row = await tables.create(TWO, pushes=())
    assert await tables.commit(TWO, Write(row, print, pushes=(push(row),))) == "committed"
    assert await tables.database.run(claims.take_pushes, ONE, 10) == 0
    assert await tables.commit(ONE, Write(row, print, push_progress=(push(row, tries=1),))) == "committed"
    assert [p.tries for p in await tables.database.run(reader.pushes, row.number)] == [0]
    await tables.kill(TWO)
    assert await tables.database.run(reader.undelivered_pushes, ONE, woken=True) == []
    assert await tables.database.run(claims.take_pushes, ONE, 10) == 1
    assert await tables.database.run(claims.take_pushes, ONE, 10) == 0
    ((woken, _),) = await tables.database.run(reader.undelivered_pushes, ONE, woken=True)
    assert (woken.id, woken.due_ms) == ("p", WOKEN)
    late = push(row, tries=1)  # of an earlier claim
    assert await tables.commit(ONE, Write(row, print, push_progress=(late,))) == "committed"
    (taken,) = await tables.database.run(reader.pushes, row.number)
    assert (taken.tries, taken.epoch) == (0, late.epoch + 1)
    done = push(row, state=PushState.DONE, epoch=taken.epoch)
    assert await tables.commit(ONE, Write(row, print, push_progress=(done,))) == "committed"
    assert [p.state for p in await tables.database.run(reader.pushes, row.number)] == [PushState.DONE]


async def test_a_node_is_dead_for_good(tables: Tables) -> None:
    renewal = await tables.database.beat(TWO)
    assert renewal.alive
    seen = {peer.id: peer.beat for peer in renewal.peers}
    assert set(seen) == {ONE, TWO}
    assert (await tables.database.beat(TWO)).alive
    assert not await tables.database.bury(TWO, seen[TWO])  # its beat has changed
    await tables.kill(TWO)
    renewal = await tables.database.beat(TWO)
    assert (renewal.alive, [peer.id for peer in renewal.peers]) == (False, [ONE])
    await tables.database.leave(ONE)
    assert not (await tables.database.beat(ONE)).alive


async def test_retention_forgets_ended_tasks_only(tables: Tables) -> None:
    ended, running = await tables.create(), await tables.create(begins=True)
    assert await tables.commit(ONE, change(after(ended, State.COMPLETED), 1, snapshot=b"s")) == "committed"
    while await tables.database.sweep(Sweep(ended_before_ms=NOW * 2)):
        pass
    assert await tables.database.run(reader.task, ended.id) is None
    assert await tables.database.run(reader.task, running.id) is not None
