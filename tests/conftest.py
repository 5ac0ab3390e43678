"""Settings for all tests."""

from hypothesis import settings

# A busy machine is slow now and then; that is no finding about the code.
settings.register_profile("ridgeline", deadline=None)
settings.load_profile("ridgeline")
