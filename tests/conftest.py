"""What holds for all tests. Hypothesis has a profile for `make soak`, which has the time for rare cases."""

import signal

import hypothesis

hypothesis.settings.register_profile("soak", max_examples=3000, deadline=None)

# Started in the background by a shell, Ctrl-C is ignored here and in every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
