"""Does the lock cell do what the Chubby paper says? A test a requirement, named after its section.

The brain is the real one; clients are the small ones of `tests/support/lock_model.py`, without a
cache of their own. What the client library must do is in `test_chubby_client.py`, the nine steps
of a fail-over are in `test_chubby_failover.py`.
"""

from __future__ import annotations

import pytest

from mrstream.cluster.errors import ClusterError
from mrstream.lock import protocol as p
from mrstream.lock.cell import records as r
from mrstream.lock.cell.nodes import checksum_of
from mrstream.lock.cell.settings import Settings
from mrstream.lock.errors import (
    AclRefuses,
    BadLockRequest,
    BadNodePath,
    GenerationChanged,
    HandleInvalid,
    LimitReached,
    LockHeld,
    NodeExists,
    NodeHasChildren,
    NodeIsDirectory,
    NodeNotDirectory,
    NoSuchNode,
    SequencerInvalid,
    SessionExpired,
    WrongEpoch,
)
from mrstream.lock.paths import canonical
from mrstream.lock.sequencer import parse
from tests.support.lock_model import RW, Client, Model, R, W, Waits, changed, keep, settle

F = "/ls/local/f"
NO_PATHS = [
    "", "f", "/f", "/ls", "ls/local/f", "/ls/local/../f", "/ls/local/a:b", "/ls/local/\n",
    "/ls/local/" + "x" * 256, "/ls/local/" + "x/" * 600, "/ls/local/\x9b", "/ls/local/\ud800",
]  # fmt: skip
NO_SEQUENCERS = [
    "", "x", f"{F}:2", f"{F}:", f"{F}:1:", f"{F}:0:exclusive", f"{F}:1:both",
    "/ls/local/g:1:exclusive", "/ls/local//f:1:exclusive", f"{F}:01:exclusive", f"{F}:1:shared",
    f"{F}:9999:exclusive",
]  # fmt: skip


