"""A thread that does something to a cluster beside the test, from the beginning of a `with` block to its end. An error
of the thread is raised in the test, by `check` or at the end of the block."""

import threading


class Beside:
    """Derived classes have `act`, which returns when `ending` is set."""

    def __init__(self):
        self.error = None
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.finish()

    def check(self):
        if self.error is not None:
            raise self.error

    def run(self):
        try:
            self.act()
        except BaseException as error:  # of any type: the test's thread must see it
            self.error = error
