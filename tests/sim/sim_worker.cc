#include "tests/sim/sim_worker.h"

#include <cstring>

#include "absl/strings/str_join.h"
#include "common/model/initializer.h"
#include "tests/sim/sim_cluster.h"

namespace cairn::sim {

SimWorker::SimWorker(SimCluster& cluster, int index, int slots, int slowness)
    : cluster_(cluster),
      world_(cluster.world()),
      name_(absl::StrFormat("worker-%d", index)),
      slots_(slots),
      slowness_(slowness) {}

void SimWorker::Start() {
  up_ = true;
  ++process_;
  world_.Trace("%s starts", name_);
  cluster_.JoinCluster(name_, process_);
}

void SimWorker::Crash() {
  world_.Trace("%s is killed", name_);
  up_ = false;
  core_.reset();
  ++core_number_;
  values_before_ = {};
  for (auto& [address, stream] : streams_) {
    if (!stream->open) continue;
    stream->open = false;
    if (stream->ps->up() && stream->ps->address() == address) {
      world_.After(world_.NetworkDelay(), [ps = stream->ps, token = stream->token] {
        if (ps->up()) ps->OnStreamClosed(token);
      });
    }
  }
  streams_.clear();
}

v1::Hello SimWorker::Hello() const {
  v1::Hello hello;
  hello.set_name(name_);
  hello.set_role(v1::WORKER);
  hello.set_host(name_);
  hello.set_slots(slots_);
  hello.set_device("sim");
  hello.set_fingerprint("sim");
  hello.set_incarnation(process_);
  if (core_ != nullptr && !core_->replicas().empty()) {
    v1::HeldReplicas* running = hello.add_running();
    running->set_job_id(assignment_.job_id());
    running->set_generation(core_->generation().value);
    for (int32_t r : core_->replicas()) running->add_replicas(r);
  }
  return hello;
}

v1::Heartbeat SimWorker::Heartbeat() const {
  v1::Heartbeat heartbeat;
  if (core_ != nullptr && core_->step() >= 0) {
    v1::JobProgress* progress = heartbeat.add_progress();
    progress->set_job_id(assignment_.job_id());
    progress->set_generation(core_->generation().value);
    progress->set_step(core_->step());
  }
  return heartbeat;
}

void SimWorker::OnCommand(const v1::CoordinatorMessage& message) {
  if (message.has_assign_replicas()) {
    const v1::AssignReplicas& assign = message.assign_replicas();
    world_.Trace("%s is given replicas [%s], assignment %d, generation %d", name_, absl::StrJoin(assign.replicas(), ","),
                 assign.assignment(), assign.generation());
    if (core_ == nullptr) {
      if (assign.replicas().empty()) return;
      ReplicaCoreOptions options;
      options.jitter_seed = world_.rng.Next();
      core_ = std::make_unique<ReplicaCore>(options);
      ++core_number_;
    }
    assignment_ = assign;
    Run(replica::Assign{assign});
  } else if (message.has_drop_job()) {
    world_.Trace("%s drops the job", name_);
    core_.reset();
    ++core_number_;
  } else if (message.has_inspect_data()) {
    v1::NodeMessage reply;
    reply.mutable_data_info()->set_request_id(message.inspect_data().request_id());
    *reply.mutable_data_info()->mutable_info() = DataOf(cluster_.train_examples());
    Later(absl::Milliseconds(5), [this, reply] { cluster_.NodeSays(name_, reply); });
  } else if (message.has_finalize()) {
    v1::NodeMessage reply;
    reply.mutable_finalized()->set_job_id(message.finalize().job_id());
    if (cluster_.Finished()) {
      reply.mutable_finalized()->set_digest("0123456789abcdef0123456789abcdef");
    } else {
      reply.mutable_finalized()->set_error("UNAVAILABLE: a ps is away");
    }
    Later(absl::Milliseconds(5), [this, reply] { cluster_.NodeSays(name_, reply); });
  }
}

void SimWorker::Run(replica::Event event) {
  if (core_ == nullptr) return;
  replica::Effects effects = core_->Step(std::move(event), world_.now());
  for (replica::Effect& effect : effects) Carry(effect);
}

void SimWorker::Later(absl::Duration delay, std::function<void()> fn) {
  world_.After(delay, [this, process = process_, fn = std::move(fn)] {
    if (up_ && process_ == process) fn();
  });
}

void SimWorker::Carry(replica::Effect& effect) {
  if (auto* send = std::get_if<replica::Send>(&effect)) {
    Send(std::move(*send));
  } else if (auto* compute = std::get_if<replica::Compute>(&effect)) {
    Compute(std::move(*compute));
  } else if (auto* evaluate = std::get_if<replica::Evaluate>(&effect)) {
    BatchSums sums;
    sums.examples = evaluate->places.size();
    Later(slowness_ * world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(20)),
          [this, number = core_number_, work = evaluate->work, sums] {
            if (core_number_ == number) Run(replica::Evaluated{work, sums});
          });
  } else if (auto* report = std::get_if<replica::Report>(&effect)) {
    v1::NodeMessage message;
    *message.mutable_replica_report() = report->report;
    cluster_.NodeSays(name_, std::move(message));
  } else if (auto* timer = std::get_if<replica::SetTimer>(&effect)) {
    const absl::Time at = timer->at;
    Later(at - world_.now(), [this, number = core_number_] {
      if (core_number_ == number) Run(replica::Timer{});
    });
  } else if (auto* fail = std::get_if<replica::Fail>(&effect)) {
    world_.Fail(absl::StrFormat("%s cannot go on: %s", name_, fail->message));
  }
}