class TestNodes:
    def test_2_3_names_begin_with_ls_and_a_cell_of_which_local_is_the_one_at_hand(self) -> None:
        """CH-08."""
        model = Model()
        client = Client(model)

        client.make("/ls/local/wombat", b"pouch")

        assert client.look("/ls/demo/wombat").contents == b"pouch"
        with pytest.raises(BadNodePath, match="other"):
            client.look("/ls/other/wombat")

    @pytest.mark.parametrize("path", NO_PATHS)
    def test_2_3_what_is_no_path_is_refused(self, path: str) -> None:
        with pytest.raises(BadNodePath):
            canonical(path)

    def test_2_3_files_are_read_and_written_whole(self) -> None:
        """CH-08."""
        client = Client(Model())
        handle = client.make(F, b"first")

        client.do(p.SetContents, handle, contents=b"second")

        assert client.look(F, handle).contents == b"second"

    def test_2_3_a_parent_must_be_there_and_be_a_directory(self) -> None:
        client = Client(Model())
        client.make(F)

        with pytest.raises(NoSuchNode, match="make it first"):
            client.make("/ls/local/no/f")
        with pytest.raises(NodeNotDirectory):
            client.make(f"{F}/g")

    def test_2_3_there_is_no_way_to_move_a_node_and_no_time_of_last_access(self) -> None:
        """CH-10: links, renames and access times would stand in the way of caching."""
        requests = {kind.__name__ for kind in Model().cell.calls}

        assert not any("Rename" in name or "Link" in name for name in requests)
        assert not any("access" in field for field in p.Stat.__struct_fields__)

    def test_2_3_permission_is_the_nodes_own_not_that_of_the_path(self) -> None:
        """CH-10."""
        model = Model()
        owner, other = Client(model, "ada"), Client(model, "bob")
        owner.make("/ls/local/acl/ada-only", b"ada\n")
        only = p.Acl("ada-only", "ada-only", "ada-only")
        owner.make("/ls/local/d", is_directory=True)
        owner.make("/ls/local/d/f", b"x")
        directory = owner.open("/ls/local/d", mode=p.CHANGE_ACL).handle
        owner.do(p.SetAcl, directory, acl=only)

        assert other.look("/ls/local/d/f").contents == b"x"
        with pytest.raises(AclRefuses):
            other.open("/ls/local/d", R)

    def test_2_3_an_ephemeral_file_goes_when_nobody_has_it_open(self) -> None:
        """CH-11."""
        model = Model()
        first, second = Client(model), Client(model)
        one = first.make(F, is_ephemeral=True)
        two = second.make(F)

        first.do(p.CloseNode, one)
        assert first.look(F).stat is not None
        settle(first, second)
        second.do(p.CloseNode, two)
        settle(first, second)

        assert first.look(F).stat is None

    def test_2_3_an_ephemeral_directory_goes_when_it_is_empty_besides(self) -> None:
        """CH-11."""
        client = Client(Model())
        directory = client.make("/ls/local/d", is_directory=True, is_ephemeral=True)
        inside = client.make("/ls/local/d/f", is_ephemeral=True)

        client.do(p.CloseNode, directory)
        assert client.look("/ls/local/d").stat is not None
        client.do(p.CloseNode, inside)
        settle(client)

        assert client.look("/ls/local/d").stat is None

    def test_2_3_an_ephemeral_file_goes_with_the_session_of_its_last_opener(self) -> None:
        """CH-11: it shows others that a client is alive."""
        model = Model()
        dead, alive = Client(model), Client(model)
        dead.make(F, is_ephemeral=True)

        keep(model, 14.0, alive)

        assert alive.look(F).stat is None

    def test_2_3_three_lists_are_inherited_and_are_files_of_the_cell(self) -> None:
        """CH-12."""
        model = Model()
        ada, bob = Client(model, "ada"), Client(model, "bob")
        ada.make("/ls/local/acl/ours", b"ada\ncarl\n")
        ada.make("/ls/local/d", is_directory=True, acl=p.Acl("", "ours", "ours"))
        ada.make("/ls/local/d/f", b"x")

        assert bob.look("/ls/local/d/f").contents == b"x"
        with pytest.raises(AclRefuses, match="acl/ours"):
            bob.open("/ls/local/d/f", RW)
        with pytest.raises(AclRefuses):
            bob.make("/ls/local/d/g")
        assert Client(model, "carl").open("/ls/local/d/f", RW).handle

    def test_2_3_whoever_is_added_to_the_list_may(self) -> None:
        model = Model()
        ada, bob = Client(model, "ada"), Client(model, "bob")
        ours = ada.make("/ls/local/acl/ours", b"ada\n")
        ada.make(F, acl=p.Acl("ours", "ours", "ours"))

        ada.do(p.SetContents, ours, contents=b"ada\nbob\n")

        assert bob.open(F).handle.mode == RW

    def test_2_3_a_list_that_is_not_there_refuses_all_but_the_one_who_runs_the_cell(self) -> None:
        model = Model(Settings(superuser="root"))
        Client(model, "ada").make(F, acl=p.Acl("none", "none", "none"))

        with pytest.raises(AclRefuses):
            Client(model, "ada").open(F, R)
        assert Client(model, "root").open(F, R).handle

    def test_2_3_four_numbers_and_a_checksum(self) -> None:
        """CH-13."""
        model = Model()
        client = Client(model)
        handle = client.make(F, b"x", mode=RW | p.CHANGE_ACL)
        before = client.look(F).stat
        settle(client)

        contents = model.begin(client.on(p.SetContents, handle, contents=b"y"))
        settle(client)
        lists = model.begin(client.on(p.SetAcl, handle, acl=p.Acl("r", "", "")))
        settle(client)

        after = model.cell.state.nodes[F]
        assert before is not None
        assert model.outcome(contents) == before.content_generation + 1
        assert model.outcome(lists) == before.acl_generation + 1
        assert before.checksum == checksum_of(b"x") and after.checksum == checksum_of(b"y")
        assert before.instance == after.instance and after.lock_generation == 0

    def test_2_3_a_node_made_anew_has_a_higher_instance_and_no_number_goes_down(self) -> None:
        """CH-13, L2: a fence by (path, generation) stays good where a lock is deleted."""
        model = Model()
        client = Client(model)
        first = client.make(F)
        sequencers = []
        for _ in range(3):
            sequencers.append(parse(client.acquire(first)))
            client.do(p.ReleaseLock, first)
        before = model.cell.state.nodes[F].instance
        client.do(p.DeleteNode, first)

        second = client.make(F)
        sequencers.append(parse(client.acquire(second)))

        assert model.cell.state.nodes[F].instance > before
        generations = [sequencer.generation for sequencer in sequencers]
        assert generations == sorted(set(generations))
        assert model.cell.state.nodes[F].content_generation > 1

    def test_4_5_a_file_has_at_most_256_kib(self) -> None:
        """CH-16."""
        client = Client(Model())
        handle = client.make(F, b"x" * 256 * 1024)

        with pytest.raises(LimitReached, match="262,144"):
            client.do(p.SetContents, handle, contents=b"x" * (256 * 1024 + 1))
        with pytest.raises(LimitReached):
            client.make("/ls/local/g", b"x" * (256 * 1024 + 1))

    def test_4_5_nodes_bytes_handles_and_sessions_have_limits(self) -> None:
        """CH-16: what a team may not do to all others by accident."""
        limits = Settings(nodes_max=5, contents_bytes_max=10, handles_max=3, sessions_max=2)
        model = Model(limits)
        client = Client(model)
        client.make(F, b"x" * 8)

        with pytest.raises(LimitReached, match="10"):
            client.make("/ls/local/g", b"xxx")
        client.make("/ls/local/g")
        client.make("/ls/local/h")
        with pytest.raises(LimitReached, match="3"):
            client.open(F)
        other = Client(model)
        with pytest.raises(LimitReached, match="5 nodes"):
            other.make("/ls/local/i")
        with pytest.raises(LimitReached, match="2 sessions"):
            Client(model)


