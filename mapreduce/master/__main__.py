"""`python -m mrstream.mapreduce.master`: be the job master."""

from __future__ import annotations

import sys

from mrstream.mapreduce.master.master import main

sys.exit(main())
