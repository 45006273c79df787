"""What holds for every store, whatever keeps it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from corpusmill.errors import StoreError
from corpusmill.policy import Budget
from corpusmill.store import Cost, Rates, Release, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.store import Put, Spend, Store

    Opened = Callable[[], Store]
    KeyOf = Callable[[str], bytes]
    PutOf = Callable[..., Put]
    Crash = Callable[..., list[str]]


def test_what_was_put_is_what_is_got(store: Store, put_of: PutOf, key_of: KeyOf) -> None:
    """Every field of an entry comes back as it was, small and large bodies alike."""
    owner = store.join("run").owner
    puts = [
        put_of(
            "small", body=b"{}", ceiling=None, finish_reason=None, prompt_tokens=None, completion_tokens=None
        ),
        put_of(
            "large",
            body=b'{"text": "' + b"lorem ipsum \xf0\x9f\x98\x80 " * 999 + b'"}',
            ceiling=99,
            choices=3,
        ),
        put_of("bytes", body=bytes(range(256)) * 9, created_at=1.5, kind="rejected"),
        put_of("nul", body=b"\0a\0", finish_reason="l\u00e4nge"),
    ]
    store.write(owner, puts=puts)
    found = store.get_many([*(put.entry.key for put in puts), key_of("absent")])
    assert found == {put.entry.key: [put.entry] for put in puts}


def test_a_put_replaces_nothing_and_the_oldest_comes_first(
    store: Store, put_of: PutOf, key_of: KeyOf
) -> None:
    """A key holds all its answers in the order in which they were put."""
    owner = store.join("run").owner
    for ceiling in (40, 10, 90):
        store.write(owner, puts=[put_of("a", ceiling=ceiling)])
    assert [entry.ceiling for entry in store.get_many([key_of("a")])[key_of("a")]] == [40, 10, 90]


def test_keys_come_in_any_number_and_may_repeat(store: Store, put_of: PutOf, key_of: KeyOf) -> None:
    """Groups of all sizes are found whole, and a key that is named twice is not found twice."""
    owner = store.join("run").owner
    names = [f"row {number}" for number in range(1500)]
    store.write(owner, puts=[put_of(name) for name in names])
    for size in (0, 1, 7, 8, 9, 255, 256, 257, 1500):
        keys = [key_of(name) for name in names[:size]]
        found = store.get_many([*keys, *keys])
        assert set(found) == set(keys)
        assert all(len(entries) == 1 for entries in found.values())


def test_an_answer_of_another_process_is_seen_with_its_invocation(opened: Opened, put_of: PutOf) -> None:
    """Names that another process has introduced are read when they turn up."""
    one, other = opened(), opened()
    put = put_of("a", invocation="somebody else")
    other.write(other.join("run").owner, puts=[put])
    assert one.get_many([put.entry.key]) == {put.entry.key: [put.entry]}


def test_a_key_is_granted_to_one_owner_at_a_time(opened: Opened, key_of: KeyOf) -> None:
    """While a live owner asks, everybody else is told so, and the owner itself too."""
    one, other = opened(), opened()
    first, second = one.join("run").owner, other.join("run").owner
    want = Wanted(key_of("a"))
    assert one.write(first, wanted=[want, want]) == ["granted", "held"]
    assert other.write(second, wanted=[want]) == ["held"]
    assert one.write(first, wanted=[want]) == ["held"]


def test_a_released_claim_is_free_and_counts_nothing(opened: Opened, key_of: KeyOf) -> None:
    """An attempt that cannot have been paid leaves no mark."""
    one, other = opened(), opened()
    first, second = one.join("run").owner, other.join("run").owner
    one.write(first, wanted=[Wanted(key_of("a"))])
    one.write(first, releases=[Release(key=key_of("a"), possibly_paid=False)])
    assert other.write(second, wanted=[Wanted(key_of("a"))]) == ["granted"]
    assert other.spend("run").possibly_paid_twice == 0


@pytest.mark.parametrize("by_the_same", [True, False])
def test_asking_again_after_a_lost_answer_counts(
    opened: Opened,
    key_of: KeyOf,
    by_the_same: bool,  # noqa: FBT001 - two cases
) -> None:
    """A claim that may have been paid is granted again at once, to anybody, and counted for the one who asks."""
    one, other = opened(), opened()
    first, second = one.join("run").owner, other.join("other run").owner
    one.write(first, wanted=[Wanted(key_of("a"))])
    one.write(first, releases=[Release(key=key_of("a"), possibly_paid=True)])
    assert one.spend("run").possibly_paid_twice == 0
    asker, owner, run_key = (one, first, "run") if by_the_same else (other, second, "other run")
    assert asker.write(owner, wanted=[Wanted(key_of("a"))]) == ["granted_again"]
    assert asker.write(owner, wanted=[Wanted(key_of("a"))]) == ["held"]
    assert one.spend(run_key).possibly_paid_twice == 1


def test_the_claims_of_a_killed_process_are_taken_over_and_counted(
    store: Store, crash: Crash, key_of: KeyOf
) -> None:
    """An owner that was killed holds nothing, and what it was asking may have been paid."""
    before = store.join("run")
    assert crash("run", key_of("a"), key_of("b")) == ["granted", "granted"]
    claims = store.write(before.owner, wanted=[Wanted(key_of(name)) for name in "abc"])
    assert claims == ["granted_again", "granted_again", "granted"]
    assert store.spend("run").possibly_paid_twice == 2


def test_joining_marks_what_the_dead_were_asking(store: Store, crash: Crash, key_of: KeyOf) -> None:
    """After a kill the next owner finds marks of lost attempts, and claims that nobody holds."""
    crash("run", key_of("a"))
    assert (store.stats().claims, store.stats().lost) == (0, 1), "whoever only looks is told the same"
    owner = store.join("run").owner
    assert (store.stats().claims, store.stats().lost) == (0, 1)
    assert store.write(owner, wanted=[Wanted(key_of("a"))]) == ["granted_again"]


def test_a_first_start_outlives_a_kill_and_ends_with_the_run(store: Store, crash: Crash) -> None:
    """The run key keeps its first start and its account until it is finished."""
    crash("run")
    first = store.join("run")
    again = store.join("run")
    assert again.first_started_at == first.first_started_at
    store.write(first.owner, releases=[Release(key=b"k" * 20, possibly_paid=False, cost=Cost(attempts=3))])
    assert store.join("run").spend.attempts == 3
    store.finish("run")
    assert store.spend("run").attempts == 3
    fresh = store.join("run")
    assert fresh.first_started_at > first.first_started_at
    assert fresh.spend.attempts == 0


def test_an_answer_that_came_in_between_is_not_asked_again(
    opened: Opened, put_of: PutOf, key_of: KeyOf
) -> None:
    """Whoever looked before the answer came learns of it when claiming, if it serves the ceiling."""
    one, other = opened(), opened()
    first, second = one.join("run").owner, other.join("run").owner
    assert one.get_many([key_of("a")]) == {}
    other.write(second, puts=[put_of("a", ceiling=40, finish_reason="length")])
    assert one.write(first, wanted=[Wanted(key_of("a"), 40)]) == ["answered"]
    assert one.write(first, wanted=[Wanted(key_of("a"), 40, 2000.0)]) == ["granted"]
    assert other.write(second, wanted=[Wanted(key_of("a"), 80)]) == ["held"]


def test_a_rejected_answer_is_kept_and_serves_nobody(store: Store, put_of: PutOf, key_of: KeyOf) -> None:
    """It was paid, so it is there, but the key is asked again."""
    owner = store.join("run").owner
    store.write(owner, puts=[put_of("a", kind="rejected", body=b"not JSON")])
    assert store.get_many([key_of("a")])[key_of("a")][0].body == b"not JSON"
    assert store.write(owner, wanted=[Wanted(key_of("a"))]) == ["granted"]
    assert (store.stats().completions, store.stats().rejected) == (0, 1)


def test_a_put_ends_the_claim_unless_it_says_otherwise(store: Store, put_of: PutOf, key_of: KeyOf) -> None:
    """After an answer nobody is asking; a claim that is kept is still held."""
    owner = store.join("run").owner
    store.write(owner, wanted=[Wanted(key_of("a")), Wanted(key_of("b"))])
    store.write(owner, puts=[put_of("a"), put_of("b", kind="rejected", keeps_claim=True)])
    assert store.stats().claims == 1
    assert store.write(owner, wanted=[Wanted(key_of("b"))]) == ["held"]


def test_an_answer_from_elsewhere_takes_the_mark_of_a_lost_attempt(
    store: Store, put_of: PutOf, key_of: KeyOf
) -> None:
    """Once the key has an answer, asking it under a higher ceiling is a new request and counts nothing."""
    first, second = store.join("run").owner, store.join("run").owner
    store.write(first, wanted=[Wanted(key_of("a"))])
    store.write(first, releases=[Release(key=key_of("a"), possibly_paid=True)])
    store.write(second, puts=[put_of("a", ceiling=5, finish_reason="length")])
    assert store.write(first, wanted=[Wanted(key_of("a"), 50)]) == ["granted"]
    assert store.spend("run").possibly_paid_twice == 0


def test_one_write_puts_then_releases_then_claims(store: Store, put_of: PutOf, key_of: KeyOf) -> None:
    """What is put or released in a group is put or released for the claims of the same group."""
    owner = store.join("run").owner
    store.write(owner, wanted=[Wanted(key_of("a")), Wanted(key_of("b"))])
    claims = store.write(
        owner,
        puts=[put_of("a")],
        releases=[Release(key=key_of("b"), possibly_paid=True)],
        wanted=[Wanted(key_of("a")), Wanted(key_of("b")), Wanted(key_of("c"))],
    )
    assert claims == ["answered", "granted_again", "granted"]


def test_leaving_gives_claims_back_and_keeps_the_marks(opened: Opened, key_of: KeyOf) -> None:
    """After an orderly end only what may have been paid is remembered."""
    one, other = opened(), opened()
    first, second = one.join("run").owner, other.join("run").owner
    one.write(first, wanted=[Wanted(key_of("a")), Wanted(key_of("b"))])
    one.write(first, releases=[Release(key=key_of("b"), possibly_paid=True)])
    one.leave(first)
    claims = other.write(second, wanted=[Wanted(key_of("a")), Wanted(key_of("b"))])
    assert claims == ["granted", "granted_again"]


def test_spend_adds_up_by_run_key(store: Store, put_of: PutOf, key_of: KeyOf) -> None:
    """Answers and failed attempts of all owners of a run key come to one account, of no other."""
    first, second, other = store.join("run").owner, store.join("run").owner, store.join("other").owner
    store.write(
        first, puts=[put_of("a", cost=Cost(attempts=2, prompt_tokens=5, completion_tokens=3, usd=0.25))]
    )
    store.write(second, puts=[put_of("b", cost=Cost(prompt_tokens=1, completion_tokens=1, usd=0.5))])
    store.write(second, releases=[Release(key=key_of("c"), possibly_paid=True, cost=Cost(attempts=1))])
    store.write(other, puts=[put_of("d", cost=Cost())])
    spend: Spend = store.spend("run")
    assert (spend.requests, spend.attempts) == (2, 4)
    assert (spend.prompt_tokens, spend.completion_tokens, spend.usd) == (6, 4, 0.75)
    assert store.spend("nobody's").requests == 0


def test_a_budget_is_shared_waits_and_runs_out(store: Store, put_of: PutOf) -> None:
    """A reservation that only others block waits; one that no settlement can make fit is used up."""
    first, second = store.join("run").owner, store.join("run").owner
    budget = Budget(tokens=100)
    assert store.reserve(first, tokens=70, usd=0.0, budget=budget) == "granted"
    assert store.reserve(second, tokens=40, usd=0.0, budget=budget) == "waits"
    cost = Cost(prompt_tokens=20, completion_tokens=20, reserved_tokens=70)
    store.write(first, puts=[put_of("a", cost=cost)])
    assert store.reserve(second, tokens=40, usd=0.0, budget=budget) == "granted"
    assert store.reserve(first, tokens=61, usd=0.0, budget=budget) == "used_up"
    assert store.reserve(first, tokens=20, usd=0.0, budget=budget) == "granted"


def test_a_budget_of_money_counts_money(store: Store) -> None:
    """Dollars are reserved and given back like tokens."""
    owner = store.join("run").owner
    budget = Budget(usd=1.0)
    assert store.reserve(owner, tokens=10**9, usd=0.75, budget=budget) == "granted"
    assert store.reserve(owner, tokens=0, usd=0.5, budget=budget) == "waits"
    cost = Cost(attempts=1, reserved_tokens=10**9, reserved_usd=0.75)
    store.write(owner, releases=[Release(key=b"k" * 20, possibly_paid=False, cost=cost)])
    assert store.reserve(owner, tokens=0, usd=1.0, budget=budget) == "granted"
    assert store.reserve(owner, tokens=0, usd=1.1, budget=budget) == "used_up"


def test_the_reservation_of_a_run_that_left_blocks_nobody(opened: Opened) -> None:
    """What is set aside belongs to an owner and goes with it."""
    one, other = opened(), opened()
    first, second = one.join("run").owner, other.join("run").owner
    assert one.reserve(first, tokens=90, usd=0.0, budget=Budget(tokens=100)) == "granted"
    one.leave(first)
    assert other.reserve(second, tokens=90, usd=0.0, budget=Budget(tokens=100)) == "granted"


def test_a_quota_is_known_to_all_until_it_resets(opened: Opened) -> None:
    """A quota in the past is none; clearing forgets; identities do not mix."""
    one, other = opened(), opened()
    one.set_quota("model", resets_at=4e9, reason="100 requests a day")
    quota = other.quota("model")
    assert quota is not None
    assert (quota.resets_at, quota.reason) == (4e9, "100 requests a day")
    assert other.quota("another") is None
    other.clear_quota("model")
    assert one.quota("model") is None
    one.set_quota("model", resets_at=1.0, reason="yesterday")
    assert one.quota("model") is None


def test_the_nearest_request_is_explained_by_its_fields(store: Store, put_of: PutOf) -> None:
    """The stored request with the fewest differences is found, and they are named."""
    digest = {name: name * 40 for name in "0123456789abcdef"}
    owner = store.join("run").owner
    store.put_fields("hot", {"identity": digest["a"], "temperature": digest["1"], "top_p": digest["3"]})
    store.put_fields("cold", {"identity": digest["a"]})
    texts = {"messages[0]": digest["5"], "messages[1]": digest["6"]}
    store.write(
        owner,
        puts=[
            put_of("one", shape="hot", fields=texts, model="m"),
            put_of("two", shape="cold", fields=texts),
            put_of("three", shape="cold", fields={"messages[0]": digest["5"], "messages[1]": digest["7"]}),
        ],
    )
    asked = {"identity": digest["a"], "temperature": digest["2"], "top_p": digest["3"], **texts}
    nearest = store.nearest(asked)
    assert nearest is not None
    assert (nearest.entry.key, nearest.model) == (put_of("one").entry.key, "m")
    assert nearest.differs == ("temperature",)
    longer = store.nearest({"identity": digest["a"], **texts, "messages[2]": digest["8"]})
    assert longer is not None
    assert (longer.entry.key, longer.differs) == (put_of("two").entry.key, ("messages[2]",))


def test_an_empty_store_has_no_nearest_request(store: Store) -> None:
    """There is nothing to compare with."""
    assert store.nearest({"identity": "ab" * 20}) is None


def test_usage_is_sampled_by_model_newest_first(store: Store, put_of: PutOf) -> None:
    """Characters, tokens and script come back as they were given; entries without either are left out."""
    owner = store.join("run").owner
    store.write(
        owner,
        puts=[
            put_of("a", model="m", characters=100, script="Latn"),
            put_of("b", model="m", characters=200, script=None),
            put_of("c", model="other", characters=300),
            put_of("d", model="m"),
            put_of("e", model="m", characters=5, prompt_tokens=None),
        ],
    )
    samples = store.usage_samples(model="m")
    assert [(each.characters, each.script, each.prompt_tokens) for each in samples] == [
        (200, None, 7),
        (100, "Latn", 7),
    ]
    assert len(store.usage_samples()) == 3
    assert len(store.usage_samples(limit=1)) == 1


def test_the_identities_of_runs_are_named_the_latest_first(store: Store) -> None:
    """Each once, and none for a run that has none."""
    for run_key, label in (("1", "one"), ("2", "two"), ("3", ""), ("4", "one")):
        store.join(run_key, label=label)
    assert store.identities() == ["one", "two"]


def test_stats_count_what_is_there(store: Store, put_of: PutOf) -> None:
    """Entries by kind and model, the first and last of them, claims and runs."""
    owner = store.join("run").owner
    store.write(owner, puts=[put_of("a", model="m", created_at=5.0), put_of("b", created_at=9.0)])
    store.write(owner, puts=[put_of("c", kind="rejected", created_at=1.0)])
    stats = store.stats()
    assert (stats.completions, stats.rejected, stats.by_model) == (2, 1, {"": 1, "m": 1})
    assert (stats.oldest, stats.newest, stats.runs) == (1.0, 9.0, 1)
    assert stats.size > 0


def test_pruning_deletes_what_meets_all_conditions(store: Store, put_of: PutOf, key_of: KeyOf) -> None:
    """Age, model and kind narrow one another, and without a condition nothing is deleted."""
    owner = store.join("run").owner
    store.write(
        owner,
        puts=[
            put_of("old", created_at=1.0, model="m"),
            put_of("old other", created_at=1.0, model="other"),
            put_of("new", created_at=9.0, model="m"),
            put_of("bad", created_at=9.0, kind="rejected"),
        ],
    )
    with pytest.raises(StoreError, match="needs a condition"):
        store.prune()
    assert store.prune(older_than=5.0, model="m") == 1
    assert store.prune(rejected_only=True) == 1
    assert set(store.get_many([key_of(name) for name in ("old", "old other", "new", "bad")])) == {
        key_of("old other"),
        key_of("new"),
    }


def test_an_absurd_number_of_a_server_costs_no_answer(store: Store, put_of: PutOf, key_of: KeyOf) -> None:
    """Numbers and words that no store can hold become unknown or are mended; the answer is kept."""
    owner = store.join("run").owner
    store.write(
        owner, puts=[put_of("a", prompt_tokens=2**70, completion_tokens=-(2**70), finish_reason="\ud800")]
    )
    (entry,) = store.get_many([key_of("a")])[key_of("a")]
    assert (entry.prompt_tokens, entry.completion_tokens, entry.finish_reason) == (None, None, "?")


def test_two_threads_share_one_store(store: Store, put_of: PutOf, key_of: KeyOf) -> None:
    """One writes while the other reads, on the same object."""
    owner = store.join("run").owner
    names = [f"row {number}" for number in range(300)]
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for start in range(0, 300, 10):
                store.write(owner, puts=[put_of(name) for name in names[start : start + 10]])
        except BaseException as error:  # noqa: BLE001 - it is shown below
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    keys = [key_of(name) for name in names]
    seen = 0
    while thread.is_alive():
        now = len(store.get_many(keys))
        assert now >= seen
        seen = now
    thread.join()
    assert not failures
    assert len(store.get_many(keys)) == 300


def test_a_closed_store_says_so(opened: Opened, key_of: KeyOf) -> None:
    """Nothing is opened behind the back of whoever closed it."""
    store = opened()
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.get_many([key_of("a")])


def test_the_next_process_finds_everything_and_no_owner(opened: Opened, put_of: PutOf, key_of: KeyOf) -> None:
    """Closing leaves on behalf of the owners; what was put is there."""
    first = opened()
    owner = first.join("run").owner
    first.write(owner, wanted=[Wanted(key_of("b"))])
    first.write(owner, puts=[put_of("a")])
    first.close()
    second = opened()
    assert set(second.get_many([key_of("a")])) == {key_of("a")}
    assert second.write(second.join("run").owner, wanted=[Wanted(key_of("b"))]) == ["granted"]


def test_what_may_be_sent_is_shared(opened: Opened) -> None:
    """Two processes draw on one allowance, an endpoint's name is its own, and a refusal takes nothing."""
    one, other = opened(), opened()
    rates = Rates(requests_per_minute=2.0)
    assert one.take("model", rates=rates, tokens=5) == 0.0
    wait = other.take("model", rates=rates, tokens=5)
    assert 25.0 < wait <= 30.0
    assert one.take("another", rates=rates, tokens=5) == 0.0
    assert other.take("model", rates=rates, tokens=5) <= wait
    assert other.take("model", rates=Rates(), tokens=1e9) == 0.0


def test_many_threads_take_no_more_than_there_is(opened: Opened) -> None:
    """Whoever is first, one request goes out for one that may."""
    stores = [opened() for _ in range(4)]
    rates = Rates(requests_per_minute=0.5)
    barrier = threading.Barrier(4)
    waits: list[float] = []

    def work(store: Store) -> None:
        barrier.wait()
        waits.append(store.take("model", rates=rates, tokens=1))

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(wait == 0.0 for wait in waits) == 1