class TestHandles:
    def test_2_3_a_handle_cannot_be_made_up(self) -> None:
        """CH-14."""
        model = Model()
        client = Client(model)
        handle = client.make(F)
        read_only = client.open(F, R).handle

        for forged in (
            changed(handle, number=99),
            changed(read_only, mode=RW),
            changed(handle, path="/ls/local/g"),
            changed(handle, epoch=0),
            changed(handle, lock_delay_s=1.0),
        ):
            with pytest.raises(HandleInvalid):
                client.do(p.SetContents, forged, contents=b"mine")

    def test_2_3_a_handle_of_another_session_is_not_ours(self) -> None:
        """CH-14."""
        model = Model()
        ours, theirs = Client(model), Client(model)
        handle = theirs.make(F)

        with pytest.raises(HandleInvalid):
            ours.do(p.SetContents, handle, contents=b"mine")

    def test_2_6_a_handle_belongs_to_an_instance(self) -> None:
        """CH-15, L6."""
        model = Model()
        client = Client(model)
        old, other = client.make(F), client.open(F).handle
        client.do(p.DeleteNode, other)
        client.make(F, b"new")

        for kind in (p.SetContents, p.AcquireLock, p.DeleteNode, p.GetSequencer):
            with pytest.raises(HandleInvalid, match="deleted"):
                client.do(kind, old)
        with pytest.raises(HandleInvalid):
            client.look(F, old)
        client.do(p.CloseNode, old)

    def test_2_6_open_says_whether_it_made_the_node(self) -> None:
        """CH-24."""
        client = Client(Model())

        assert client.open(F, create=p.MAY_CREATE).created
        assert not client.open(F, create=p.MAY_CREATE).created
        with pytest.raises(NodeExists):
            client.open(F, create=p.MUST_CREATE)
        with pytest.raises(NoSuchNode):
            client.open("/ls/local/g")
        with pytest.raises(NodeNotDirectory):
            client.open(F, create=p.MAY_CREATE, is_directory=True)

    def test_2_6_close_never_fails(self) -> None:
        """CH-24."""
        client = Client(Model())
        handle = client.make(F)

        client.do(p.CloseNode, handle)
        client.do(p.CloseNode, handle)
        client.do(p.CloseNode, changed(handle, number=77, check=b"no"))

        with pytest.raises(HandleInvalid):
            client.do(p.SetContents, handle)

    def test_2_6_poison_ends_what_waits_and_what_comes(self) -> None:
        """CH-24."""
        model = Model()
        holder, waiter = Client(model), Client(model)
        holder.acquire(holder.make(F))
        handle = waiter.make(F)
        waiting = model.begin(waiter.on(p.AcquireLock, handle, wait_s=30.0))

        waiter.do(p.PoisonHandle, handle)

        with pytest.raises(HandleInvalid, match="poisoned"):
            model.outcome(waiting)
        with pytest.raises(HandleInvalid, match="poisoned"):
            waiter.do(p.GetSequencer, handle)
        waiter.do(p.CloseNode, handle)

    def test_2_6_set_contents_under_a_generation_is_a_compare_and_swap(self) -> None:
        """CH-24."""
        model = Model()
        client = Client(model)
        handle = client.make(F, b"x")
        generation = client.open(F).stat.content_generation

        assert client.do(p.SetContents, handle, contents=b"y", if_generation=generation) > 1
        with pytest.raises(GenerationChanged):
            client.do(p.SetContents, handle, contents=b"z", if_generation=generation)

        assert client.look(F).contents == b"y"

    def test_2_6_a_file_is_written_by_its_path_as_through_a_handle(self) -> None:
        """CH-24: the same checks, in one call; nothing is left open."""
        model = Model()
        ada, bob = Client(model, "ada"), Client(model, "bob")
        ada.make("/ls/local/acl/ours", b"ada\n")
        ada.do(p.CloseNode, ada.make(F, b"x", acl=p.Acl("", "ours", "ours")))
        generation = bob.look(F).stat.content_generation
        settle(ada, bob)

        call = model.begin(ada.putting(F, b"y", if_generation=generation))
        assert model.is_waiting(call), "bob may have it cached"
        settle(ada, bob)

        assert model.outcome(call) == generation + 1 and bob.look(F).contents == b"y"
        with pytest.raises(GenerationChanged):
            model.call(ada.putting(F, b"z", if_generation=generation))
        with pytest.raises(AclRefuses):
            model.call(bob.putting(F, b"z"))
        with pytest.raises(NoSuchNode):
            model.call(ada.putting("/ls/local/nowhere", b"z"))
        with pytest.raises(NodeIsDirectory):
            model.call(ada.putting("/ls/local", b"z"))
        assert all(
            F not in h.handle.path for live in model.cell.sessions for h in live.handles.values()
        )

    def test_2_6_a_directory_has_no_contents_and_is_not_deleted_with_children(self) -> None:
        """CH-24."""
        client = Client(Model())
        directory = client.make("/ls/local/d", is_directory=True)
        client.make("/ls/local/d/f")

        with pytest.raises(NodeIsDirectory):
            client.do(p.SetContents, directory, contents=b"x")
        with pytest.raises(NodeHasChildren):
            client.do(p.DeleteNode, directory)

    def test_2_6_what_was_not_opened_for_is_refused(self) -> None:
        client = Client(Model())
        client.make(F)
        reader, writer = client.open(F, R).handle, client.open(F, W).handle

        for kind in (p.SetContents, p.DeleteNode, p.SetAcl):
            with pytest.raises(AclRefuses):
                client.do(kind, reader)
        with pytest.raises(AclRefuses):
            client.look(F, writer)

    def test_4_3_a_listing_brings_a_hundred_small_files_with_it(self) -> None:
        """CH-44: a job's thousand workers look each other up by names."""
        client = Client(Model())
        client.make("/ls/local/d", is_directory=True)
        for number in range(120):
            client.make(f"/ls/local/d/{number:03}", str(number).encode())
        client.make("/ls/local/d/000-large", b"x" * 5000)

        ask = p.ListNode(client.session, client.epoch, "/ls/local/d", with_contents=True)
        listing: p.Children = client.model.call(ask)

        assert len(listing.names) == 121 and list(listing.names) == sorted(listing.names)
        assert len(listing.files) == 99 and all(seen.cachable for seen in listing.files)
        assert listing.files[7].contents == b"7"


