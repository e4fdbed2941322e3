"""What holds for all tests. Hypothesis has a profile for `make soak`, which has the time for rare cases."""

import os
import signal

import hypothesis

hypothesis.settings.register_profile("soak", max_examples=3000, deadline=None)

# Every interpreter that a test starts reports what of hookline's objects outlives it.
os.environ["HOOKLINE_TEST_LEAKS"] = "1"

# Started in the background by a shell, Ctrl-C is ignored here and in every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
