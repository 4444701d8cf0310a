#include "tests/sim/sim_worker.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/clip_norm.h"
#include "tests/sim/sim_cluster.h"

namespace cairn::sim {

SimWorker::SimWorker(SimCluster& cluster, int index, int slots)
    : SimNode(cluster, absl::StrFormat("worker-%d", index)), slots_(slots) {}

void SimWorker::OnEnd() {
  core_.reset();
  by_layer_.clear();
  book_ = nullptr;
  not_written_.reset();
  restores_.clear();
  ++core_number_;
  values_before_ = {};
  for (auto& [address, stream] : std::exchange(streams_, {})) {
    if (stream != nullptr) stream->Close();
  }
}

v1::Hello SimWorker::Hello() {
  v1::Hello hello;
  hello.set_name(name());
  hello.set_role(v1::WORKER);
  hello.set_host(name());
  hello.set_slots(slots_);
  hello.set_device("sim");
  hello.set_fingerprint("sim");
  const bool forgets = cluster_.options().bug == PlantedBug::kForgetDevice && host_.process > 1;
  if (device_) FillDevice(forgets ? v1::CPU : *device_, hello);
  hello.set_incarnation(host_.process);
  if (core_ != nullptr && !core_->replicas().empty()) {
    v1::HeldReplicas* running = hello.add_running();
    running->set_job_id(assignment_.job_id());
    running->set_generation(core_->generation().value);
    for (int32_t r : core_->replicas()) running->add_replicas(r);
  }
  return hello;
}

v1::Heartbeat SimWorker::Heartbeat() {
  v1::Heartbeat heartbeat;
  if (core_ != nullptr) {
    if (const std::optional<v1::JobProgress> progress = core_->progress()) *heartbeat.add_progress() = *progress;
  }
  return heartbeat;
}

void SimWorker::OnCommand(const v1::CoordinatorMessage& message) {
  if (message.has_assign_replicas()) {
    const v1::AssignReplicas& assign = message.assign_replicas();
    if (core_ == nullptr) {
      if (assign.replicas().empty()) return;
      ReplicaCoreOptions options;
      options.jitter_seed = world_.rng.Next();
      core_ = std::make_unique<ReplicaCore>(options);
      book_ = std::make_shared<CheckpointBook>();
      ++core_number_;
    }
    assignment_ = assign;
    if (cluster_.options().bug == PlantedBug::kForgetGate) assignment_.set_epochs_open(0);
    book_->Know(assign.checkpoints());
    Run(replica::Assign{assignment_});
  } else if (message.has_drop_job()) {
    core_.reset();
    by_layer_.clear();
    ++core_number_;
  } else if (message.has_inspect_data()) {
    Inspect(message.inspect_data());
  } else if (message.has_finalize()) {
    Finalize(message.finalize());
  } else if (message.has_restore()) {
    Restore(message.restore());
  } else if (message.has_mark_best()) {
    MarkBest(message.mark_best());
  } else if (message.has_save_model()) {
    SaveModel(message.save_model());
  } else if (message.has_write_summaries()) {
    WriteSummaries(message.write_summaries());
  } else if (message.has_welcome()) {
    ReportCheckpointsAgain();
    Run(replica::ReportAgain{});
  }
}

void SimWorker::Run(replica::Event event) {
  if (core_ == nullptr) return;
  replica::Effects effects = core_->Step(std::move(event), Now());
  for (replica::Effect& effect : effects) Carry(effect);
}

void SimWorker::LaterInCore(absl::Duration delay, std::function<void()> fn) {
  Later(delay, [this, number = core_number_, fn = std::move(fn)] {
    if (core_number_ == number) fn();
  });
}

void SimWorker::Carry(replica::Effect& effect) {
  if (auto* send = std::get_if<replica::Send>(&effect)) {
    Send(std::move(*send));
  } else if (auto* compute = std::get_if<replica::Compute>(&effect)) {
    if (compute->by_layer) {
      ComputeByLayer(std::move(*compute));
    } else {
      Compute(std::move(*compute));
    }
  } else if (const auto* here = std::get_if<replica::WeightsHere>(&effect)) {
    WeightsHere(*here);
  } else if (const auto* stop = std::get_if<replica::StopWork>(&effect)) {
    StopWork(stop->work);
  } else if (auto* evaluate = std::get_if<replica::Evaluate>(&effect)) {
    BatchSums sums;
    sums.examples = evaluate->places.size();
    sums.loss = static_cast<double>(sums.examples) *
                LossOfEpoch(cluster_.facts().spec, evaluate->step / cluster_.facts().plan.steps_per_epoch - 1);
    LaterInCore(host_.cpu * world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(20)),
                [this, work = evaluate->work, sums] {
                  Run(replica::Evaluated{work, sums});
                });
  } else if (auto* take = std::get_if<replica::TakeCheckpoint>(&effect)) {
    TakeCheckpoint(std::move(*take));
  } else if (auto* report = std::get_if<replica::Report>(&effect)) {
    v1::NodeMessage message;
    *message.mutable_replica_report() = report->report;
    Say(std::move(message));
  } else if (auto* timer = std::get_if<replica::SetTimer>(&effect)) {
    LaterInCore(std::max(absl::ZeroDuration(), timer->at - Now()) + absl::Nanoseconds(1),
                [this] { Run(replica::Timer{}); });
  } else if (auto* fail = std::get_if<replica::Fail>(&effect)) {
    world_.Fail(absl::StrFormat("%s cannot go on: %s", name(), fail->message));
  }
}