class TestLocks:
    def test_2_4_one_exclusive_or_many_shared(self) -> None:
        """CH-17, L1."""
        model = Model()
        clients = [Client(model) for _ in range(3)]
        a, b, c = (client.make(F) for client in clients)

        clients[0].acquire(a, is_shared=True)
        clients[1].acquire(b, is_shared=True)
        with pytest.raises(LockHeld, match="session 1"):
            clients[2].acquire(c)
        clients[0].do(p.ReleaseLock, a)
        clients[1].do(p.ReleaseLock, b)
        clients[2].acquire(c)
        with pytest.raises(LockHeld):
            clients[0].acquire(a, is_shared=True)

    def test_2_4_two_handles_of_one_session_exclude_each_other(self) -> None:
        """CH-29: two threads of a program are two."""
        client = Client(Model())
        one, two = client.make(F), client.open(F).handle
        client.acquire(one)

        with pytest.raises(LockHeld):
            client.acquire(two)

    def test_2_4_a_directory_is_a_lock_too(self) -> None:
        """CH-17: each node."""
        client = Client(Model())

        assert client.acquire(client.make("/ls/local/d", is_directory=True)).startswith("/ls/")

    def test_2_4_locks_are_advisory(self) -> None:
        """CH-18: neither does holding it allow anything, nor does it forbid anything."""
        model = Model()
        holder, other = Client(model), Client(model)
        holder.acquire(holder.make(F))

        other.do(p.SetContents, other.make(F), contents=b"mine all the same")

        assert other.look(F).contents == b"mine all the same"

    def test_2_4_taking_it_in_either_mode_needs_the_right_to_write(self) -> None:
        """CH-19."""
        client = Client(Model())
        client.make(F)
        reader = client.open(F, R).handle

        for is_shared in (False, True):
            with pytest.raises(BadLockRequest, match="to write"):
                client.acquire(reader, is_shared=is_shared)

    def test_2_4_a_sequencer_names_the_lock_its_mode_and_its_generation(self) -> None:
        """CH-20; and a file system reads its fence off it without us."""
        client = Client(Model())
        handle = client.make(F)

        sequencer = client.acquire(handle)
        name, generation, mode = sequencer.split(":")

        assert (name, int(generation), mode) == (F, 1, "exclusive")
        assert client.do(p.GetSequencer, handle) == sequencer
        assert client.model.call(p.CheckSequencer(sequencer))
        assert client.model.call(p.CheckSequencer(f"{name}:{generation}"))  # a fence alone

    def test_2_4_the_sequencer_of_an_ex_holder_is_outdated(self) -> None:
        """CH-20: a delayed write of an ex-holder is refused."""
        model = Model()
        first, second = Client(model), Client(model)
        old = first.acquire(a := first.make(F))
        first.do(p.ReleaseLock, a)

        assert not model.call(p.CheckSequencer(old))
        new = second.acquire(second.make(F))

        assert model.call(p.CheckSequencer(new)) and not model.call(p.CheckSequencer(old))
        assert parse(old).fence < parse(new).fence
        with pytest.raises(HandleInvalid):
            first.do(p.GetSequencer, a)

    @pytest.mark.parametrize("text", NO_SEQUENCERS)
    def test_2_4_what_is_no_sequencer_is_not_good(self, text: str) -> None:
        client = Client(Model())
        client.acquire(client.make(F))

        assert not client.model.call(p.CheckSequencer(text))

    def test_2_6_calls_under_a_sequencer_fail_when_it_is_outdated(self) -> None:
        """CH-24 SetSequencer."""
        client = Client(Model())
        lock, file = client.make(F), client.make("/ls/local/g")
        sequencer = client.acquire(lock)
        client.do(p.SetContents, file, contents=b"1", under=sequencer)
        client.do(p.ReleaseLock, lock)

        with pytest.raises(SequencerInvalid):
            client.do(p.SetContents, file, contents=b"2", under=sequencer)

        assert client.look("/ls/local/g").contents == b"1"

    def test_2_4_after_a_release_the_lock_is_free_at_once(self) -> None:
        """CH-21."""
        model = Model()
        first, second = Client(model), Client(model)
        handle = first.make(F, lock_delay_s=60.0)
        first.acquire(handle)

        first.do(p.ReleaseLock, handle)

        assert second.acquire(second.make(F))

    def test_2_4_after_its_holder_failed_the_lock_waits_for_the_delay(self) -> None:
        """CH-21, L3."""
        model = Model()
        dead, heir = Client(model), Client(model)
        dead.acquire(dead.make(F, lock_delay_s=20.0))
        handle = heir.make(F)

        keep(model, 12.5, heir)

        assert model.records(r.SessionEnded) == [r.SessionEnded(dead.session, failed=True)]
        with pytest.raises(LockHeld, match="lock-delay is over in 2"):
            heir.acquire(handle)
        keep(model, 20.5, heir)
        assert heir.acquire(handle)

    def test_2_4_whoever_waits_gets_it_when_the_delay_is_over(self) -> None:
        """CH-21."""
        model = Model()
        dead, heir = Client(model), Client(model)
        dead.acquire(dead.make(F, lock_delay_s=20.0))
        waiting = model.begin(heir.on(p.AcquireLock, heir.make(F), wait_s=100.0))

        keep(model, 31.0, heir)
        assert model.is_waiting(waiting)
        keep(model, 3.0, heir)

        assert parse(model.outcome(waiting).sequencer).generation == 2

    def test_2_4_the_delay_is_at_most_a_minute(self) -> None:
        """CH-21: a faulty client must not keep a resource away for long."""
        with pytest.raises(BadLockRequest, match="60"):
            Client(Model()).make(F, lock_delay_s=61.0)

    def test_2_4_deleting_the_node_does_not_get_round_the_delay(self) -> None:
        """L3: whoever makes it anew would have its lock at once."""
        model = Model()
        dead, heir = Client(model), Client(model)
        dead.acquire(dead.make(F, lock_delay_s=20.0, is_ephemeral=True))
        handle = heir.open(F).handle
        with pytest.raises(LockHeld):
            heir.do(p.DeleteNode, handle)

        keep(model, 13.0, heir)
        with pytest.raises(LockHeld, match="lock-delay"):
            heir.do(p.DeleteNode, handle)
        heir.do(p.CloseNode, handle)
        keep(model, 1.0, heir)

        assert heir.look(F).stat is not None
        keep(model, 20.0, heir)
        assert heir.look(F).stat is None

    def test_2_4_waiters_are_served_in_the_order_of_coming(self) -> None:
        model = Model()
        clients = [Client(model) for _ in range(4)]
        handles = [client.make(F) for client in clients]
        clients[0].acquire(handles[0], is_shared=True)
        writer = model.begin(clients[1].on(p.AcquireLock, handles[1], wait_s=60.0))
        reader = model.begin(clients[2].on(p.AcquireLock, handles[2], wait_s=60.0, is_shared=True))

        assert model.is_waiting(reader)  # else readers would starve the writer
        clients[0].do(p.ReleaseLock, handles[0])
        assert not model.is_waiting(writer) and model.is_waiting(reader)
        clients[1].do(p.CloseNode, handles[1])

        assert model.outcome(reader)

    def test_2_4_a_wait_ends_with_its_time_and_those_behind_go_on(self) -> None:
        model = Model()
        clients = [Client(model) for _ in range(3)]
        handles = [client.make(F) for client in clients]
        clients[0].acquire(handles[0], is_shared=True)
        writer = model.begin(clients[1].on(p.AcquireLock, handles[1], wait_s=3.0))
        reader = model.begin(clients[2].on(p.AcquireLock, handles[2], wait_s=60.0, is_shared=True))

        keep(model, 4.0, *clients)

        with pytest.raises(LockHeld):
            model.outcome(writer)
        assert model.outcome(reader)

    def test_2_4_a_handle_that_is_closed_lets_its_lock_go(self) -> None:
        model = Model()
        first, second = Client(model), Client(model)
        first.acquire(handle := first.make(F, lock_delay_s=60.0))

        first.do(p.CloseNode, handle)

        assert second.acquire(second.make(F))

    def test_2_6_the_recipe_for_a_primary(self) -> None:
        """CH-23."""
        model = Model()
        both = [Client(model), Client(model)]
        events = p.CONTENTS_CHANGED
        handles = [client.make("/ls/local/primary", events=events) for client in both]
        settle(*both)

        sequencer = both[0].acquire(handles[0])
        with pytest.raises(LockHeld):
            both[1].acquire(handles[1])
        both[0].do(p.SetContents, handles[0], contents=b"h1:80")
        settle(*both)

        assert both[1].kinds() == [p.CONTENTS_CHANGED]
        assert both[1].look("/ls/local/primary").contents == b"h1:80"
        assert model.call(p.CheckSequencer(sequencer))


