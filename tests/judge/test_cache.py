"""The cache file: nothing paid for is lost, forgotten or bought again."""

from concurrent.futures import ThreadPoolExecutor
import json
import os
from pathlib import Path
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import time
import warnings

import polars as pl
import pytest

from reply_resolution.errors import CacheError
from reply_resolution.judge import sqlite
from reply_resolution.judge.backend import is_url
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.identity import JudgeIdentity, verdict_key
from reply_resolution.judge.owner import is_gone, new_owner
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.store import (
    FRAME_SCHEMA,
    Attempt,
    StoredVerdict,
    utc_now,
)

RUBRIC = Rubric.default()
JUDGE = JudgeIdentity.of(
    RUBRIC, model="m-1", endpoint="http://127.0.0.1:9/v1", params={"max_tokens": 9}
)


def verdict(number=0, *, vote=0, score=4, judge=JUDGE, **changes):
    """A stored verdict on reply `number`."""
    row = {"request": f"question {number}", "reply": f"answer “{number}”"}
    message = RUBRIC.user_message(row).text
    made = StoredVerdict(
        key=verdict_key(judge.judge_id, message, vote),
        judge_id=judge.judge_id,
        user_message=message,
        vote=vote,
        score=score,
        reason="Every part is answered. ✓",
        status="scored",
        status_detail="",
        model_returned="m-1-2026",
        prompt_tokens=500,
        cached_tokens=0,
        completion_tokens=40,
        cost_usd=0.0012,
        latency_ms=123.5,
        attempts=1,
        judged_at=utc_now(),
        raw='{"score":4}',
    )
    return made._replace(**changes)


@pytest.fixture
def path(tmp_path):
    """Where the cache of a test is."""
    return tmp_path / "cache.sqlite"


@pytest.fixture
def cache(path):
    """A cache that knows the judge."""
    with Cache.open(path) as opened:
        opened.register_judge(JUDGE, RUBRIC)
        yield opened


STORES = ["file", pytest.param("postgres", marks=pytest.mark.scale)]


@pytest.fixture(params=STORES)
def new_place(request, tmp_path, new_schema):
    """Gives places of caches that do not exist yet: the promises of every store."""
    if request.param == "postgres":
        return new_schema
    files = (tmp_path / f"{number}.sqlite" for number in range(9))
    return lambda: next(files)


@pytest.fixture
def place(new_place):
    """Where `store` is."""
    return new_place()


@pytest.fixture
def store(place):
    """A cache that knows the judge, on every database."""
    with Cache.open(place) as opened:
        opened.register_judge(JUDGE, RUBRIC)
        yield opened


