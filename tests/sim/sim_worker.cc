#include "tests/sim/sim_worker.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/digest.h"
#include "common/model/clip_norm.h"
#include "tests/sim/sim_cluster.h"

namespace cairn::sim {
namespace {

constexpr double kTimersLost = 0.02;

}  // namespace

SimWorker::SimWorker(SimCluster& cluster, int index, int slots)
    : SimNode(cluster, absl::StrFormat("worker-%d", index)), slots_(slots) {}

void SimWorker::OnEnd() {
  driver_ = nullptr;
  by_layer_.clear();
  book_ = nullptr;
  not_written_.reset();
  restores_.clear();
  ++drivers_;
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
  if (driver_ != nullptr) *hello.add_running() = driver_->held();
  return hello;
}

v1::Heartbeat SimWorker::Heartbeat() {
  v1::Heartbeat heartbeat;
  if (driver_ == nullptr) return heartbeat;
  if (const std::optional<v1::JobProgress> progress = driver_->progress()) *heartbeat.add_progress() = *progress;
  return heartbeat;
}

void SimWorker::OnCommand(const v1::CoordinatorMessage& message) {
  if (message.has_assign_replicas()) {
    Assign(message.assign_replicas());
  } else if (message.has_drop_job()) {
    Drop();
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
    Post(replica::ReportAgain{});
  }
}

void SimWorker::Assign(v1::AssignReplicas assign) {
  if (driver_ == nullptr) {
    if (assign.replicas().empty()) return;
    ReplicaCoreOptions options;
    options.jitter_seed = world_.rng.Next();
    ReplicaEnvironment& environment = *this;
    driver_ = std::make_unique<ReplicaDriver>(JobId(assign.job_id()), options, environment);
    book_ = std::make_shared<CheckpointBook>();
    ++drivers_;
  }
  if (cluster_.options().bug == PlantedBug::kForgetGate) assign.set_epochs_open(0);
  driver_->Assign(assign);
}

void SimWorker::Drop() {
  if (driver_ != nullptr) driver_->Drop();
  driver_ = nullptr;
  by_layer_.clear();
  ++drivers_;
}

void SimWorker::Post(replica::Event event) {
  if (driver_ != nullptr) driver_->Post(std::move(event));
}

void SimWorker::LaterInJob(absl::Duration delay, std::function<void()> fn) {
  Later(delay, [this, number = drivers_, fn = std::move(fn)] {
    if (drivers_ == number) fn();
  });
}

void SimWorker::BeginAssignment(const Assignment& assignment) { book_->Know(assignment->checkpoints()); }

void SimWorker::Report(v1::ReplicaReport report) {
  v1::NodeMessage message;
  *message.mutable_replica_report() = std::move(report);
  Say(std::move(message));
}

// It holds the values for a while, as a hash of them does. What it reports is of the values' bytes.
void SimWorker::TakeDigest(replica::TakeDigest take) {
  LaterInJob(host_.cpu * absl::Milliseconds(5), [this, take = std::move(take)] {
    cairn::Digest digest;
    digest.Add(take.values.data(), take.values.size());
    v1::NodeMessage message;
    v1::StepDigestReport& report = *message.mutable_step_digest();
    report.set_job_id(driver_->assignment()->job_id());
    report.set_generation(driver_->assignment()->generation());
    report.mutable_digest()->set_step(take.step);
    report.mutable_digest()->set_digest(digest.Hex());
    Say(std::move(message));
  });
}

void SimWorker::WakeAt(absl::Time at) {
  if (cluster_.options().bug == PlantedBug::kLoseTimer && world_.rng.Chance(kTimersLost)) return;
  LaterInJob(std::max(absl::ZeroDuration(), at - Now()) + absl::Nanoseconds(1), [this, at] { driver_->WakeUp(at); });
}

void SimWorker::Fail(const std::string& message) {
  world_.Fail(absl::StrFormat("%s cannot go on: %s", name(), message));
}

// ---- computation ----

void SimWorker::Compute(replica::Compute work) {
  if (work.by_layer) {
    ComputeByLayer(std::move(work));
  } else {
    ComputeWhole(std::move(work));
  }
}

void SimWorker::ComputeWhole(replica::Compute work) {
  if (cluster_.facts().plan.Places(work.step, work.replica).size() <= 0) {
    world_.Fail(absl::StrFormat("%s computes a replica without examples", name()));
  }
  LaterInJob(host_.cpu * world_.rng.Between(absl::Milliseconds(10), absl::Milliseconds(80)),
             [this, work = std::move(work)]() mutable { EndCompute(std::move(work)); });
}

void SimWorker::EndCompute(replica::Compute work) {
  const auto& facts = cluster_.facts();
  Buffer values = work.values;
  PlaceRange places = facts.plan.Places(work.step, work.replica);
  switch (cluster_.options().bug) {
    case PlantedBug::kStaleValues:
      if (!values_before_.empty() && world_.rng.Chance(0.1)) values = values_before_;
      values_before_ = Buffer::CopyOf(work.values.data(), work.values.size());
      break;
    case PlantedBug::kSkipExamples:
      if (driver_->assignment()->assignment() > 1 && work.step + 1 < facts.plan.total_steps) {
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
  if (cluster_.options().bug == PlantedBug::kHalfGroup && facts.group > 1 && work.replica.value % facts.group == 1) {
    for (float& g : work.gradient.mutable_floats()) g = 0;
  }
  const uint64_t id = work.work, number = drivers_;
  BatchSums sums;
  sums.examples = places.size();
  sums.loss = static_cast<double>(sums.examples) * LossOfEpoch(facts.spec, facts.plan.EpochOf(work.step));
  values = {};
  work = {};  // the core may write to the buffers from now on
  const auto partitions = static_cast<uint32_t>(driver_->assignment()->routes_size());
  const uint32_t cut = world_.rng.Between(0, partitions);
  Post(replica::GradientReady{id, cut, partitions});
  if (drivers_ == number && cut > 0) Post(replica::GradientReady{id, 0, cut});
  if (drivers_ == number) Post(replica::Computed{id, sums});
}

void SimWorker::Evaluate(replica::Evaluate work) {
  BatchSums sums;
  sums.examples = work.places.size();
  sums.loss = static_cast<double>(sums.examples) *
              LossOfEpoch(cluster_.facts().spec, work.step / cluster_.facts().plan.steps_per_epoch - 1);
  LaterInJob(host_.cpu * world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(20)),
             [this, id = work.work, sums] {
               Post(replica::Evaluated{id, sums});
             });
}

void SimWorker::ComputeByLayer(replica::Compute work) {
  // It waits for a slot; the word to stop it is lost until then.
  LaterInJob(host_.cpu * world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(40)),
             [this, work = std::move(work)] {
               const uint64_t id = work.work;
               by_layer_[id] = {work, 1, 0};
               Post(replica::WeightsWanted{id, 0, 1});
             });
}

void SimWorker::GiveWeights(const replica::WeightsHere& here) {
  const auto it = by_layer_.find(here.work);
  if (it == by_layer_.end() || here.partition + 1 != it->second.wanted || it->second.here == it->second.wanted) return;
  ByLayer& work = it->second;
  work.here = work.wanted;
  const auto partitions = static_cast<uint32_t>(driver_->assignment()->routes_size());
  if (work.here < partitions) {
    LaterInJob(host_.cpu * absl::Milliseconds(1), [this, id = here.work] {
      const auto next = by_layer_.find(id);
      if (next == by_layer_.end()) return;
      const uint32_t p = next->second.wanted++;
      Post(replica::WeightsWanted{id, p, p + 1});
    });
    return;
  }
  replica::Compute compute = std::move(work.compute);
  by_layer_.erase(it);
  ComputeWhole(std::move(compute));
}

void SimWorker::StopWork(uint64_t work) {
  if (by_layer_.erase(work) == 0) return;
  LaterInJob(host_.cpu * absl::Milliseconds(1), [this, work] {
    Post(replica::Computed{work, absl::CancelledError("stopped")});
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

void SimWorker::SendToPs(replica::Send send) {
  const auto answered = [this, request = send.request, number = drivers_](absl::StatusOr<Frame> frame) {
    if (drivers_ != number) return;
    if (cluster_.options().bug == PlantedBug::kNoRetry && !frame.ok()) return;
    Post(replica::Reply{request, std::move(frame)});
  };
  if (cluster_.options().bug == PlantedBug::kWrongFactor && cluster_.facts().subsets != nullptr &&
      send.frame.kind == v1::ExchangeFrame::CLIP) {
    std::vector<double> factors = *DecodeFactors(send.frame.scalars, send.frame.scalars.size() / sizeof(double));
    for (double& f : factors) f /= 2;
    send.frame.scalars = EncodeFactors(factors);
  }
  const std::shared_ptr<Exchange> exchange = ExchangeTo(send.address);
  if (exchange == nullptr) {
    return LaterInJob(absl::Milliseconds(1), [answered] { answered(absl::UnavailableError("connection refused")); });
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