class TestEvents:
    def test_2_5_contents_children_locks_and_invalid_handles(self) -> None:
        """CH-25."""
        model = Model()
        watcher, actor = Client(model), Client(model)
        everything = 63
        watcher.make("/ls/local/d", is_directory=True, events=everything)
        own = watcher.make("/ls/local/d/f", events=everything)
        handle = actor.open("/ls/local/d/f").handle
        settle(watcher, actor)
        watcher.events.clear()

        actor.do(p.SetContents, handle, contents=b"x")
        actor.acquire(handle)
        actor.do(p.ReleaseLock, handle)
        watcher.acquire(own)
        with pytest.raises(LockHeld):
            actor.acquire(handle)
        watcher.do(p.ReleaseLock, own)
        actor.do(p.DeleteNode, handle)
        settle(watcher, actor)

        assert sorted(set(watcher.kinds())) == sorted(
            [p.CONTENTS_CHANGED, p.CHILDREN_CHANGED, p.HANDLE_INVALID, p.LOCK_ACQUIRED,
             p.LOCK_WANTED]
        )  # fmt: skip

    def test_2_5_only_who_asked_is_told(self) -> None:
        """CH-25."""
        model = Model()
        watcher, actor = Client(model), Client(model)
        watcher.make(F, events=p.HANDLE_INVALID)

        actor.do(p.SetContents, actor.make(F), contents=b"x")
        settle(watcher, actor)

        assert watcher.kinds() == []

    def test_2_5_an_event_comes_after_the_fact(self) -> None:
        """CH-26: a read that follows it sees that state or a newer one."""
        model = Model()
        watcher, actor = Client(model), Client(model)
        watcher.make(F, b"old", events=p.CONTENTS_CHANGED)
        watcher.look(F)
        handle = actor.make(F)
        settle(watcher, actor)

        call = model.begin(actor.on(p.SetContents, handle, contents=b"new"))
        assert model.is_waiting(call) and watcher.kinds() == []
        assert watcher.look(F).contents == b"old"
        settle(watcher, actor)

        assert watcher.kinds() == [p.CONTENTS_CHANGED]
        assert watcher.look(F).contents == b"new"