def run_python(code, *args, **options):
    """Run code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


# Verdicts


def test_a_verdict_comes_back_as_it_was_kept(store, place):
    """Every field survives, in this process and after opening the file again."""
    kept = verdict(1)
    none = verdict(
        2,
        score=None,
        reason=None,
        status="refused",
        status_detail="refusal",
        model_returned=None,
        prompt_tokens=None,
        cached_tokens=None,
        completion_tokens=None,
        cost_usd=None,
        latency_ms=None,
        raw=None,
    )
    assert store.put_many([kept, none]) == 2
    assert store.get_many([kept.key, "ab" * 32]) == {kept.key: kept}
    store.close()
    with Cache.open(place) as again:
        assert again.get_many([none.key, kept.key]) == {
            kept.key: kept,
            none.key: none,
        }


def test_the_first_paid_answer_stands(store):
    """A second verdict for a key is not taken, and said to be none."""
    assert store.put_many([verdict(1, score=4)]) == 1
    assert store.put_many([verdict(1, score=2), verdict(2)]) == 1
    assert store.get_many([verdict(1).key])[verdict(1).key].score == 4


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"status": "failed", "score": None}, "only paid final"),
        ({"status": "not_judged", "score": None}, "only paid final"),
        ({"score": None}, "contradictory"),
        ({"status": "invalid"}, "contradictory"),
        ({"score": 9}, "contradictory"),
        ({"score": 4.0}, "contradictory"),
        ({"score": True}, "contradictory"),
        ({"judge_id": "0" * 64}, "not registered"),
    ],
)
def test_what_is_no_paid_answer_is_refused(store, changes, says):
    """A failed call, an impossible score or an unknown judge never become results."""
    with pytest.raises(CacheError, match=says):
        store.put_many([verdict(1), verdict(2)._replace(**changes)])
    assert store.get_many([verdict(1).key]) == {}


@pytest.mark.parametrize("wanted", [10, 2000, 3000])
def test_frames_hold_exactly_the_wanted_verdicts(store, wanted):
    """The columnar read agrees with the plain one, by look-up and by scan alike."""
    verdicts = [verdict(i, score=1 + i % 5) for i in range(3000)]
    store.put_many(verdicts)
    keys = [v.key for v in verdicts[-wanted:]]
    frame = store.get_frame([*keys, "cd" * 32, keys[0]])
    assert frame.columns == ["key", *FRAME_SCHEMA]
    plain = store.get_many(keys)
    assert frame.height == wanted
    for row in frame.iter_rows(named=True):
        assert row == {
            "key": row["key"],
            **{name: getattr(plain[row["key"]], name) for name in FRAME_SCHEMA},
        }


def test_an_empty_frame_has_its_columns(store):
    """No known key is an empty frame of the right types."""
    frame = store.get_frame(["ab" * 32])
    assert frame.height == 0
    assert frame.schema["score"] == pl.Int8


def test_nothing_is_pickled_and_the_file_reads_with_any_sqlite(cache, path):
    """Every cell is a number, text, or a 32-byte key: text and JSON only."""
    cache.put_many([verdict(1)])
    cache.add_attempts([Attempt(verdict(1).key, "run", "scored")])
    cache.note_requests([("E1", "control", verdict(1).key)])
    cache.claim([verdict(2).key], new_owner())
    cache.close()
    plain = sqlite3.connect(path)
    tables = [
        r[0] for r in plain.execute("SELECT name FROM sqlite_master WHERE type='table'")
    ]
    for table in tables:
        cursor = plain.execute(f"SELECT * FROM {table}")
        names = [d[0] for d in cursor.description]
        for row in cursor:
            for name, cell in zip(names, row, strict=True):
                assert isinstance(cell, int | float | str | None) or (
                    name == "key" and len(cell) == 32
                )
    plain.close()


# Versions


def test_versions_are_minted_per_name_and_never_move(store):
    """A changed character is the next number; earlier ones stay as they were."""
    changed = RUBRIC.replace(wording=RUBRIC.wording + "!")
    other = RUBRIC.replace(name="tone")
    first = store.register_rubric(RUBRIC)
    assert first == f"reply_resolution@v1:{RUBRIC.hash[:8]}"
    assert store.register_rubric(changed) == f"reply_resolution@v2:{changed.hash[:8]}"
    assert store.register_rubric(other) == f"tone@v1:{other.hash[:8]}"
    assert store.register_rubric(RUBRIC) == first
    assert store.rubric("reply_resolution@v2:" + changed.hash[:8]) == changed
    assert store.rubric(changed.hash[:10]) == changed
    for name in ("2", "v2", "reply_resolution@v2"):
        assert store.rubric(name) == changed
    with pytest.raises(CacheError, match=r"no single metric version 'v1'.*tone@v1"):
        store.rubric("v1")
    with pytest.raises(CacheError, match="no metric version"):
        store.rubric("reply_resolution@v9:00000000")


def test_number_one_belongs_to_the_shipped_rubric(new_place):
    """`reply_resolution@v1` is the same version in every cache."""
    changed = RUBRIC.replace(cut=5)
    with Cache.open(new_place()) as cache:
        assert cache.register_rubric(changed).startswith("reply_resolution@v2:")
        assert cache.register_rubric(RUBRIC).startswith("reply_resolution@v1:")


def test_versions_table_counts_what_each_version_used(store):
    """A new cut shares the paid verdicts of the old one: same judge, two versions."""
    cut = RUBRIC.replace(cut=3)
    store.register_judge(JUDGE, cut)
    store.put_many([verdict(i) for i in range(3)])
    table = store.versions()
    assert table["number"].to_list() == [1, 2]
    assert table["verdicts"].to_list() == [3, 3]
    assert table["judges"].to_list() == [1, 1]
    assert table["cost_usd"].to_list() == pytest.approx([0.0036, 0.0036])


# Tracing


def test_trace_reprints_the_exact_request(store):
    """From a request id to the bytes that were sent, and who asked under what name."""
    kept = verdict(1)
    store.put_many([kept, verdict(1, vote=1)])
    store.note_requests([("E1", "control", kept.key), ("E9", None, kept.key)])
    store.add_attempts(
        [
            Attempt(kept.key, "run-1", "failed", "HTTP 500", latency_ms=5.0),
            Attempt(kept.key, "run-1", "scored", call_id=7, cost_usd=0.0012),
        ]
    )
    (trace,) = store.trace("E1")
    assert trace.request == json.dumps(
        JUDGE.request(kept.user_message), ensure_ascii=False, separators=(",", ":")
    )
    assert trace.verdict == kept
    assert trace.judge == JUDGE
    assert trace.metric_versions == (store.register_rubric(RUBRIC),)
    assert trace.seen_as == (("E1", "control"), ("E9", None))
    assert [a.outcome for a in trace.attempts] == ["failed", "scored"]
    assert store.trace("E1", arm="control") == [trace]
    assert store.trace(kept.key) == [trace]
    assert store.trace(kept.key[:12]) == [trace]
    with pytest.raises(CacheError, match="no verdict for 'E1' in arm 'treatment'"):
        store.trace("E1", arm="treatment")
    with pytest.raises(CacheError, match="no verdict for 'nobody'"):
        store.trace("nobody")


def test_requests_noted_again_are_noted_once(store):
    """The same rows twice are one; a row more is found too."""
    kept = verdict(1)
    store.put_many([kept])
    rows = [("E1", "control", kept.key), ("E2", None, kept.key)]
    store.note_requests(rows)
    store.note_requests(iter(rows))
    store.note_requests([*rows, ("E3", "treatment", kept.key)])
    assert store.trace("E3")[0].seen_as == (
        ("E1", "control"),
        ("E2", None),
        ("E3", "treatment"),
    )


# Single flight


def test_one_key_has_one_owner(store):
    """A claimed key is left out for others until it is released or answered."""
    keys = [verdict(i).key for i in range(4)]
    one, two = new_owner(), new_owner()
    assert store.claim(keys[:2], one) == set(keys[:2])
    assert store.claim(keys[:2], one) == set(keys[:2])
    assert store.claim(keys, two) == set(keys[2:])
    store.release(keys, two)
    store.release(keys[:1], two)
    assert store.claim(keys[:1], two) == set()
    store.put_many([verdict(0)])
    assert store.claim([keys[0]], two) == set()
    store.release(keys[1:2], one)
    assert store.claim(keys[:2], two) == {keys[1]}


def test_a_claim_ends_with_its_lease(store):
    """A key is free again when the lease is over."""
    key = verdict(1).key
    assert store.claim([key], new_owner(), lease_s=-1)
    assert store.claim([key], new_owner()) == {key}


def test_a_claim_ends_with_its_owner(store, place):
    """A process killed with a claim in hand blocks nobody."""
    key = verdict(1).key
    done = run_python(
        """
        import os, signal, sys
        from reply_resolution.judge.cache import Cache
        from reply_resolution.judge.owner import new_owner
        cache = Cache.open(sys.argv[1])
        owner = new_owner()
        print(len(cache.claim([sys.argv[2]], owner)), owner, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        place,
        key,
    )
    taken, owner = done.stdout.split()
    assert taken == "1"
    assert is_gone(owner)
    free = set()
    for _ in range(50):  # a server needs a moment to see that a connection is gone
        free = free or store.claim([key], new_owner())
        time.sleep(0.0 if free else 0.1)
    assert free == {key}