// ---- computation ----

void SimWorker::Compute(replica::Compute work) {
  const auto& facts = cluster_.facts();
  if (facts.plan.Places(work.step, work.replica).size() <= 0) {
    world_.Fail(absl::StrFormat("%s computes a replica without examples", name()));
  }
  const auto done = [this, work = std::move(work)]() mutable {
    const auto& facts = cluster_.facts();
    Buffer values = work.values;
    PlaceRange places = facts.plan.Places(work.step, work.replica);
    switch (cluster_.options().bug) {
      case PlantedBug::kStaleValues:
        if (!values_before_.empty() && world_.rng.Chance(0.1)) values = values_before_;
        values_before_ = Buffer::CopyOf(work.values.data(), work.values.size());
        break;
      case PlantedBug::kSkipExamples:
        if (assignment_.assignment() > 1 && work.step + 1 < facts.plan.total_steps) {
          const PlaceRange next = facts.plan.Places(work.step + 1, work.replica);
          if (next.size() == places.size()) places = next;
        }
        break;
      default: break;
    }
    cluster_.checkers().epoch.Computed(work.step, work.replica, places);
    FillGradient(facts.spec, work.step, work.replica, places.size(), values.floats(), work.gradient.mutable_floats(), 0,
                 work.loss_scale);
    if (cluster_.options().bug == PlantedBug::kAddInOrderOfArrival && facts.spec.replicas() > 2) {
      // Rounding as another order of additions would leave it.
      work.gradient.mutable_floats()[0] = std::nextafterf(work.gradient.floats()[0], 1e30f);
    }
    const uint64_t id = work.work, number = core_number_;
    const int64_t examples = places.size(), step = work.step;
    if (cluster_.options().bug == PlantedBug::kHalfGroup && facts.group > 1 && work.replica.value % facts.group == 1) {
      for (float& g : work.gradient.mutable_floats()) g = 0;
    }
    values = {};
    work.values = {};
    work.gradient = {};
    const uint32_t partitions = core_->ranges().size();
    const uint32_t cut = world_.rng.Between(0, partitions);
    Run(replica::GradientReady{id, cut, partitions});
    if (core_number_ == number && cut > 0) Run(replica::GradientReady{id, 0, cut});
    if (core_number_ != number) return;
    BatchSums sums;
    sums.examples = examples;
    sums.loss = static_cast<double>(examples) * LossOfEpoch(facts.spec, facts.plan.EpochOf(step));
    Run(replica::Computed{id, sums});
  };
  LaterInCore(host_.cpu * world_.rng.Between(absl::Milliseconds(10), absl::Milliseconds(80)), done);
}

void SimWorker::ComputeByLayer(replica::Compute work) {
  // It waits for a slot; the word to stop it is lost until then.
  LaterInCore(host_.cpu * world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(40)),
              [this, work = std::move(work)] {
                const uint64_t id = work.work;
                by_layer_[id] = {work, 1, 0};
                Run(replica::WeightsWanted{id, 0, 1});
              });
}

void SimWorker::WeightsHere(const replica::WeightsHere& here) {
  const auto it = by_layer_.find(here.work);
  if (it == by_layer_.end() || here.partition + 1 != it->second.wanted || it->second.here == it->second.wanted) return;
  ByLayer& work = it->second;
  work.here = work.wanted;
  const auto partitions = static_cast<uint32_t>(core_->ranges().size());
  if (work.here < partitions) {
    LaterInCore(host_.cpu * absl::Milliseconds(1), [this, id = here.work] {
      const auto next = by_layer_.find(id);
      if (next == by_layer_.end()) return;
      const uint32_t p = next->second.wanted++;
      Run(replica::WeightsWanted{id, p, p + 1});
    });
    return;
  }
  replica::Compute compute = std::move(work.compute);
  by_layer_.erase(it);
  Compute(std::move(compute));
}

void SimWorker::StopWork(uint64_t work) {
  if (by_layer_.erase(work) == 0) return;
  LaterInCore(host_.cpu * absl::Milliseconds(1), [this, work] {
    Run(replica::Computed{work, absl::CancelledError("stopped")});
  });
}

// ---- the data plane ----

