"""What a watch of a job does when its stream ends before the job has."""

import unittest
from unittest import mock

import cairn
from cairn import watch
from cairn.v1 import job_status_pb2


class Watching(unittest.TestCase):
    def statuses(self, *streams):
        """Each of `streams`: states, or an error in place of the next one."""
        waiting = list(streams)

        class Connection:
            def stream(self, _method, _request, _timeout):
                for said in waiting.pop(0):
                    if isinstance(said, Exception):
                        raise said
                    yield job_status_pb2.JobStatus(state=said)

        with mock.patch("time.sleep"):
            return [status.state for status in watch.watch(Connection(), 7, None)], len(waiting)

    def test_a_watch_waits_for_a_place(self):
        full, running, done = cairn.ResourceExhausted("full"), job_status_pb2.RUNNING, job_status_pb2.SUCCEEDED
        self.assertEqual(self.statuses([full], [full], [running, done]), ([running, done], 0))
        self.assertEqual(self.statuses([running, cairn.Unavailable("away")], [full], [done]), ([running, done], 0))

    def test_other_ends_are_errors(self):
        with self.assertRaises(cairn.ResourceExhausted):  # of the stream itself: the same would come again
            self.statuses([job_status_pb2.RUNNING, cairn.ResourceExhausted("too large")], [])
        with self.assertRaises(cairn.NotFound):
            self.statuses([cairn.NotFound("none")], [])
        with mock.patch.object(watch, "RECONNECT_S", -1), self.assertRaises(cairn.ResourceExhausted):
            self.statuses([cairn.ResourceExhausted("full")], [])


if __name__ == "__main__":
    unittest.main()