def test_a_living_owner_is_not_gone():
    """Own process lives; another machine's owner is never declared dead."""
    mine = new_owner()
    assert not is_gone(mine)
    host, boot, pid, start, token = mine.split("/")
    assert is_gone("/".join([host, boot, pid, start + "1", token]))  # number reused
    assert is_gone("/".join([host, "before", pid, start, token]))  # machine restarted
    assert not is_gone("/".join(["elsewhere", boot, "1", start, token]))
    assert not is_gone("not an owner")


def test_threads_and_processes_share_one_store(store, place, tmp_path):
    """Eight threads and two more processes write at once; every verdict is there."""
    code = """
        import sys, json
        from reply_resolution.judge.cache import Cache
        from reply_resolution.judge.store import StoredVerdict
        with Cache.open(sys.argv[1]) as cache:
            for line in open(sys.argv[2]):
                cache.put_many([StoredVerdict(**json.loads(line))])
        """
    many = [verdict(i) for i in range(240)]
    others = []
    for part in (many[160:200], many[200:]):
        file = tmp_path / f"{part[0].key[:6]}.jsonl"
        file.write_text("\n".join(json.dumps(v._asdict()) for v in part))
        others.append(
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(code), str(place), str(file)]
            )
        )
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda v: store.put_many([v]), many[:160]))
    assert [other.wait(60) for other in others] == [0, 0]
    assert len(store.get_many([v.key for v in many])) == 240
    if not is_url(place):
        assert store.read("PRAGMA integrity_check") == [("ok",)]


