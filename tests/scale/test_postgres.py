"""A shared cache in PostgreSQL: what only a server can get wrong.

What every store promises is tested with the file's own tests, in tests/judge.
"""

import re
import socket
import subprocess
import sys
import textwrap
import time
import traceback

import polars as pl
import pytest

from reply_resolution.cli import main
from reply_resolution.errors import CacheError, ParameterError
from reply_resolution.judge.budget import Ledger, Limits
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.identity import JudgeIdentity, verdict_key
from reply_resolution.judge.judge import judge_replies, record
from reply_resolution.judge.owner import new_owner
from reply_resolution.judge.replay import replay
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.store import Attempt, StoredVerdict
from reply_resolution.parameters import check_parameters
from reply_resolution.report import run_report
from reply_resolution.scale import postgres as module
from reply_resolution.scale import postgres_schema

SECRET = "marked-secret"
RUBRIC = Rubric.default()
JUDGE = JudgeIdentity.of(RUBRIC, model="m", endpoint="http://127.0.0.1:9/v1")
pytestmark = pytest.mark.scale


def verdict(number, **changes):
    """A stored verdict on message `number`."""
    text = f"message {number}"
    made = StoredVerdict(
        verdict_key(JUDGE.judge_id, text), JUDGE.judge_id, text, 0, 4, "Because. ☂",
        "scored", "", "m-1", 500, 0, 40, 0.0012, 123.5, 1, "2026-12-01T00:00:00", "{}",
    )  # fmt: skip
    return made._replace(**changes)


@pytest.fixture
def url(new_schema):
    """Where a cache may be made."""
    return new_schema()


@pytest.fixture
def admin(postgres):
    """A plain connection to the server."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


def schema_of(url):
    """The schema a URL names."""
    return url.rpartition("=")[2]


# What may go wrong


def told(error):
    """Everything an error shows, its causes and trace included."""
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda u: u.replace(SECRET, SECRET + "x"), "PGPASSWORD or ~/.pgpass"),
        (lambda u: u.replace("judge:", "nobody:"), "PGPASSWORD or ~/.pgpass"),
        (lambda u: u.replace("/postgres", "/absent"), "Make it first"),
        (lambda u: u.replace("127.0.0.1", "127.0.0.1:1"), "Correct the URL"),
        (lambda u: u.replace(SECRET, "?" + SECRET), "Percent-encode"),
        (lambda u: u.replace(SECRET, SECRET + "@x/y"), "Percent-encode"),
        (lambda u: u.replace(SECRET, SECRET + "%zz"), "cannot be read"),
        (lambda u: u.partition("?")[0] + "?schema=A;B", "not a plain name"),
    ],
)
def test_a_wrong_address_is_an_error_without_the_password(url, change, says):
    """Wrong password, user, database, port or spelling: what to do, and no secret."""
    with pytest.raises(CacheError, match=says) as caught:
        Cache.open(change(url))
    assert SECRET not in told(caught.value)


def test_an_unreachable_server_is_said_at_once(url, capsys, tmp_path):
    """Nobody listens there: an error in words, also from the command line."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gone = f"postgresql://judge:{SECRET}@127.0.0.1:{port}/postgres"
    with pytest.raises(CacheError, match="cannot be reached") as caught:
        Cache.open(gone)
    assert SECRET not in told(caught.value)
    assert main(["cache", "export", str(tmp_path / "x"), "--cache", gone]) == 1
    said = capsys.readouterr().err
    assert "cannot be reached" in said
    assert SECRET not in said


def test_a_missing_driver_is_said_with_the_install_line(url, monkeypatch):
    """Without psycopg the message has the line that installs it."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(CacheError, match=r"pip install 'reply-resolution\[postgres\]'"):
        Cache.open(url)


def test_the_password_shows_nowhere(url, capsys, tmp_path, monkeypatch):
    """Not in the name, repr, a trace, an error of the store, or an export."""
    with Cache.open(url) as cache:
        cache.register_judge(JUDGE, RUBRIC)
        cache.put_many([verdict(1)])
        assert SECRET not in cache.name + repr(cache) + str(cache)
        assert cache.name.startswith("postgresql://judge@127.0.0.1:")
        with pytest.raises(CacheError) as caught:
            cache.trace("nobody")
        assert SECRET not in told(caught.value)
        with pytest.raises(CacheError) as caught:
            cache.read("SELECT * FROM absent")
        assert SECRET not in told(caught.value)
        cache.export_jsonl(tmp_path / "out.jsonl")
    assert SECRET not in (tmp_path / "out.jsonl").read_text()
    monkeypatch.setenv("REPLY_RESOLUTION_CACHE", url)
    assert main(["trace", verdict(1).key]) == 0
    assert main(["versions", "--json"]) == 0
    assert main(["trace", "nobody"]) == 1
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err


def test_a_report_takes_no_password(url, tmp_path):
    """A notebook's parameters are printed in its report: a secret is refused there."""
    cells = ['cache: str = ""']
    with pytest.raises(ParameterError, match="REPLY_RESOLUTION_CACHE") as caught:
        check_parameters({"In": cells, "cache": url})
    assert SECRET not in str(caught.value)
    with pytest.raises(ParameterError, match="PGPASSWORD") as caught:
        run_report("04_experiment_readout", {"cache": url}, out=tmp_path)
    assert SECRET not in str(caught.value)
    check_parameters({"In": cells, "cache": url.replace(f":{SECRET}", "")})


