"""kill -9 at any moment: the cap holds at the server, nothing committed is paid again.

Four processes of sixteen threads share one cache and one budget and call a real HTTP
server on loopback, which counts for itself. Processes are killed at random and replaced
until the budget is spent. The fast part runs by default; 100 kills are marked slow.
"""

from collections import Counter
import contextlib
import functools
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from reply_resolution.judge.backend import is_url
from reply_resolution.judge.budget import OVERHEAD_TOKENS
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.identity import JudgeIdentity, verdict_key
from reply_resolution.judge.rubric import Rubric

PROCESSES, THREADS = 4, 16
RUBRIC = Rubric.default()
JUDGE = JudgeIdentity.of(RUBRIC, model="m", endpoint="http://127.0.0.1:9/v1")
ANSWER_TOKENS = 100

# Imports once, then forks workers and replaces those that were killed: a start costs
# milliseconds, so a hundred kills are a matter of a minute.
WORKERS = """
    import http.client, json, os, random, sys, threading, time
    from reply_resolution.judge.budget import Ledger, Limits
    from reply_resolution.judge.cache import Cache
    from reply_resolution.judge.store import utc_now
    from reply_resolution.judge.identity import verdict_key
    from reply_resolution.judge.owner import new_owner
    from reply_resolution.judge.store import StoredVerdict

    path, port, judge_id, rows, calls, tokens, processes, threads = sys.argv[1:]

    def work():
        random.seed(os.getpid())
        cache, owner = Cache.open(path), new_owner()
        limits = Limits(max_calls=int(calls), max_total_tokens=int(tokens))
        ledger = Ledger(cache, limits, "run", owner=owner)
        order = list(range(int(rows)))
        random.shuffle(order)
        lock = threading.Lock()
        left = threading.Event()

        def one():
            while not left.is_set():
                with lock:
                    if not order:
                        return
                    row = order.pop()
                key = verdict_key(judge_id, str(row), 0)
                if not cache.claim([key], owner):
                    continue
                while not (made := ledger.reserve_many([(len(str(row)), 100)])):
                    if ledger.refusal is None or ledger.refusal.final:
                        left.set()
                        return
                    time.sleep(0.01)
                booked = made[0]
                link = http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)
                link.request("POST", f"/{booked.call_id}/{row}")
                answer = json.loads(link.getresponse().read())
                link.close()
                verdict = StoredVerdict(
                    key, judge_id, str(row), 0, answer["score"], "because", "scored",
                    "", "m", answer["prompt"], 0, answer["completion"], None, 1.0, 1,
                    utc_now(), None,
                )
                with cache.transaction():
                    cache.put_many([verdict])
                    ledger.settle_many(
                        [(booked, answer["prompt"], answer["completion"], 0)]
                    )

        crew = [threading.Thread(target=one) for _ in range(int(threads))]
        [t.start() for t in crew]
        [t.join() for t in crew]

    def start():
        pid = os.fork()
        if pid == 0:
            try:
                work()
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(pid, flush=True)

    for _ in range(int(processes)):
        start()
    failed = 0
    while True:
        try:
            _, status = os.wait()
        except ChildProcessError:
            break
        if os.WIFSIGNALED(status):
            start()
        else:
            failed += os.WEXITSTATUS(status) != 0
    sys.exit(failed)
    """


class Counting(ThreadingHTTPServer):
    """Answers like a judge, bills by its own count, and looks for double payment."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, path):
        super().__init__(("127.0.0.1", 0), Handler)
        self.cache = Cache.open(path)
        self.lock = threading.Lock()
        self.calls = []
        self.billed = 0
        self.again = []
        self.most = float("inf")

    def wait_for_the_killer(self):
        """Answer nobody while a kill is overdue, however slow the machine is."""
        end = time.monotonic() + 10
        while len(self.calls) > self.most and time.monotonic() < end:
            time.sleep(0.005)

    def handle_error(self, request, client_address):
        """A client that was killed is not this server's error."""


