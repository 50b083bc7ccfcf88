"""`python -m mrstream.mapreduce.worker`: be the worker of a host."""

from __future__ import annotations

import sys

from mrstream.mapreduce.worker.worker import main

sys.exit(main())