class TestCaching:
    def test_2_7_a_change_waits_until_every_cacher_has_acknowledged(self) -> None:
        """CH-28, L4."""
        model = Model()
        reader, writer = Client(model), Client(model)
        handle = writer.make(F, b"old")
        assert reader.look(F).cachable
        reader.keep_alive()

        call = model.begin(writer.on(p.SetContents, handle, contents=b"new"))
        assert model.is_waiting(call)
        reader.hear()
        assert [event.kind for event in reader.events] == [p.INVALIDATE]
        assert reader.events[0].path == F and model.is_waiting(call)
        reader.keep_alive()

        assert model.outcome(call) == 2

    def test_2_7_a_change_waits_at_most_for_the_lease_of_a_silent_cacher(self) -> None:
        """CH-28."""
        model = Model()
        silent, writer = Client(model), Client(model)
        handle = writer.make(F, b"old")
        silent.look(F)

        call = model.begin(writer.on(p.SetContents, handle, contents=b"new"))
        keep(model, 11.0, writer)
        assert model.is_waiting(call)
        keep(model, 2.0, writer)

        assert model.outcome(call) == 2

    def test_2_7_meanwhile_reads_go_on_and_nobody_caches(self) -> None:
        """CH-28."""
        model = Model()
        cacher, writer, reader = Client(model), Client(model), Client(model)
        handle = writer.make(F, b"old")
        cacher.look(F)
        call = model.begin(writer.on(p.SetContents, handle, contents=b"new"))

        seen = reader.look(F)

        assert model.is_waiting(call)
        assert seen.contents == b"old" and not seen.cachable
        settle(cacher, writer, reader)
        assert model.outcome(call) == 2 and reader.look(F).cachable

    def test_2_7_absence_is_cached_too(self) -> None:
        """CH-27, CH-45: programs that open a missing file in a loop."""
        model = Model()
        reader, writer = Client(model), Client(model)
        seen = reader.look(F)

        call = model.begin(writer.opening(F, create=p.MAY_CREATE))

        assert seen.stat is None and seen.cachable
        assert model.is_waiting(call)
        settle(reader, writer)
        assert model.outcome(call).created

    def test_2_7_the_names_in_a_directory_are_cached(self) -> None:
        """CH-27."""
        model = Model()
        reader, writer = Client(model), Client(model)
        names = model.call(p.ListNode(reader.session, reader.epoch, "/ls/local"))

        call = model.begin(writer.opening(F, create=p.MAY_CREATE))

        assert names.cachable and names.names == ("acl",)
        assert model.is_waiting(call)
        settle(reader, writer)
        assert model.outcome(call).created

    def test_2_7_two_changes_of_one_node_go_one_after_the_other(self) -> None:
        model = Model()
        cacher, one, two = Client(model), Client(model), Client(model)
        a, b = one.make(F, b"0"), two.make(F)
        cacher.look(F)
        cas = {"if_generation": 1}

        first = model.begin(one.on(p.SetContents, a, contents=b"1", **cas))
        second = model.begin(two.on(p.SetContents, b, contents=b"2", **cas))
        settle(cacher, one, two)

        assert model.outcome(first) == 2
        with pytest.raises(GenerationChanged):
            model.outcome(second)
        assert cacher.look(F).cachable

    def test_2_7_a_change_that_is_given_up_leaves_the_node_cachable(self) -> None:
        model = Model()
        cacher, writer = Client(model), Client(model)
        handle = writer.make(F, b"0")
        cacher.look(F)
        call = model.begin(writer.on(p.SetContents, handle, contents=b"1"))

        model.call(p.EndSession(writer.session, writer.epoch))

        with pytest.raises(SessionExpired):
            model.outcome(call)
        assert not cacher.look(F).cachable  # an invalidation is still on its way to it
        settle(cacher)
        seen = cacher.look(F)
        assert seen.cachable and seen.contents == b"0"