def test_a_forked_child_opens_its_own_connection(store, place):
    """After a fork, parent and child both go on writing, and nothing breaks."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    store.put_many([verdict(1)])
    child = run_python(
        """
        import os, sys
        from reply_resolution.judge.cache import Cache
        cache = Cache.open(sys.argv[1])
        cache.remember_capability("e", "parent", {})
        pid = os.fork()
        cache.remember_capability("e", "child" if pid == 0 else "parent 2", {})
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert cache.capability("e", "child") == {}
        """,
        place,
    )
    assert child.returncode == 0, child.stderr
    assert store.capability("e", "parent 2") == {}


def test_a_block_is_one_transaction(store):
    """Verdict, attempt and claim of one batch are kept together or not at all."""

    def batch():
        with store.transaction():
            store.put_many([verdict(1)])
            store.add_attempts([Attempt(verdict(1).key, "run", "scored")])
            raise RuntimeError("stopped here")

    with pytest.raises(RuntimeError, match="stopped here"):
        batch()
    assert store.get_many([verdict(1).key]) == {}
    with store.transaction():
        store.put_many([verdict(1)])
    assert len(store.get_many([verdict(1).key])) == 1


# Faults of the file


@pytest.mark.parametrize(
    "garbage",
    [
        b"not a database, " * 400,
        b"\x00" * 8192,
        b"SQLite format 3\x00" + b"\xff" * 8000,
    ],
    ids=["text", "zeros", "header"],
)
def test_a_damaged_file_is_an_error_and_is_left_alone(path, garbage):
    """A file that is no cache is refused, not replaced by an empty one."""
    path.write_bytes(garbage)
    with pytest.raises(CacheError, match=r"damaged|not a cache"):
        Cache.open(path)
    assert path.read_bytes() == garbage


def test_a_file_cut_short_is_an_error(cache, path):
    """Half a copy is refused: its lost verdicts would be paid for again."""
    cache.put_many([verdict(i) for i in range(2000)])
    cache.close()
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(CacheError, match="damaged"), Cache.open(path) as opened:
        opened.get_frame([verdict(i).key for i in range(2000)])


def test_damage_inside_is_an_error_not_a_miss(cache, path):
    """A torn page in the middle is reported, never answered with 'not there'."""
    verdicts = [verdict(i) for i in range(3000)]
    cache.put_many(verdicts)
    cache.close()
    raw = bytearray(path.read_bytes())
    for page in range(4096 * 8, len(raw), 4096):
        raw[page : page + 512] = b"\xee" * 512
    path.write_bytes(raw)
    with pytest.raises(CacheError, match="damaged"), Cache.open(path) as opened:
        opened.get_many([v.key for v in verdicts])


def test_somebody_elses_database_is_not_touched(path):
    """An SQLite file of another program is refused and unchanged."""
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(CacheError, match="not a cache of reply_resolution"):
        Cache.open(path)
    assert path.read_bytes() == before


def test_another_schema_version_is_refused(cache, path):
    """A file of a newer version says so instead of being misread."""
    cache.close()
    plain = sqlite3.connect(path)
    plain.execute("PRAGMA user_version = 99")
    plain.close()
    with pytest.raises(CacheError, match=r"schema version 99.*newer"):
        Cache.open(path)


def test_a_full_disk_is_an_error_and_keeps_what_was_committed(cache):
    """When the disk is full the run stops; the last commit is intact."""
    cache.put_many([verdict(0)])
    with cache.locked() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(CacheError, match="full"):
        cache.put_many([verdict(i, raw="x" * 9000) for i in range(1, 50)])
    assert len(cache.get_many([verdict(i).key for i in range(50)])) == 1


def test_a_folder_or_an_impossible_place_is_an_error(tmp_path):
    """A folder, and a place under a file, each say what to give instead."""
    with pytest.raises(CacheError, match="is a folder"):
        Cache.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot be made"):
        Cache.open(tmp_path / "file" / "cache.sqlite")


def test_a_disk_that_cannot_be_written_is_an_error_before_anything_is_paid(cache, path):
    """Opening for writing where nothing can be written fails at once."""
    cache.put_many([verdict(1)])
    cache.close()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    code = """
        import os, sys
        from reply_resolution.errors import CacheError
        from reply_resolution.judge.cache import Cache
        if os.getuid() == 0:  # root may write anywhere
            os.setuid(65534)
        try:
            Cache.open(sys.argv[1])
        except CacheError as error:
            print(error)
        with Cache.open(sys.argv[1], read_only=True) as cache:
            print(len(cache.get_many([sys.argv[2]])))
        """
    try:
        for folder in path.parents[:3]:  # pytest's own folders are private
            if folder.stat().st_uid == os.getuid() and folder != path.parent:
                folder.chmod(folder.stat().st_mode | 0o055)
        done = run_python(code, path, verdict(1).key)
    finally:
        path.parent.chmod(0o755)
    assert "cannot be written" in done.stdout, done.stdout + done.stderr
    assert "paid for again" in done.stdout
    assert done.stdout.splitlines()[-1] == "1", done.stderr


# Reading only


def test_read_only_looks_up_and_refuses_to_write(store, place, new_place):
    """A store opened for reading replays, and says no to everything else."""
    store.put_many([verdict(1)])
    store.close()
    with Cache.open(place, read_only=True) as replay:
        assert len(replay.get_many([verdict(1).key])) == 1
        assert replay.register_rubric(RUBRIC).startswith("reply_resolution@v1:")
        replay.register_judge(JUDGE, RUBRIC)
        with pytest.raises(CacheError, match="open for reading only"):
            replay.put_many([verdict(2)])
        with pytest.raises(CacheError, match="has no version"):
            replay.register_rubric(RUBRIC.replace(cut=2))
    absent = new_place()
    for _ in range(2):  # the first time it was not made either
        with pytest.raises(CacheError, match="there is no cache"):
            Cache.open(absent, read_only=True)


def test_a_closed_cache_says_so(store):
    """Using a closed store is a clear error; closing twice is none."""
    store.close()
    store.close()
    with pytest.raises(CacheError, match="is closed"):
        store.get_many([verdict(1).key])


def test_in_memory_is_a_cache_too():
    """`:memory:` works for one process and leaves nothing behind."""
    with Cache.open(":memory:") as cache:
        cache.register_judge(JUDGE, RUBRIC)
        assert cache.put_many([verdict(1)]) == 1
        assert cache.path is None
    assert not Path(":memory:").exists()


def test_the_default_place_is_named_by_the_environment(tmp_path, monkeypatch):
    """$REPLY_RESOLUTION_CACHE, else the user's data folder (never a cache folder)."""
    monkeypatch.setenv("REPLY_RESOLUTION_CACHE", str(tmp_path / "named.sqlite"))
    with Cache.open() as cache:
        assert cache.path == tmp_path / "named.sqlite"
    monkeypatch.delenv("REPLY_RESOLUTION_CACHE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setattr(sys, "platform", "linux")
    expected = tmp_path / "share" / "reply_resolution" / "cache.sqlite"
    assert sqlite.default_path() == expected


def test_a_network_disk_warns_and_works(tmp_path, monkeypatch):
    """Where write-ahead logging is unsafe another journal is used, and it is said."""
    monkeypatch.setattr(sqlite, "_filesystem", lambda path: "nfs4")
    with pytest.warns(UserWarning, match=r"nfs4.*local disk is better"):
        opened = Cache.open(tmp_path / "c.sqlite")
    with opened as cache:
        cache.register_judge(JUDGE, RUBRIC)
        assert cache.put_many([verdict(1)]) == 1
    assert not (tmp_path / "c.sqlite-wal").exists()


def test_a_local_disk_uses_write_ahead_logging(cache):
    """On an ordinary disk the file is in WAL mode, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.read("PRAGMA journal_mode") == [("wal",)]
        assert cache.read("PRAGMA synchronous") == [(1,)]


# What was learnt


def test_capabilities_are_remembered_per_server_and_model(store):
    """What a server accepts is learnt once, also for the next run."""
    assert store.capability("http://a/v1", "m") is None
    store.remember_capability("http://a/v1", "m", {"answer": "tool"})
    store.remember_capability("http://a/v1", "m", {"answer": "json_object"})
    assert store.capability("http://a/v1", "m") == {"answer": "json_object"}
    assert store.capability("http://a/v1", "n") is None


def test_calibrations_are_found_by_version_and_judge(store):
    """The newest calibration wins; a version is known by its hash, not its number."""
    version = store.register_rubric(RUBRIC)
    document = {"metric_version": version, "judge_id": JUDGE.judge_id, "fit": "fit"}
    assert store.calibration(version, JUDGE.judge_id) is None
    store.put_calibration(document)
    store.put_calibration({**document, "fit": "not fit"})
    renumbered = version.replace("@v1:", "@v7:")
    assert store.calibration(renumbered, JUDGE.judge_id)["fit"] == "not fit"
    assert store.calibration(version, "0" * 64) is None
    with pytest.raises(CacheError, match="without judge_id"):
        store.put_calibration({"metric_version": version})


def test_token_use_learns_from_paid_verdicts(store):
    """What an answer costs on average, for the estimate before a run."""
    assert store.token_use(JUDGE.judge_id) is None
    store.put_many([verdict(i, completion_tokens=30 + 10 * i) for i in range(3)])
    use = store.token_use(JUDGE.judge_id)
    sent = sum(
        len(text.encode())
        for text in (RUBRIC.wording, RUBRIC.schema_json, verdict(1).user_message)
    )
    assert use.completion_tokens == 40
    assert use.prompt_tokens_per_byte == pytest.approx(500 / sent)


# Export and import


@pytest.fixture
def full(store):
    """A store with something of everything."""
    store.register_judge(JUDGE, RUBRIC.replace(cut=3))
    store.put_many([verdict(i) for i in range(5)])
    store.note_requests(
        [("E1", "control", verdict(1).key), ("E2", None, verdict(2).key)]
    )
    store.put_calibration(
        {
            "metric_version": store.register_rubric(RUBRIC),
            "judge_id": JUDGE.judge_id,
            "fit": "fit",
        }
    )
    return store


def test_export_and_import_carry_everything_but_the_ledger(full, tmp_path, new_place):
    """Another file answers, traces and calibrates alike; twice is as good as once."""
    full.remember_capability("http://server/v1", "m", {"adaptation": "tool"})
    assert full.export_jsonl(tmp_path / "out.jsonl") == 5
    with Cache.open(new_place()) as new:
        report = new.import_jsonl(tmp_path / "out.jsonl")
        assert new.capability("http://server/v1", "m") == {"adaptation": "tool"}
        assert (report.added, report.same, report.conflicts, report.invalid) == (
            5,
            0,
            (),
            (),
        )
        keys = [verdict(i).key for i in range(5)]
        assert new.get_many(keys) == full.get_many(keys)
        assert new.trace("E1") == full.trace("E1")
        assert (
            new.versions().drop("created_at").equals(full.versions().drop("created_at"))
        )
        assert new.calibration(report.versions[0], JUDGE.judge_id)["fit"] == "fit"
        again = new.import_jsonl(tmp_path / "out.jsonl")
        assert (again.added, again.same) == (0, 5)
        new.export_jsonl(tmp_path / "again.jsonl")
    strip = [
        [line for line in file.read_text().splitlines() if '"rubric"' not in line[:20]]
        for file in (tmp_path / "out.jsonl", tmp_path / "again.jsonl")
    ]
    assert strip[0] == strip[1]


def test_conflicting_rows_are_reported_and_ours_are_kept(full, tmp_path, new_place):
    """Another score for a key we have is named, not taken."""
    full.export_jsonl(tmp_path / "out.jsonl")
    with Cache.open(new_place()) as new:
        new.register_judge(JUDGE, RUBRIC)
        new.put_many([verdict(1, score=1)])
        report = new.import_jsonl(tmp_path / "out.jsonl")
        assert report.added == 4
        assert len(report.conflicts) == 1
        assert "scored 1 kept, scored 4 in out.jsonl" in report.conflicts[0]
        assert new.get_many([verdict(1).key])[verdict(1).key].score == 1


def test_a_forged_line_is_reported_and_not_taken(full, tmp_path, new_place):
    """A verdict whose key is not of its content cannot enter."""
    full.export_jsonl(tmp_path / "out.jsonl")
    text = (tmp_path / "out.jsonl").read_text().replace("question 3", "question X")
    (tmp_path / "out.jsonl").write_text(text)
    with Cache.open(new_place()) as new:
        report = new.import_jsonl(tmp_path / "out.jsonl")
        assert report.added == 4
        assert len(report.invalid) == 1
        assert "not of this content" in report.invalid[0]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda t: t[: len(t) // 2], "is not JSON"),
        (lambda t: t.split("\n", 1)[1], "not an export"),
        (lambda t: t + '{"type":"surprise"}\n', "line 15: a record of type.*not known"),
        (lambda t: t + "5\n", "not an export"),
        (lambda t: t.replace('"score": 4', '"score": 8'), "contradictory"),
        (lambda t: "", "not an export"),
    ],
)
def test_a_broken_export_changes_nothing(full, tmp_path, spoil, says, new_place):
    """Cut off, edited or of another kind: refused whole, with the line."""
    file = tmp_path / "out.jsonl"
    full.export_jsonl(file)
    file.write_text(spoil(file.read_text()))
    with Cache.open(new_place()) as new:
        with pytest.raises(CacheError, match=says):
            new.import_jsonl(file)
        assert new.versions().height == 0
        assert new.get_frame([verdict(i).key for i in range(5)]).height == 0


def test_an_export_appears_whole_or_not_at_all(full, tmp_path):
    """A place that cannot be written is an error, and no half file stays."""
    with pytest.raises(CacheError, match="cannot be written"):
        full.export_jsonl(tmp_path / "absent" / "out.jsonl")
    assert list(tmp_path.glob("*.part")) == []


def test_a_copy_of_the_file_is_a_cache(cache, path, tmp_path):
    """After closing, the one file is the whole cache."""
    cache.put_many([verdict(i) for i in range(5)])
    cache.close()
    shutil.copy(path, tmp_path / "copy.sqlite")
    with Cache.open(tmp_path / "copy.sqlite", read_only=True) as copy:
        assert len(copy.get_many([verdict(i).key for i in range(5)])) == 5