std::shared_ptr<Exchange> SimWorker::ExchangeTo(const std::string& address) {
  std::shared_ptr<Exchange>& exchange = streams_[address];
  if (exchange == nullptr || exchange->broken()) {
    SimPs* ps = cluster_.FindPs(address);
    if (ps == nullptr) return exchange = nullptr;
    exchange = std::make_shared<Exchange>(world_, cluster_.network(), host_, ps);
    if (cluster_.options().bug == PlantedBug::kLeakRequests) exchange->LeakRequests();
  }
  return exchange;
}

void SimWorker::Send(replica::Send send) {
  const auto answered = [this, request = send.request, number = core_number_](absl::StatusOr<Frame> frame) {
    if (core_number_ != number) return;
    if (cluster_.options().bug == PlantedBug::kNoRetry && !frame.ok()) return;
    Run(replica::Reply{request, std::move(frame)});
  };
  if (cluster_.options().bug == PlantedBug::kWrongFactor && cluster_.facts().subsets != nullptr &&
      send.frame.kind == v1::ExchangeFrame::CLIP) {
    std::vector<double> factors = *DecodeFactors(send.frame.scalars, send.frame.scalars.size() / sizeof(double));
    for (double& f : factors) f /= 2;
    send.frame.scalars = EncodeFactors(factors);
  }
  const std::shared_ptr<Exchange> exchange = ExchangeTo(send.address);
  if (exchange == nullptr) {
    return LaterInCore(absl::Milliseconds(1), [answered] { answered(absl::UnavailableError("connection refused")); });
  }
  exchange->Send(std::move(send.frame), answered);
  // One for each partition and replica; those of a former assignment may still be under way, a digest's, and a
  // checkpoint's.
  cluster_.checkers().bounds.Queue(
      "requests of a worker to a ps", exchange->outstanding(),
      (4 * static_cast<size_t>(cluster_.facts().spec.replicas()) + 3) * cluster_.facts().ranges.size());
}

void SimWorker::BreakStreams() {
  for (auto& ps : cluster_.ps()) {
    for (const auto& stream : cluster_.network().Between(host_, ps->host())) cluster_.network().BreakStream(stream);
  }
}

// ---- the digest: all partitions, of the versions that the job ends with ----

struct SimWorker::Digest {
  v1::Finalize command;
  int attempts_left = 20;
  int unanswered = 0;
  absl::Status error;
  std::vector<Frame> frames;
};

void SimWorker::Finalize(const v1::Finalize& command) {
  auto digest = std::make_shared<Digest>();
  digest->command = command;
  PullDigest(digest);
}

void SimWorker::PullDigest(const std::shared_ptr<Digest>& digest) {
  digest->frames.assign(static_cast<size_t>(digest->command.routes_size()), {});
  digest->error = {};
  digest->unanswered = digest->command.routes_size();
  const auto finish = [this, digest] {
    v1::NodeMessage message;
    message.mutable_finalized()->set_job_id(digest->command.job_id());
    message.mutable_finalized()->set_generation(digest->command.generation());
    bool wanted = true;
    for (size_t p = 0; p < digest->frames.size(); ++p) {
      wanted = wanted && digest->frames[p].version == digest->command.versions(static_cast<int>(p));
    }
    if (digest->error.ok() && !wanted) digest->attempts_left = 1;
    if (digest->error.ok() && wanted) {
      for (uint32_t p = 0; p < digest->frames.size(); ++p) {
        cluster_.checkers().reference.AtEnd(p, digest->frames[p].version, digest->frames[p].payload);
      }
      cluster_.DigestTaken({digest->command.versions().begin(), digest->command.versions().end()});
      message.mutable_finalized()->set_digest("0123456789abcdef0123456789abcdef");
    } else if (--digest->attempts_left > 0) {
      return Later(absl::Milliseconds(100), [this, digest] { PullDigest(digest); });
    } else {
      message.mutable_finalized()->set_error(wanted ? digest->error.ToString()
                                                    : "a partition is at another version than the job ends with");
    }
    Say(std::move(message));
  };
  for (int i = 0; i < digest->command.routes_size(); ++i) {
    const v1::Route& route = digest->command.routes(i);
    Frame pull;
    pull.kind = v1::ExchangeFrame::PULL;
    pull.job = JobId(digest->command.job_id());
    pull.partition = PartitionId(route.range().partition());
    const auto answered = [digest, finish, p = route.range().partition()](absl::StatusOr<Frame> frame) {
      if (frame.ok()) {
        digest->frames[p] = *std::move(frame);
      } else {
        digest->error = frame.status();
      }
      if (--digest->unanswered == 0) finish();
    };
    const std::shared_ptr<Exchange> exchange = ExchangeTo(route.address());
    if (exchange == nullptr) {
      Later(absl::Milliseconds(1), [answered] { answered(absl::UnavailableError("connection refused")); });
    } else {
      exchange->Send(std::move(pull), answered);
    }
  }
}

}  // namespace cairn::sim
