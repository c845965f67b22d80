"""The report in a real browser: everything is drawn, nothing is complained about, and it fits every screen.

The screenshots lie in ``$AX_SCREENSHOTS``, or else in pytest's temporary folder.
"""

from __future__ import annotations

import math
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ax_config import dumps, override
from ax_recipes import recipe
from ax_recipes.report import Sample, read_history, render
from ax_runtime.agent import JsonlSink, RunFolder
from playwright.sync_api import Browser, Page, sync_playwright

SCREENS = {
    "desktop": {"viewport": {"width": 1360, "height": 900}},
    "dark": {"viewport": {"width": 1360, "height": 900}, "color_scheme": "dark"},
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "device_scale_factor": 2,
        "is_mobile": True,
        "has_touch": True,
    },
}
NUM_STEPS = 3_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The machine's own Chromium, or the one that playwright has installed; without either, an error."""
    with sync_playwright() as playwright:
        found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def _run(folder: Path, peak: float) -> Path:
    config = override(recipe("tiny")(num_steps=NUM_STEPS), [f"trainer.optimizer.schedule.peak_value={peak}"])
    dice = random.Random(peak)
    seconds_a_step = 0.4 + 20 * peak
    with RunFolder(folder, config=dumps(config), environment={"accelerator": "v5e-8", "devices": "8 × TPU v5e"}):
        sink = JsonlSink(folder / "metrics.jsonl")
        for step in range(NUM_STEPS + 1):
            if step in (0, 1_000):
                sink.write(step, "speed", {"start": 1.0})
            if step == 0:
                continue
            loss = 2 + 200 * peak + 4 * math.exp(-step / 100) + dice.gauss(0, 0.1) + (4 if step == 2_000 else 0)
            rate = peak * (1 + math.cos(math.pi * step / NUM_STEPS)) / 2
            norm = abs(dice.gauss(1, 0.1))
            sink.write(step, "train", {"loss": loss, "learning_rate": rate, "grad_norm": norm, "num_targets": 2048.0})
            speed = {"step_seconds": seconds_a_step, "tokens_per_second": 2048 / seconds_a_step}
            speed["mfu"] = (0.2 + dice.random() / 50) / seconds_a_step
            sink.write(step, "speed", speed)
            sink.write(step, "train", {f"layers/{layer}/entropy": dice.random() for layer in range(3)})
            if step % 500 == 0:
                sink.write(step, "validation", {"loss": loss + 0.1})
                seconds = {
                    "step": seconds_a_step * step,
                    "compile": 4.0,
                    "input": 0.01 * step,
                    "checkpoint": 0.02 * step,
                }
                total = sum(seconds.values())
                account = {f"{cause}_seconds": value for cause, value in seconds.items()}
                sink.write(step, "goodput", {"share": seconds["step"] / total, "seconds": total, **account})
            if step == 2_000:
                sink.write(step, "events", {"skipped": 1.0, "loss": loss})
        sink.close()
    return folder


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    sample = Sample("def add(a, b):\n    ", "return a + b  # </script>\n", NUM_STEPS)
    runs = [read_history(_run(folder / str(peak), peak), samples=[sample]) for peak in (4e-3, 1e-3)]
    file = folder / "report.html"
    file.write_text(render(runs), encoding="utf-8")
    return file


def _opened(browser: Browser, report: Path, screen: str) -> tuple[Page, list[str]]:
    complaints: list[str] = []
    page = browser.new_context(offline=True, **SCREENS[screen]).new_page()  # type: ignore[arg-type]  # each option has its own type
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if request.url.startswith("http") else None)
    page.goto(report.as_uri())
    page.wait_for_selector(".plot canvas")
    return page, complaints


_INK = """canvas => {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < pixels.length; i += 4)
    if (pixels[i + 3] > 200) seen.add(pixels[i] + ',' + pixels[i + 1] + ',' + pixels[i + 2]);
  return [...seen];
}"""


@pytest.mark.parametrize("screen", SCREENS)
def test_everything_is_drawn_and_fits(browser: Browser, report: Path, screen: str) -> None:
    page, complaints = _opened(browser, report, screen)
    page.eval_on_selector_all("details.more", "all => all.forEach(one => one.open = true)")
    height = page.evaluate("document.documentElement.scrollHeight")
    width = SCREENS[screen]["viewport"]["width"]  # type: ignore[index]  # as above
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function(
        "document.querySelectorAll('.plot').length === document.querySelectorAll('.plot canvas').length"
    )
    page.wait_for_timeout(300)  # for the canvases to be painted at their last size
    shots = Path(os.environ.get("AX_SCREENSHOTS", report.parent))
    shots.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=shots / f"{screen}.png", full_page=True)

    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    titles = page.locator(".chart h3").all_inner_texts()
    assert titles[:3] == ["Loss", "Learning rate", "Gradient norm"]
    assert len(titles) == 10
    colours = {"dark": ("86,180,233", "255,139,61")}.get(screen, ("0,114,178", "213,94,0"))
    for canvas in page.locator(".plot canvas").all():
        ink = set(canvas.evaluate(_INK))
        assert ink.issuperset(colours), f"both runs' lines should be on {canvas}, there is {sorted(ink)[:9]}"
    for section in ("goodput", "events", "samples", "differences", "environment", "starts", "configs"):
        assert page.locator(f"#{section}").is_visible(), section
    assert "# </script>" in page.locator("#samples").inner_text()


def test_controls_change_what_is_drawn(browser: Browser, report: Path) -> None:
    page, complaints = _opened(browser, report, "desktop")
    canvas = page.locator(".plot canvas").first

    def drawn() -> str:
        page.wait_for_timeout(150)
        return str(canvas.evaluate("canvas => canvas.toDataURL()"))

    seen = [drawn()]
    for act in (
        lambda: page.locator("#smoothing").fill("0.95"),
        lambda: page.locator("#log").click(),
        lambda: page.locator("#axis").select_option("tokens"),
        lambda: page.locator("#axis").select_option("hours"),
        lambda: page.locator("#theme").click(),
        lambda: page.locator("#runs .run").first.click(),
    ):
        act()
        seen.append(drawn())
    assert len(set(seen)) == len(seen)
    assert complaints == []


def test_values_follow_the_cursor_and_a_head_sorts(browser: Browser, report: Path) -> None:
    page, complaints = _opened(browser, report, "desktop")
    plot = page.locator(".plot .u-over").first
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    values = page.locator(".chart .values")
    assert "step 1,5" in values.nth(0).inner_text()
    assert "step 1,5" in values.nth(1).inner_text()  # the charts' cursors are one
    names = page.locator("#summary td.name")
    assert names.all_inner_texts() == ["0.004", "0.001"]
    page.locator("#summary th", has_text="run").click()
    assert names.all_inner_texts() == ["0.001", "0.004"]
    assert complaints == []
