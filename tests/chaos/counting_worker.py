"""A worker whose gradients count pushes: the oracle for "acknowledged means kept" and "applied exactly once".

It is a worker of the cluster like any other (Session, Exchange), written in Python. It holds all replicas of one
asynchronous job with SGD and learning rate 1. Push s of replica r to a partition is 1 at index r * SLOTS + s % SLOTS
and 0 elsewhere. So each update lowers one number by one, and the final values tell how often each push was applied.
Every acknowledged sequence number is recorded in `acked`; an answer with a lower one is a violation. Some pushes are
repeated after they were acknowledged, as by a worker that lost its connection.
"""

import array
import queue
import random
import threading
import time

import grpc

from wire import Frame, cluster_pb2, data_pb2, exchange, job_status_pb2, open_channel, session, types_pb2

SLOTS = 64  # numbers of a partition that count the pushes of one replica
REPLICAS = 4
PLANTED = (0, 0, 3)  # partition, replica, sequence of the push that is planted
JOB = """
name: "counting"
model {
  layers { input { shape: [64] } }
  layers { dense { units: 32 kernel_initializer { kind: ZEROS } } }
}
data { path: "/counted/elsewhere" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true }
optimizer { sgd { } learning_rate: 1 }
strategy: PARAMETER_SERVER
batch_size: 4
epochs: 1000
replicas: 4
partition_bytes: 1024
%s
"""


