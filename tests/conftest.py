"""Settings for all tests."""

import signal

from hypothesis import settings

# A busy machine is slow now and then; that is no finding about the code.
settings.register_profile("ridgeline", deadline=None)
settings.load_profile("ridgeline")

# A shell lets its background jobs ignore Ctrl-C, and so would everything that is started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
