"""What all histories share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of simulated failures make thousands of lines; other tests look at theirs."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