class Handler(BaseHTTPRequestHandler):
    """One call: count it, bill it, then answer after a while."""

    def do_POST(self):
        call, row = map(int, self.path.strip("/").split("/"))
        draw = random.Random(call)
        prompt = draw.randint(1, len(str(row)) + OVERHEAD_TOKENS)
        completion = draw.randint(1, ANSWER_TOKENS)
        known = self.server.cache.get_many([verdict_key(JUDGE.judge_id, str(row), 0)])
        with self.server.lock:
            self.server.calls.append((call, row))
            self.server.billed += prompt + completion
            if known:
                self.server.again.append(row)
        time.sleep(draw.random() * 0.03)
        self.server.wait_for_the_killer()
        body = json.dumps(
            {"score": 1 + row % 5, "prompt": prompt, "completion": completion}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Keep quiet."""


def storm(path, *, kills, rows, calls, tokens):
    """Run the workers, kill `kills` of them, wait for the end; what was counted."""
    draw = random.Random(20261130)
    with Cache.open(path) as cache:
        cache.register_judge(JUDGE, RUBRIC)
    server = Counting(path)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    arguments = (
        path,
        server.server_port,
        JUDGE.judge_id,
        rows,
        calls,
        tokens,
        PROCESSES,
        THREADS,
    )
    workers = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WORKERS), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    born = []
    reader = threading.Thread(target=lambda: born.extend(iter_pids(workers, born)))
    reader.start()
    killed = []
    committed = {}
    step = calls // (kills + kills // 3 + 3)
    while workers.poll() is None and len(killed) < kills:
        server.most = step * (len(killed) + 2)
        time.sleep(draw.random() * 0.02)
        due = len(server.calls) >= step * (len(killed) + 1)
        alive = [pid for pid in born if pid not in killed]
        if not due or not alive:
            continue
        committed.update(everything(server.cache, rows))
        victim = draw.choice(alive)
        with contextlib.suppress(ProcessLookupError):  # it may have just ended
            os.kill(victim, signal.SIGKILL)
        killed.append(victim)
    server.most = float("inf")
    reader.join()
    errors = workers.stderr.read()
    code = workers.wait(120)
    workers.stdout.close()
    workers.stderr.close()
    server.shutdown()
    server.server_close()
    assert code == 0, errors
    return server, killed, committed


def iter_pids(workers, born):
    """Process numbers as they are born; kept as they come."""
    for line in workers.stdout:
        born.append(int(line))
    return ()


@functools.cache
def keys_of(rows):
    """Key -> row."""
    return {verdict_key(JUDGE.judge_id, str(row), 0): row for row in range(rows)}


def everything(cache, rows):
    """Every committed verdict, row -> score."""
    keys = keys_of(rows)
    frame = cache.get_frame(list(keys))
    return {
        keys[key]: score
        for key, score in zip(frame["key"], frame["score"], strict=True)
    }


def check(path, server, killed, committed, *, rows, calls, tokens):
    """What must hold after any storm; returns the counts for the record."""
    cache = server.cache
    # The cap, counted at the server: calls made and tokens billed, answered or not.
    assert len(server.calls) <= calls
    assert server.billed <= tokens
    # Nothing committed is lost, changed, or paid for again.
    final = everything(cache, rows)
    assert committed.items() <= final.items()
    assert all(score == 1 + row % 5 for row, score in final.items())
    assert server.again == []
    # Every call the server saw is in the ledger, once; every settled call was seen.
    end = time.monotonic() + 10
    while cache.book_lost() and time.monotonic() < end:
        time.sleep(0.2)  # a database needs a moment to see that a process is gone
    states = dict(cache.read("SELECT id, state FROM calls"))
    seen = [call for call, _ in server.calls]
    assert len(seen) == len(set(seen))
    assert set(seen) <= set(states)
    settled = {call for call, state in states.items() if state == "settled"}
    lost = {call for call, state in states.items() if state == "lost"}
    assert settled <= set(seen)
    assert settled | lost == set(states)
    # A settled call has its verdict and no other does: they are one transaction.
    assert len(settled) == len(final)
    # What was in flight at a kill is booked in full, and no more than that.
    assert len(lost) <= len(killed) * THREADS
    unsent = len(set(states) - set(seen))
    assert len(seen) + unsent == len(states)
    total = cache.totals("run", "run")
    assert (total.open_calls, total.calls) == (0, len(states))
    assert server.billed <= total.tokens <= tokens
    asked = Counter(row for _, row in server.calls)
    assert max(asked.values()) <= 1 + len(lost)
    if not is_url(path):
        assert cache.read("PRAGMA integrity_check") == [("ok",)]
    kept = cache.get_many(list(keys_of(rows)))
    assert all(v.user_message == str(keys_of(rows)[key]) for key, v in kept.items())
    cache.close()
    return {
        "kills": len(killed),
        "server_calls": len(seen),
        "ledger_calls": len(states),
        "settled": len(settled),
        "lost": len(lost),
        "booked_but_never_sent": unsent,
        "verdicts": len(final),
        "tokens_billed": server.billed,
        "tokens_booked": total.tokens,
        "cap_calls": calls,
        "cap_tokens": tokens,
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill -9")
@pytest.mark.parametrize(
    "database", ["file", pytest.param("postgres", marks=pytest.mark.scale)]
)
def test_five_kills_never_pass_the_cap_nor_pay_twice(tmp_path, database, new_schema):
    """Five processes killed at random: the cap holds, nothing committed is lost."""
    size = {"rows": 2000, "calls": 400, "tokens": 10**9}
    path = new_schema() if database == "postgres" else tmp_path / "cache.sqlite"
    counts = check(path, *storm(path, kills=5, **size), **size)
    assert counts["kills"] == 5
    assert counts["ledger_calls"] == 400  # the cap was reached, not merely respected


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill -9")
@pytest.mark.parametrize("database", ["file", "postgres"])
def test_a_hundred_kills_never_pass_the_cap_nor_pay_twice(
    tmp_path, capsys, database, new_schema
):
    """A hundred kills against a cap on tokens, counted at the server."""
    size = {"rows": 12_000, "calls": 11_000, "tokens": 1_000_000}
    path = new_schema() if database == "postgres" else tmp_path / "cache.sqlite"
    counts = check(path, *storm(path, kills=100, **size), **size)
    assert counts["kills"] == 100
    assert counts["tokens_booked"] > 1_000_000 - 200
    with capsys.disabled():
        print(f"\n{counts}")
