"""What goes on beside hostile clients: jobs that train, a user who asks, and the daemons' memory, descriptors and
threads."""

import dataclasses
import os
import threading
import time

import grpc
import wire
from beside import Beside
from cluster import check
from google.protobuf import text_format
from wire import cluster_pb2, job_status_pb2

MIB = 1 << 20
CALL_SECONDS_MAX = 60  # then it was not answered
SAMPLE_SECONDS = 0.05


class ToItsEnd(Beside):
    """What it does last ends by itself."""

    def finish(self):
        self.ending.set()
        self.thread.join()
        self.check()


def call(channel, name, request, reply, timeout=CALL_SECONDS_MAX):
    made = channel.unary_unary(
        f"/cairn.v1.JobService/{name}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=reply.FromString,
    )
    return made(request, timeout=timeout)


def watch(channel, job_id):
    return channel.unary_stream(
        "/cairn.v1.JobService/WatchJob",
        request_serializer=cluster_pb2.GetJobRequest.SerializeToString,
        response_deserializer=job_status_pb2.JobStatus.FromString,
    )(cluster_pb2.GetJobRequest(job_id=job_id))


def submitted(channel, job_text, name, priority=0):
    request = cluster_pb2.SubmitRequest()
    text_format.Parse(job_text, request.spec)
    request.spec.name = name
    request.spec.priority = priority
    return call(channel, "Submit", request, cluster_pb2.SubmitResponse).job.job_id


class Training(ToItsEnd):
    """The same job again and again, one at a time; each has to end with the same digest."""

    def __init__(self, cluster, job_text, digest):
        super().__init__()
        self.cluster = cluster
        self.job_text = job_text
        self.digest = digest
        self.job = 0
        self.ended = 0
        self.runs = threading.Event()
        self.seen = []  # (time, job, step) of each status that came while it ran

    def act(self):
        """The next one waits already, so that no other job comes between."""
        with wire.open_channel(self.cluster.address) as channel:
            waiting = submitted(channel, self.job_text, "honest-0", priority=1)
            while not self.ending.is_set():
                job, waiting = waiting, submitted(channel, self.job_text, f"honest-{self.ended + 1}", priority=1)
                self.follow(channel, job)
                self.ended += 1
            call(channel, "CancelJob", cluster_pb2.GetJobRequest(job_id=waiting), job_status_pb2.JobStatus)

    def follow(self, channel, job):
        status = None
        for status in watch(channel, job):
            if status.state == job_status_pb2.RUNNING and status.step > 0:
                self.job = job
                self.runs.set()
                self.seen.append((time.monotonic(), job, status.step))
        how = job_status_pb2.JobState.Name(status.state)
        check(how == "SUCCEEDED", f"job {job}: {how} {status.reason}")
        check(status.digest == self.digest, f"job {job}: digest {status.digest}, undisturbed {self.digest}")

    def steps(self, begin, end):
        """Between two times: (seconds of a step, the longest time in which no step was seen to be made)."""
        inside = [one for one in self.seen if begin <= one[0] <= end]
        pairs = [(a, b) for a, b in zip(inside, inside[1:]) if a[1] == b[1]]
        made = sum(b[2] - a[2] for a, b in pairs)
        stood, since = 0.0, {}
        for at, job, step in inside:
            stood = max(stood, at - since.setdefault((job, step), at))
        return (sum(b[0] - a[0] for a, b in pairs) / made if made else 0.0), max(
            [stood, *(b[0] - a[0] for a, b in pairs)]
        )


