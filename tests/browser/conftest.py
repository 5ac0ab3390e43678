"""A real browser, where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ridgeline.report.page import write_page
from ridgeline.report.study import Study

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the PATH")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open the page of a study from disk. What goes wrong on the way fails the test."""
    pages: list[Any] = []
    trouble: list[str] = []

    def refuse(dialog: Any) -> None:
        trouble.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def open_page(study: Study, **context: Any) -> Any:
        path = write_page(study, tmp_path / "page.html")
        page = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **context})
        page = page.new_page()
        pages.append(page)
        page.on("console", lambda said: trouble.append(f"console: {said.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("dialog", refuse)
        page.on("request", lambda r: None if _is_local(r.url) else trouble.append(r.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for page in pages:
        page.context.close()
    assert trouble == []


def _is_local(url: str) -> bool:
    return url.startswith(("file:", "data:"))
