"""What holds for all tests. Hypothesis: `--hypothesis-profile=soak` is for `make soak`, which has time for rare cases."""

import signal

import hypothesis

hypothesis.settings.register_profile("soak", max_examples=3000, deadline=None)

# Started in the background by a shell, Ctrl-C is ignored here and in every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
