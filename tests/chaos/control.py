"""Uses a share of a processor and sends nothing: what a hostile client takes of the machine by being there, without
what it does to a daemon.

    python3 control.py SHARE      0 to 1, until SIGTERM"""

import sys
import time

SLICE_SECONDS = 0.01


def main():
    share = float(sys.argv[1])
    while True:
        begin = time.process_time()
        while time.process_time() - begin < share * SLICE_SECONDS:
            pass
        time.sleep((1 - share) * SLICE_SECONDS)


if __name__ == "__main__":
    main()
