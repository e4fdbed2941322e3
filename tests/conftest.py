"""Settings of all tests. `make soak` uses a Hypothesis profile with more examples, to find rare cases."""

import os
import signal

import hypothesis

hypothesis.settings.register_profile("soak", max_examples=3000, deadline=None)

# Every interpreter that a test starts reports at exit which hookline objects are still alive.
os.environ["HOOKLINE_TEST_LEAKS"] = "1"

# A shell starts background jobs with SIGINT ignored, and child processes inherit that. Tests send SIGINT, so restore
# the default.
signal.signal(signal.SIGINT, signal.default_int_handler)
