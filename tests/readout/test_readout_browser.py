"""The readout's page in a real browser: complete at once, alone, readable."""

from pathlib import Path

import pytest

from reply_resolution import inputs
from reply_resolution.readout.build import build_readout
from reply_resolution.readout.experiment_plan import ExperimentPlan

pytestmark = pytest.mark.browser

#: Text whose contrast with its background is below 4.5, as [text, ratio].
CONTRAST = """() => {
  const rgb = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = c => { const v = rgb(c).slice(0, 3).map(x => x / 255)
    .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
  const ground = e => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor, v = rgb(c);
    if (v.length === 3 || v[3] > 0) return c; } return 'rgb(255, 255, 255)'; };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || e.closest('svg')) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push([walk.currentNode.data.trim().slice(0, 40), ratio]);
  }
  return bad;
}"""


@pytest.fixture(scope="module")
def page_file(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`readout.html` of the bundled experiment."""
    data = root / "data"
    read = inputs.load(
        str(data / "experiment.csv"),
        str(data / "verdicts_experiment.jsonl"),
        str(data / "experiment_labels.csv"),
        control="control",
    )
    plan = ExperimentPlan.load(data / "plan.toml")
    readout = build_readout(read.replies, plan, labels=read.labels, seed=7)
    return readout.save(tmp_path_factory.mktemp("readout"))[0]


def test_first_screen_and_network_and_contrast(page_file: Path, browser: str) -> None:
    """The first screen is complete, alone and readable; a phone needs no sideways.

    Complete at 1280x800 without scrolling, no request leaves, contrast 4.5:1 in light
    and dark.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        try:
            for scheme in ("light", "dark"):
                page = chromium.new_page(
                    viewport={"width": 1280, "height": 800}, color_scheme=scheme
                )
                asked: list[str] = []
                page.on("request", lambda r, asked=asked: asked.append(r.url))
                page.context.set_offline(True)
                page.goto(page_file.as_uri())
                assert asked == [page_file.as_uri()]
                assert page.evaluate(CONTRAST) == []
                low = page.evaluate(
                    "() => Math.max(...[...document.querySelectorAll('.verdict, "
                    ".effect, .pair:first-of-type figure')]"
                    ".map(e => e.getBoundingClientRect().bottom))"
                )
                assert low <= 800
                page.close()
            phone = chromium.new_page(viewport={"width": 390, "height": 800})
            phone.goto(page_file.as_uri())
            wide = phone.evaluate("() => document.documentElement.scrollWidth")
            assert wide <= 390
        finally:
            chromium.close()
