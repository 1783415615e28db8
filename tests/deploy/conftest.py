"""What needs tools of its own runs in `make test-deploy`; the rest in the suite."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("REFEREE_TEST_DEPLOY") else ["test_lint.py", "test_image.py"]