class CountingWorker:
    """Runs in its own threads: one for the session, and one per replica and partition."""

    def __init__(self, addresses, seed, plant=""):
        self.addresses = addresses  # of the coordinators
        self.seed = seed
        self.plant = plant  # "drop" or "double": what happens to one push, to show that the oracle notices
        self.lock = threading.Condition()
        self.routes = {}  # partition -> cluster_pb2.Route
        self.job_id = 0
        self.generation = 0
        self.acked = {}  # (partition, replica) -> last sequence number acknowledged
        self.sent = {}  # (partition, replica) -> highest sequence number sent
        self.calls = {}  # (partition, replica) -> its running Exchange call
        self.violations = []
        self.stopping = False  # no more pushes
        self.closed = False
        self.threads = []
        self.spawn(self.sessions)

    def spawn(self, function, *args):
        thread = threading.Thread(target=function, args=args, daemon=True)
        self.threads.append(thread)
        thread.start()

    def stop_pushing(self):
        """Starts no further push, and waits until each sent one is acknowledged."""
        with self.lock:
            self.stopping = True
            self.lock.notify_all()
        for thread in self.threads[1:]:
            thread.join(timeout=120)
            if thread.is_alive():
                self.violations.append("a push was not answered within 120 s of the end of the faults")

    def close(self):
        with self.lock:
            self.closed = self.stopping = True
            self.lock.notify_all()
            for call in list(self.calls.values()):
                call.cancel()

    # ---- the session ----

    def hello(self):
        hello = cluster_pb2.Hello(
            name="counting",
            role=types_pb2.WORKER,
            host="counting",
            slots=REPLICAS,
            device="cpu",
            fingerprint="counting",
            incarnation=self.seed + 1,
        )
        if self.job_id:
            hello.running.add(job_id=self.job_id, generation=self.generation, replicas=range(REPLICAS))
        return cluster_pb2.NodeMessage(hello=hello)

    def heartbeat(self):
        message = cluster_pb2.NodeMessage(heartbeat=cluster_pb2.Heartbeat())
        with self.lock:
            if self.acked:
                message.heartbeat.progress.add(
                    job_id=self.job_id, generation=self.generation, step=min(self.acked.values())
                )
        return message

    def sessions(self):
        turn = 0
        while not self.closed:
            channel = open_channel(self.addresses[turn % len(self.addresses)])
            turn += 1
            out = queue.Queue()

            def messages(out=out):
                yield self.hello()
                while not self.closed:
                    try:
                        yield out.get(timeout=0.5)
                    except queue.Empty:
                        yield self.heartbeat()

            try:
                for command in session(channel, messages()):
                    self.on_command(command, out)
            except grpc.RpcError:
                time.sleep(0.1)
            channel.close()

    def on_command(self, command, out):
        kind = command.WhichOneof("kind")
        if kind == "inspect_data":
            info = job_status_pb2.DataInfo(
                path="/counted/elsewhere",
                format=data_pb2.Data.CSV,
                train_examples=1 << 20,
                example_shape=[64],
                classes=32,
            )
            out.put(
                cluster_pb2.NodeMessage(
                    data_info=cluster_pb2.DataInfoReply(request_id=command.inspect_data.request_id, info=info)
                )
            )
        elif kind == "assign_replicas":
            self.on_assign(command.assign_replicas)

    def on_assign(self, assign):
        with self.lock:
            if assign.generation < self.generation:
                return
            self.job_id = assign.job_id
            self.generation = assign.generation
            for route in assign.routes:
                partition = route.range.partition
                old = self.routes.get(partition)
                self.routes[partition] = route
                for replica in range(REPLICAS):
                    if old is None:
                        self.acked[partition, replica] = self.sent[partition, replica] = 0
                        self.spawn(self.pushes, partition, replica)
                    elif old.address != route.address and (partition, replica) in self.calls:
                        self.calls[partition, replica].cancel()
            self.lock.notify_all()

    # ---- the pushes ----

    def gradient(self, partition, replica, sequence):
        part = self.routes[partition].range
        values = array.array("f", bytes(4 * (part.end - part.begin)))
        planted = self.plant and (partition, replica, sequence) == PLANTED
        values[(replica * SLOTS + sequence % SLOTS) % len(values)] = (
            {"drop": 0.0, "double": 2.0}[self.plant] if planted else 1.0
        )
        return values.tobytes()

    def push(self, partition, replica, sequence, request_id):
        return Frame(
            kind=Frame.PUSH,
            request_id=request_id,
            job_id=self.job_id,
            partition=partition,
            generation=self.generation,
            replica_first=replica,
            replica_count=1,
            sequence=sequence,
            examples=1,
            learning_rate=1.0,
            dtype=types_pb2.FLOAT32,
            payload=self.gradient(partition, replica, sequence),
            payload_total=4 * self.size(partition),
            reply_dtype=types_pb2.FLOAT32,
        )

    def size(self, partition):
        return self.routes[partition].range.end - self.routes[partition].range.begin

    def done(self, partition, replica):
        """Call with the lock held. A sent push may have been applied, whatever happened to its answer."""
        return self.closed or (self.stopping and self.acked[partition, replica] == self.sent[partition, replica])

    def pushes(self, partition, replica):
        """Opens one stream after the other; on each, sends one push after the other."""
        while True:
            with self.lock:
                if self.done(partition, replica):
                    return
                address = self.routes[partition].address
            channel = open_channel(address)
            try:
                self.stream(channel, address, partition, replica)
            except grpc.RpcError:
                pass
            finally:
                channel.close()
            time.sleep(0.05)

    def stream(self, channel, address, partition, replica):
        requests = queue.Queue()
        call = exchange(channel, iter(requests.get, None))
        rng = random.Random(f"{self.seed} {partition} {replica}")
        with self.lock:
            self.calls[partition, replica] = call
        request_id = 0
        try:
            while True:
                with self.lock:
                    if self.done(partition, replica) or self.routes[partition].address != address:
                        return
                    acked = self.acked[partition, replica]
                    again = acked > 0 and not self.stopping and rng.random() < 0.1
                    sequence = acked if again else acked + 1
                    self.sent[partition, replica] = max(self.sent[partition, replica], sequence)
                request_id += 1
                requests.put(self.push(partition, replica, sequence, request_id))
                if not self.take(next(call), partition, replica, sequence):
                    time.sleep(0.05)
        finally:
            requests.put(None)
            call.cancel()
            with self.lock:
                del self.calls[partition, replica]

    def take(self, reply, partition, replica, sequence):
        if reply.kind == Frame.ERROR:
            if reply.status_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]:
                self.violations.append(
                    f"partition {partition}, replica {replica}, push {sequence} is refused: {reply.status_message}"
                )
            return False  # fenced, moved or restarting: retry with the coordinator's next assignment
        acked, sent = self.acked[partition, replica], self.sent[partition, replica]
        if not acked <= reply.sequence <= sent:
            self.violations.append(
                f"partition {partition}, replica {replica}: {acked} was acknowledged and {sent} sent, "
                f"the answer to push "
                f"{sequence} knows {reply.sequence}"
            )
        with self.lock:
            self.acked[partition, replica] = max(acked, reply.sequence)
        return True

    def wanted(self, partition):
        """The values after all acknowledged pushes, each applied once."""
        values = [0.0] * self.size(partition)
        for replica in range(REPLICAS):
            acked = self.acked[partition, replica]
            for slot in range(SLOTS):
                first = slot if slot > 0 else SLOTS
                values[(replica * SLOTS + slot) % len(values)] -= (
                    max(0, (acked - first) // SLOTS + 1) if acked >= first else 0
                )
        return values
