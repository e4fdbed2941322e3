"""Hypothesis in these tests: `--hypothesis-profile=soak` is for `make soak`, which has the time for rare cases."""

import hypothesis

hypothesis.settings.register_profile("soak", max_examples=3000, deadline=None)