# The schema


def test_another_schema_version_is_refused_and_an_older_one_migrated(url, admin):
    """A newer cache is left alone; an old one becomes this one, with its verdicts."""
    name = schema_of(url)
    with Cache.open(url) as cache:
        cache.register_judge(JUDGE, RUBRIC)
        cache.put_many([verdict(1)])
    admin.execute(f"UPDATE {name}.schema_version SET version = 99")
    with pytest.raises(CacheError, match=r"version 99.*newer version"):
        Cache.open(url)
    admin.execute(f"UPDATE {name}.schema_version SET version = 1")
    admin.execute(f"DROP TABLE {name}.batches, {name}.batch_lines")
    admin.execute(f"DROP INDEX {name}.attempts_of_key")
    with pytest.raises(CacheError, match="an older one"):
        Cache.open(url, read_only=True)
    with Cache.open(url) as cache:
        assert cache.get_many([verdict(1).key]) == {verdict(1).key: verdict(1)}
        assert cache.read("SELECT count(*) FROM batches") == [(0,)]
    current = len(postgres_schema.MIGRATIONS)
    row = admin.execute(f"SELECT version FROM {name}.schema_version").fetchone()
    assert row == (current,)


def test_a_schema_of_somebody_else_is_not_touched(url, admin):
    """Tables that are not ours stay as they are."""
    name = schema_of(url)
    admin.execute(f"CREATE SCHEMA {name}")
    admin.execute(f"CREATE TABLE {name}.theirs (x int)")
    with pytest.raises(CacheError, match="not a cache of reply_resolution"):
        Cache.open(url)
    tables = admin.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s", [name]
    ).fetchall()
    assert tables == [("theirs",)]


def test_a_schema_made_beforehand_is_used(url, admin):
    """Where the database's owner made the empty schema, no right on it is needed."""
    admin.execute(f"CREATE SCHEMA {schema_of(url)}")
    with Cache.open(url) as cache:
        assert cache.versions().height == 0


def test_many_who_open_first_make_one_cache(url):
    """Eight processes meet an empty database at once; every one works."""
    code = """
        import sys
        from reply_resolution.judge.cache import Cache
        from reply_resolution.judge.rubric import Rubric
        with Cache.open(sys.argv[1]) as cache:
            print(cache.register_rubric(Rubric.default().replace(cut=5)))
        """
    many = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), url],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    said = {worker.communicate(timeout=120)[0] for worker in many}
    assert [worker.returncode for worker in many] == [0] * 8
    assert len(said) == 1
    assert said.pop().startswith("reply_resolution@v2:")


GRANTS = """
CREATE ROLE {name}_user LOGIN PASSWORD 'marked-secret';
GRANT USAGE ON SCHEMA {name} TO {name}_user;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {name}_user;
CREATE ROLE {name}_reader LOGIN PASSWORD 'marked-secret';
GRANT USAGE ON SCHEMA {name} TO {name}_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {name}_reader
"""


def test_the_documented_grants_are_enough_and_no_more(url, admin):
    """A user judges and cannot change tables; a reader replays and cannot write."""
    name = schema_of(url)
    with Cache.open(url) as cache:
        cache.register_judge(JUDGE, RUBRIC)
    for statement in GRANTS.format(name=name).split(";"):
        admin.execute(statement)
    try:
        with Cache.open(url.replace("judge:", f"{name}_user:")) as user:
            user.register_judge(JUDGE, RUBRIC.replace(cut=5))
            assert user.claim([verdict(1).key], new_owner()) == {verdict(1).key}
            booked = Ledger(user, Limits(max_calls=1), "run").reserve_many([(1, 1)])
            assert len(booked) == 1
            user.put_many([verdict(1)])
            user.add_attempts([Attempt(verdict(1).key, "run", "scored")])
            user.note_requests([("E1", None, verdict(1).key)])
            with pytest.raises(CacheError, match="lacks a right"):
                user.read("CREATE TABLE more (x int)")
        reader = url.replace("judge:", f"{name}_reader:")
        with Cache.open(reader, read_only=True) as cache:
            assert len(cache.trace("E1")) == 1
        with Cache.open(reader) as cache, pytest.raises(CacheError, match="lacks a"):
            cache.put_many([verdict(2)])
        absent = reader.replace(name + "_reader:", f"{name}_reader:").replace(
            f"schema={name}", f"schema={name}x"
        )
        with pytest.raises(CacheError, match="lacks a right"):
            Cache.open(absent)
    finally:
        for role in (f"{name}_user", f"{name}_reader"):
            admin.execute(f"DROP OWNED BY {role}")
            admin.execute(f"DROP ROLE {role}")