class Honest(ToItsEnd):
    """A user's calls, one after the other, each on a connection of its own; and pulls as a worker makes them."""

    def __init__(self, cluster, training, job_text):
        super().__init__()
        self.cluster = cluster
        self.training = training
        self.job_text = job_text
        self.waits = []  # (begin, seconds, what)
        self.rounds = 0

    def act(self):
        calls = [self.jobs, self.nodes, self.watch, self.pull, self.submit]
        while not self.ending.wait(0.1):
            for one in calls:
                begin = time.monotonic()
                try:
                    one()
                except grpc.RpcError as error:
                    waited = time.monotonic() - begin
                    check(False, f"{one.__name__}, after {waited:.1f} s: {error.code()} {error.details()}")
                self.waits.append((begin, time.monotonic() - begin, one.__name__))
            self.rounds += 1

    def jobs(self):
        with wire.open_channel(self.cluster.address) as channel:
            call(channel, "ListJobs", cluster_pb2.ListJobsRequest(), cluster_pb2.ListJobsResponse)

    def nodes(self):
        with wire.open_channel(self.cluster.address) as channel:
            nodes = call(channel, "ListNodes", cluster_pb2.ListNodesRequest(), cluster_pb2.ListNodesResponse).nodes
        known = [node for node in nodes if node.name in self.cluster.processes]
        check(all(node.alive for node in known), f"nodes are gone: {[n.name for n in known if not n.alive]}")

    def watch(self):
        with wire.open_channel(self.cluster.address) as channel:
            next(watch(channel, self.training.job))

    def pull(self):
        """Of a job's first partition, from whoever has it; it may just move to the next job. Where a ps says that it is
        busy, again, as a worker does: that is a part of the wait."""
        job = self.training.job
        with wire.open_channel(self.cluster.address) as channel:
            status = call(channel, "GetJob", cluster_pb2.GetJobRequest(job_id=job), job_status_pb2.JobStatus)
        if not status.partitions:
            return
        end = time.monotonic() + CALL_SECONDS_MAX
        with wire.open_channel(status.partitions[0].primary_address) as channel:
            while True:
                request = wire.Frame(kind=wire.Frame.PULL, request_id=1, job_id=job, replica_count=1, reply_dtype=1)
                reply = next(wire.exchange(channel, iter([request]), CALL_SECONDS_MAX))
                busy = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
                if reply.kind != wire.Frame.ERROR or reply.status_code != busy:
                    return
                check(time.monotonic() < end, f"pull: {reply.status_message}")
                self.ending.wait(0.05)

    def submit(self):
        with wire.open_channel(self.cluster.address) as channel:
            job = submitted(channel, self.job_text, "asked")
            request = cluster_pb2.GetJobRequest(job_id=job)
            call(channel, "CancelJob", request, job_status_pb2.JobStatus)
            call(channel, "DeleteJob", request, cluster_pb2.DeleteJobResponse)

    def longest(self, begin, end):
        return max(((s, what) for at, s, what in self.waits if begin <= at <= end), default=(0.0, "nothing"))


@dataclasses.dataclass
class Figures:
    resident_mib: float
    descriptors: int
    threads: int


def figures(pid):
    with open(f"/proc/{pid}/status") as f:
        fields = dict(line.split(":", 1) for line in f if ":" in line)
    open_files = len(os.listdir(f"/proc/{pid}/fd"))
    return Figures(int(fields["VmRSS"].split()[0]) / 1024, open_files, int(fields["Threads"]))


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        after_name = f.read().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")  # user's and the system's


class Meter(ToItsEnd):
    """The largest figures of each daemon since `reset`."""

    def __init__(self, cluster):
        super().__init__()
        self.cluster = cluster
        self.most = {}

    def now(self):
        return {name: figures(process.pid) for name, process in self.cluster.processes.items()}

    def processor_seconds(self):
        return {name: processor_seconds(process.pid) for name, process in self.cluster.processes.items()}

    def reset(self):
        self.most = {}

    def act(self):
        while not self.ending.wait(SAMPLE_SECONDS):
            for name, process in self.cluster.processes.items():
                code = process.poll()
                check(code is None, f"{name} ended with {code}:\n{self.cluster.log(name)[-3000:]}")
                now = figures(process.pid)
                most = self.most.setdefault(name, now)
                self.most[name] = Figures(
                    *(max(getattr(now, f.name), getattr(most, f.name)) for f in dataclasses.fields(Figures))
                )