class TestSessions:
    def test_2_8_a_keep_alive_is_held_until_the_lease_is_nearly_over(self) -> None:
        """CH-30, CH-31."""
        model = Model()
        client = Client(model)
        client.make(F)

        assert client.keep_alive() is None
        model.wait(8.5)
        assert client.hear() is None
        model.wait(0.75)

        kept = client.hear()
        assert kept is not None and kept.lease_s == pytest.approx(21.0, abs=0.5)

    def test_2_8_a_session_whose_client_is_silent_ends_and_not_before(self) -> None:
        """CH-30, L5."""
        model = Model()
        client = Client(model)

        model.wait(12.0)
        assert model.cell.sessions.live
        model.wait(0.5)

        assert not model.cell.sessions.live
        with pytest.raises(SessionExpired):
            client.make(F)

    def test_2_8_a_keep_alive_returns_early_with_events(self) -> None:
        """CH-32."""
        model = Model()
        watcher, actor = Client(model), Client(model)
        watcher.make(F, events=p.CONTENTS_CHANGED)
        watcher.keep_alive()

        actor.do(p.SetContents, actor.make(F), contents=b"x")

        kept = watcher.hear()
        assert kept is not None and [e.kind for e in kept.events] == [p.CONTENTS_CHANGED]
        assert kept.lease_s > 0

    def test_2_8_a_session_is_not_kept_without_acknowledging(self) -> None:
        """CH-32: who does not acknowledge gets no longer lease."""
        model = Model()
        stubborn, actor = Client(model), Client(model)
        handle = actor.make(F)
        stubborn.look(F)
        stubborn.keep_alive()
        call = model.begin(actor.on(p.SetContents, handle, contents=b"x"))
        stubborn.hear()
        for _ in range(52):
            settle(actor)
            if stubborn.session in model.cell.sessions.live:
                again = model.begin(p.KeepAlive(stubborn.session, stubborn.epoch, 0))
                kept = model.outcome(again)
                assert kept.lease_s == 0.0 and kept.events
            model.wait(0.25)

        assert model.outcome(call) == 2
        assert stubborn.session not in model.cell.sessions.live

    def test_2_8_a_lost_answer_is_told_again(self) -> None:
        model = Model()
        watcher, actor = Client(model), Client(model)
        watcher.make(F, events=p.CONTENTS_CHANGED)
        watcher.keep_alive()
        actor.do(p.SetContents, actor.make(F), contents=b"x")
        watcher.kept = None  # the answer got lost

        watcher.keep_alive()

        assert watcher.kinds() == [p.CONTENTS_CHANGED]

    def test_2_8_leases_get_long_under_load_and_the_log_says_so_first(self) -> None:
        """CH-31, §3.1; and the next leader waits for the long ones (§2.9 step 3)."""
        model = Model(Settings(load_sessions=3))
        clients = [Client(model) for _ in range(4)]
        model.wait(0.25)

        keep(model, 10.0, *clients)
        lease = model.cell.sessions.lease_s
        assert lease == 60.0 and model.records(r.LeaseSet)[-1] == r.LeaseSet(60.0)
        model.crash()

        ends = [live.lease_end_s - model.now_s for live in model.cell.sessions]
        assert min(ends) >= 60.0

    def test_2_8_a_short_lease_is_logged_only_when_no_long_one_is_left(self) -> None:
        model = Model(Settings(load_sessions=3))
        clients = [Client(model) for _ in range(4)]
        keep(model, 20.0, *clients)
        for client in clients[:3]:
            model.call(p.EndSession(client.session, client.epoch))
        stayer = clients[3]
        stayer.make(F)

        keep(model, 20.0, stayer)
        assert model.cell.sessions.lease_s == 12.0
        assert model.records(r.LeaseSet)[-1] == r.LeaseSet(60.0)
        keep(model, 60.0, stayer)

        assert model.records(r.LeaseSet)[-1] == r.LeaseSet(12.0)

    def test_2_8_a_leader_that_lags_again_and_again_gives_long_leases(self) -> None:
        """CH-31: and not one that was stopped once."""
        from mrstream.lock.cell.events import Tick

        model = Model()
        for lease_s in (12.0, 12.0, 60.0):
            model.now_s += 2.0
            model.event(Tick(late_s=2.0))
            assert model.cell.sessions.lease_s == lease_s

    def test_2_8_an_idle_session_is_ended(self) -> None:
        """CH-36."""
        model = Model()
        idle, busy = Client(model), Client(model)
        busy.make(F)
        last = None
        for _ in range(4 * 62):
            settle(busy)
            if idle.kept is None and (last is None or not last.ended):
                idle.keep_alive()
            model.wait(0.25)
            last = idle.hear() or last

        assert last is not None and last.ended
        assert list(model.cell.sessions.live) == [busy.session]

    def test_2_8_a_leader_that_stood_still_blames_nobody(self) -> None:
        """CH-38: clocks of leases stand still while there is no leader."""
        from mrstream.lock.cell.events import Tick

        model = Model()
        client = Client(model)
        client.make(F)

        model.now_s += 40.0
        model.event(Tick(late_s=40.0))

        assert client.session in model.cell.sessions.live

    def test_2_8_a_leader_that_runs_now_and_then_counts_the_moments_in_which_it_does(self) -> None:
        """CH-38: what it stood still for, in small pieces, is no time of its clients."""
        from mrstream.lock.cell.events import Tick

        model = Model()
        client = Client(model)
        client.make(F)

        def crowded(seconds: float) -> None:
            for _ in range(round(seconds)):
                model.now_s += 1.0
                model.event(Tick(late_s=0.75))

        crowded(40.0)
        assert client.session in model.cell.sessions.live, "ten seconds of its own"
        crowded(10.0)
        assert client.session not in model.cell.sessions.live

    def test_2_8_a_session_asked_for_twice_is_one(self) -> None:
        model = Model()

        one, two = Client(model, nonce=7), Client(model, nonce=7)

        assert one.session == two.session and len(model.records(r.SessionOpened)) == 1

    def test_4_4_every_session_is_in_the_log_from_its_beginning(self) -> None:
        """§4.4 tells what came of logging them at their first change only."""
        model = Model()
        client = Client(model)

        model.crash()

        assert client.session in model.cell.sessions.live