void SimWorker::Compute(replica::Compute work) {
  const auto& spec = cluster_.spec();
  const int64_t examples = cluster_.plan().Places(work.step, work.replica).size();
  if (examples <= 0) world_.Fail(absl::StrFormat("%s computes a replica without examples", name_));
  Later(slowness_ * world_.rng.Between(absl::Milliseconds(10), absl::Milliseconds(80)),
        [this, number = core_number_, work = std::move(work), &spec, examples]() mutable {
          if (core_number_ != number) return;
          Buffer values = work.values;
          int64_t step = work.step;
          switch (cluster_.options().bug) {
            case PlantedBug::kStaleValues:
              if (!values_before_.empty() && world_.rng.Chance(0.1)) values = values_before_;
              values_before_ = Buffer::CopyOf(work.values.data(), work.values.size());
              break;
            case PlantedBug::kSkipExamples:
              if (core_->step() > 0 && assignment_.assignment() > 1) ++step;
              break;
            default: break;
          }
          FillGradient(spec, step, work.replica, examples, values.floats(), work.gradient.mutable_floats());
          if (cluster_.options().bug == PlantedBug::kAddInOrderOfArrival && spec.replicas() > 2) {
            // Rounding as another order of additions would leave it.
            work.gradient.mutable_floats()[0] = std::nextafterf(work.gradient.floats()[0], 1e30f);
          }
          const uint64_t id = work.work;
          values = {};
          work.values = {};
          work.gradient = {};
          const uint32_t partitions = core_->ranges().size();
          const uint32_t cut = world_.rng.Between(0, partitions);
          Run(replica::GradientReady{id, cut, partitions});
          if (core_number_ != number) return;
          if (cut > 0) Run(replica::GradientReady{id, 0, cut});
          if (core_number_ != number) return;
          BatchSums sums;
          sums.examples = examples;
          Run(replica::Computed{id, sums});
        });
}

void SimWorker::Fail(uint64_t request, absl::Status status) {
  Later(world_.NetworkDelay(), [this, number = core_number_, request, status = std::move(status)] {
    if (core_number_ == number) Run(replica::Reply{request, status});
  });
}

void SimWorker::Send(replica::Send send) {
  SimPs* ps = cluster_.FindPs(send.address);
  if (ps == nullptr) return Fail(send.request, absl::UnavailableError("connection refused"));
  std::shared_ptr<Exchange>& stream = streams_[send.address];
  if (stream == nullptr || !stream->open) stream = cluster_.OpenExchange(this, ps);
  send.frame.request_id = ++stream->next_request;
  stream->outstanding[send.frame.request_id] = send.request;
  if (world_.rng.Chance(world_.network.lost)) {
    world_.Trace("the stream %s - %s breaks", name_, ps->name());
    Later(world_.NetworkDelay(), [this, ps] { BreakStreams(ps); });
    return;
  }
  const int copies = world_.rng.Chance(world_.network.repeated) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    world_.After(world_.NetworkDelay(), [stream = stream, ps, address = send.address, frame = send.frame] {
      if (stream->open && ps->up() && ps->address() == address) ps->OnFrame(stream, CopyOverWire(frame));
    });
  }
}

void SimWorker::OnReply(const std::shared_ptr<Exchange>& stream, const Frame& frame) {
  auto found = stream->outstanding.find(frame.request_id);
  if (found == stream->outstanding.end()) return;  // the answer to a repeated request
  const uint64_t request = found->second;
  stream->outstanding.erase(found);
  if (frame.kind == v1::ExchangeFrame::ERROR) return Run(replica::Reply{request, frame.status});
  cluster_.oracle().Acknowledged(frame.partition.value, frame.version);
  Run(replica::Reply{request, frame});
}

void SimWorker::BreakStreams(SimPs* ps) {
  for (auto it = streams_.begin(); it != streams_.end();) {
    std::shared_ptr<Exchange> stream = it->second;
    if (ps != nullptr && stream->ps != ps) {
      ++it;
      continue;
    }
    const bool reaches = stream->ps->up() && stream->ps->address() == it->first;
    it = streams_.erase(it);
    if (!stream->open) continue;
    stream->open = false;
    for (const auto& [id, request] : stream->outstanding) Fail(request, absl::UnavailableError("the stream broke"));
    if (reaches) {
      world_.After(world_.NetworkDelay(), [ps = stream->ps, token = stream->token] {
        if (ps->up()) ps->OnStreamClosed(token);
      });
    }
  }
}

}  // namespace cairn::sim