# One content, two databases


def test_an_export_is_the_same_bytes_from_both_databases(url, tmp_path):
    """File to server and back: the same content, byte for byte, both ways."""
    with Cache.open(tmp_path / "a.sqlite") as file:
        file.register_judge(JUDGE, RUBRIC.replace(cut=3))
        file.put_many([verdict(i, cost_usd=0.1 + i / 3) for i in range(50)])
        file.put_many([verdict(77, cost_usd=None, latency_ms=5)])
        file.note_requests(
            (f"E{i % 7}-ä☂Z", ["b", "A", None][i % 3], verdict(i).key) for i in range(9)
        )
        file.remember_capability("http://b/v1", "m", {"answer": "tool"})
        file.remember_capability("http://B/v1", "m", {"answer": "json_object"})
        file.export_jsonl(tmp_path / "1.jsonl")
    with Cache.open(url) as shared:
        assert shared.import_jsonl(tmp_path / "1.jsonl").added == 51
        shared.export_jsonl(tmp_path / "2.jsonl")
    with Cache.open(tmp_path / "b.sqlite") as back:
        back.import_jsonl(tmp_path / "2.jsonl")
        back.export_jsonl(tmp_path / "3.jsonl")
    exports = [
        # when a metric version was minted is the one thing that is told anew
        re.sub(rb'("type": "rubric", "created_at": )"[^"]*"', rb"\1", text)
        for text in ((tmp_path / f"{n}.jsonl").read_bytes() for n in (1, 2, 3))
    ]
    assert exports[0].count(b"\n") > 60
    assert exports[0] == exports[1] == exports[2]


def test_a_text_the_server_cannot_keep_is_kept_readably(url):
    """PostgreSQL has no NUL in a text: a picture of it takes its place."""
    with Cache.open(url) as cache:
        cache.register_judge(JUDGE, RUBRIC)
        cache.put_many([verdict(1, reason="a\x00b")])
        assert cache.get_many([verdict(1).key])[verdict(1).key].reason == "a␀b"


def test_recorded_verdicts_replay_from_the_environments_cache(url, monkeypatch):
    """`judge`, `record` and the notebooks' loader take the URL wherever a file goes."""
    table = pl.DataFrame({"request_id": ["a"], "request": ["q"], "reply": ["r"]})
    said = pl.DataFrame({"request_id": ["a"], "score": [4], "reason": ["fine"]})
    assert record(table, said, cache=url) == 1
    monkeypatch.setenv("REPLY_RESOLUTION_CACHE", url)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert replay(table)["score"].to_list() == [4]
    run = judge_replies(table, offline=True)
    assert (run.summary.scored, run.summary.calls) == (1, 0)


# Connections


def test_a_broken_connection_is_an_error_and_then_made_anew(url, admin):
    """The server ends our session: that statement fails in words, the next works."""
    with Cache.open(url) as cache:
        cache.register_judge(JUDGE, RUBRIC)
        owner = new_owner()
        assert cache.claim([verdict(1).key], owner)
        ((pid,),) = cache.read("SELECT pg_backend_pid()")
        admin.execute("SELECT pg_terminate_backend(%s)", [pid])
        time.sleep(0.2)
        with pytest.raises(CacheError, match="What was committed is kept"):
            cache.get_many([verdict(1).key])
        assert cache.get_many([verdict(1).key]) == {}
        other = new_owner()  # whose connection is gone holds nothing
        assert cache.claim([verdict(1).key], other) == {verdict(1).key}


def test_a_claim_lives_while_its_connection_does(url):
    """Another connection's claim holds; closing it frees the key at once."""
    key = verdict(1).key
    with Cache.open(url) as mine:
        theirs = Cache.open(url)
        assert theirs.claim([key], "far/boot/1/2/x") == {key}
        assert mine.claim([key], new_owner()) == set()
        theirs.close()
        end = time.monotonic() + 10
        while not (got := mine.claim([key], new_owner())) and time.monotonic() < end:
            time.sleep(0.05)
        assert got == {key}


def test_an_idle_transaction_does_not_hold_up_the_others(url):
    """A process that stops inside a transaction is cut off after a minute."""
    with Cache.open(url) as cache:
        assert cache.read("SHOW idle_in_transaction_session_timeout") == [("1min",)]
        assert cache.read("SHOW lock_timeout") == [("1min",)]
        assert cache.read("SHOW tcp_keepalives_idle") == [("30",)]
        assert cache.read("SHOW synchronous_commit") == [("on",)]


def test_an_address_is_read_as_libpq_reads_it():
    """Parameters, schema and special characters; nothing is guessed."""
    psycopg = pytest.importorskip("psycopg")
    settings, schema = module._parse(
        "postgresql://u:p%40ss@h:6543/db?sslmode=require&schema=team", psycopg
    )
    assert schema == "team"
    assert settings == {
        "user": "u",
        "password": "p@ss",
        "host": "h",
        "port": "6543",
        "dbname": "db",
        "sslmode": "require",
    }
