"""Work in forks of the test process, which have imported everything and may be killed."""

import multiprocessing
import os
import traceback
import warnings

import torch

WARM = multiprocessing.get_context("fork")
# Forks need none of the threads that pytest-xdist has.
THREADS = "ignore:This process .* is multi-threaded:DeprecationWarning"


def fork(work):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # as `THREADS`
        process = os.fork()
    if not process:
        try:
            warnings.simplefilter("ignore", ResourceWarning)  # as for a user; Ctrl-C may come between `open` and `with`
            torch.set_num_threads(1)  # it would wait for those that it does not have
            work()
            os._exit(0)
        except SystemExit as end:
            os._exit(end.code)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return process


def forked(work):
    return ended(fork(work))


def ended(process):
    """Wait for a fork; return its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
