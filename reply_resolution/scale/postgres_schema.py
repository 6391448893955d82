"""The tables of a shared cache, and how an older one becomes a newer one."""

# Texts are compared byte by byte (COLLATE "C"), so that an export has one order.
_FIRST = """
CREATE TABLE rubrics (
  hash TEXT PRIMARY KEY, name TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL,
  created_at TEXT COLLATE "C" NOT NULL, document TEXT NOT NULL, UNIQUE (name, number));
CREATE TABLE judges (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  judge_id TEXT COLLATE "C" NOT NULL UNIQUE, model TEXT NOT NULL,
  endpoint TEXT NOT NULL, created_at TEXT NOT NULL, document TEXT NOT NULL);
CREATE TABLE judge_rubrics (
  judge BIGINT NOT NULL REFERENCES judges,
  rubric_hash TEXT COLLATE "C" NOT NULL REFERENCES rubrics,
  PRIMARY KEY (judge, rubric_hash));
CREATE TABLE verdicts (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key BYTEA NOT NULL UNIQUE,
  judge BIGINT NOT NULL REFERENCES judges, vote BIGINT NOT NULL, score SMALLINT,
  status TEXT NOT NULL, status_detail TEXT NOT NULL, model_returned TEXT,
  prompt_tokens BIGINT, cached_tokens BIGINT, completion_tokens BIGINT,
  cost_usd DOUBLE PRECISION, latency_ms DOUBLE PRECISION, attempts BIGINT NOT NULL,
  judged_at TEXT NOT NULL, reason TEXT);
CREATE TABLE answers (
  id BIGINT PRIMARY KEY REFERENCES verdicts, user_message TEXT NOT NULL, raw TEXT);
CREATE TABLE attempts (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key BYTEA NOT NULL,
  run_id TEXT NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL, call_id BIGINT,
  started_at TEXT NOT NULL, latency_ms DOUBLE PRECISION, prompt_tokens BIGINT,
  cached_tokens BIGINT, completion_tokens BIGINT, cost_usd DOUBLE PRECISION);
CREATE TABLE requests (
  request_id TEXT COLLATE "C" NOT NULL, arm TEXT COLLATE "C" NOT NULL,
  key BYTEA NOT NULL, PRIMARY KEY (request_id, arm, key));
CREATE TABLE claims (
  key BYTEA PRIMARY KEY, owner TEXT NOT NULL, expires_at DOUBLE PRECISION NOT NULL);
CREATE TABLE capabilities (
  endpoint TEXT COLLATE "C" NOT NULL, model TEXT COLLATE "C" NOT NULL,
  updated_at TEXT NOT NULL, document TEXT NOT NULL, PRIMARY KEY (endpoint, model));
CREATE TABLE calibrations (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, metric TEXT NOT NULL,
  judge_id TEXT NOT NULL, created_at TEXT NOT NULL, document TEXT NOT NULL);
CREATE TABLE calls (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id TEXT NOT NULL,
  day TEXT NOT NULL, owner TEXT NOT NULL, booked_at DOUBLE PRECISION NOT NULL,
  state TEXT NOT NULL, tokens BIGINT NOT NULL, micro_usd BIGINT NOT NULL,
  actual_tokens BIGINT, actual_micro_usd BIGINT);
CREATE INDEX calls_open ON calls (owner) WHERE state = 'open';
CREATE TABLE spend (
  run_id TEXT NOT NULL, day TEXT COLLATE "C" NOT NULL,
  calls BIGINT NOT NULL DEFAULT 0, tokens BIGINT NOT NULL DEFAULT 0,
  micro_usd BIGINT NOT NULL DEFAULT 0, open_calls BIGINT NOT NULL DEFAULT 0,
  open_tokens BIGINT NOT NULL DEFAULT 0, open_micro_usd BIGINT NOT NULL DEFAULT 0,
  over_tokens BIGINT NOT NULL DEFAULT 0, over_micro_usd BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (run_id, day)) WITH (fillfactor = 50);
CREATE INDEX spend_of_day ON spend (day);
"""
# attempts are looked up by verdict when one is traced
_SECOND = "CREATE INDEX attempts_of_key ON attempts (key)"

#: Statement lists; number n makes schema version n out of n - 1.
MIGRATIONS = (_FIRST, _SECOND)