class TestRepeats:
    """F5: a call has effect at most once, over any number of leaders."""

    def test_a_call_that_comes_again_is_answered_as_before(self) -> None:
        model = Model()
        client = Client(model)
        opening = client.opening(F, create=p.MUST_CREATE)
        first = model.call(opening)
        writing = client.on(p.SetContents, first.handle, contents=b"x", if_generation=1)

        assert model.call(opening) == first
        assert model.call(writing) == model.call(writing) == 2
        assert len(model.records(r.ContentsSet)) == 1
        putting = client.putting(F, b"y", if_generation=2)
        assert model.call(putting) == model.call(putting) == 3
        assert len(model.records(r.ContentsSet)) == 2

    def test_a_refusal_is_remembered_too(self) -> None:
        model = Model()
        holder, other = Client(model), Client(model)
        holder.acquire(handle := holder.make(F))
        trying = other.on(p.AcquireLock, other.make(F))
        with pytest.raises(LockHeld):
            model.call(trying)
        holder.do(p.ReleaseLock, handle)

        with pytest.raises(LockHeld):
            model.call(trying)  # a late repeat must not take a lock that nobody waits for

    def test_a_waiting_call_that_comes_again_takes_the_place_of_the_first(self) -> None:
        model = Model()
        holder, other = Client(model), Client(model)
        holder.acquire(handle := holder.make(F))
        asking = other.on(p.AcquireLock, other.make(F), wait_s=60.0)
        first, second = model.begin(asking), model.begin(asking)
        third = model.begin(asking)

        holder.do(p.ReleaseLock, handle)

        for replaced in (first, second):
            with pytest.raises(ClusterError, match="again"):
                model.outcome(replaced)
        assert model.outcome(third).sequencer.endswith(":2:exclusive")

    def test_what_the_last_leader_did_is_not_done_again(self) -> None:
        model = Model()
        client = Client(model)
        opening = client.opening(F, create=p.MUST_CREATE)
        handle = model.call(opening).handle
        writing = client.on(p.SetContents, handle, contents=b"x", if_generation=1)
        putting = client.putting(F, b"y", if_generation=2)
        taking = client.on(p.AcquireLock, handle)
        model.call(writing)
        model.call(putting)
        taken = model.call(taking)
        deleting = client.on(p.DeleteNode, client.make("/ls/local/g"))
        model.call(deleting)
        model.crash()
        with pytest.raises(WrongEpoch):
            model.call(writing)
        client.follow()
        settle(client)

        epoch = {"epoch": client.epoch}
        again = model.call(changed(opening, **epoch))
        assert again.created and again.handle.instance == handle.instance
        assert model.call(changed(writing, **epoch)) == 2
        assert model.call(changed(putting, **epoch)) == 3
        assert model.call(changed(taking, **epoch)) == taken
        assert model.call(changed(deleting, **epoch)) is None

    def test_a_call_from_before_what_is_remembered_is_refused(self) -> None:
        model = Model()
        client = Client(model)
        handle = client.make(F)
        old = client.on(p.SetContents, handle, contents=b"old")
        for number in range(300):
            client.do(p.SetContents, handle, contents=str(number).encode())

        with pytest.raises(BadLockRequest, match="too old"):
            model.call(old)
        with pytest.raises(BadLockRequest, match="no number"):
            model.call(changed(old, number=0))


def test_waits_is_what_the_model_says_of_a_call_without_an_answer() -> None:
    model = Model()
    holder, other = Client(model), Client(model)
    holder.acquire(holder.make(F))

    with pytest.raises(Waits):
        other.acquire(other.make(F), wait_s=5.0)
