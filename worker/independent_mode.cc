#include "worker/independent_mode.h"

#include <algorithm>
#include <utility>

namespace cairn::replica {

void IndependentMode::OnAssigned(const std::vector<char>& moved, bool raised) {
  std::vector<Own> former = std::exchange(own_, {});
  for (int32_t replica : context_.replicas) {
    const auto same = std::find_if(former.begin(), former.end(), [&](const Own& o) { return o.id.value == replica; });
    if (same != former.end()) {
      own_.push_back(std::move(*same));
      former.erase(same);
    } else {
      own_.emplace_back().id = ReplicaId(replica);
    }
  }
  for (Own& gone : former) {
    ReportOpenStep(gone);
    context_.reports.Remove(gone.id);
    Release(gone);
  }
  context_.pool.Resize(own_.empty() ? 0 : context_.space_bytes, own_.size() + 2);
  for (Own& own : own_) {
    if (own.requests.empty()) {
      StartPull(own, absl::ZeroDuration());
      continue;
    }
    for (uint32_t p = 0; p < own.requests.size(); ++p) {
      if (!context_.ResendAtOnce(own.requests[p], moved[p] != 0, raised)) continue;
      own.requests[p].attempt = 0;
      SendAgain(own, p);
    }
  }
}

void IndependentMode::Release(Own& own) {
  for (Buffer* buffer : {&own.values, &own.next, &own.gradient}) {
    if (!buffer->empty()) context_.pool.Release(std::exchange(*buffer, {}));
  }
  own.work = 0;
}

// Its pushes may all be applied, and then nobody computes the step again.
void IndependentMode::ReportOpenStep(const Own& own) {
  if (own.state == Own::State::kComputed) context_.reports.AddOpenStep(own.id, own.step, own.sums);
}

// ---- pulling ----

void IndependentMode::StartPull(Own& own, absl::Duration pause) {
  ReportOpenStep(own);
  Release(own);
  own.state = Own::State::kPulling;
  own.step = -1;
  own.values = context_.pool.Acquire();
  const size_t partitions = context_.parts.size();
  own.requests.assign(partitions, Request());
  own.sequences_before = std::exchange(own.sequences, std::vector<uint64_t>(partitions, 0));
  own.filled.assign(partitions, 0);
  own.filled_count = 0;
  for (uint32_t p = 0; p < partitions; ++p) {
    if (pause > absl::ZeroDuration()) {
      context_.RetryAfter(own.requests[p], pause);
    } else {
      SendAgain(own, p);
    }
  }
}

void IndependentMode::OnPullReply(Own& own, uint32_t partition, Reply& reply) {
  const absl::Status status = reply.frame.ok() ? context_.CheckValues(*reply.frame, partition) : reply.frame.status();
  if (!status.ok()) {
    context_.Retry(own.requests[partition], partition, status);
    return;
  }
  own.requests[partition] = Request();
  context_.CopyValues(*reply.frame, own.values);
  own.sequences[partition] = reply.frame->sequence;
  own.filled[partition] = 1;
  if (++own.filled_count == context_.parts.size()) OnAllPulled(own);
}

void IndependentMode::OnAllPulled(Own& own) {
  const uint64_t lowest = *std::min_element(own.sequences.begin(), own.sequences.end());
  const uint64_t highest = *std::max_element(own.sequences.begin(), own.sequences.end());
  if (highest > lowest + 1 && own.sequences != own.sequences_before) {
    // Someone else still computes this replica; its pushes were seen in some partitions and not yet in others. Or the
    // job goes on from a checkpoint, whose partitions were not cut at the same moment: then nothing has changed when it
    // is pulled again.
    StartPull(own, context_.Pause(own.pull_attempts++));
    return;
  }
  if (highest > static_cast<uint64_t>(context_.plan.total_steps)) {
    context_.FailJob("a replica has had more updates than the job has steps; drop the job and submit it anew");
    return;
  }
  const bool bounded = context_.spec.has_staleness_bound() && context_.spec.staleness_bound() > 0;
  if (bounded && lowest > own.clock) {
    // Now that its clock is known, wait for those that are far behind, and take the values of then.
    own.clock = lowest;
    StartPull(own, absl::ZeroDuration());
    return;
  }
  own.pull_attempts = 0;
  own.step = static_cast<int64_t>(lowest);
  BeginStep(own);
}

// ---- a step ----

void IndependentMode::BeginStep(Own& own) {
  const size_t partitions = context_.parts.size();
  own.requests.assign(partitions, Request());
  own.ready.assign(partitions, 0);
  own.filled.assign(partitions, 0);
  own.filled_count = 0;
  own.work = 0;
  own.clock = static_cast<uint64_t>(own.step);
  if (const std::optional<int32_t> epoch = context_.EvaluationBefore(own.step)) {
    own.work = context_.StartEvaluation(own.id, *epoch, own.values);
  }
  if (own.work != 0) {
    own.state = Own::State::kEvaluating;
  } else {
    StartCompute(own);
  }
}

void IndependentMode::StartCompute(Own& own) {
  own.work = 0;
  if (own.step == context_.plan.total_steps) {
    Release(own);
    own.state = Own::State::kFinished;
    context_.Finish(own.id);
    return;
  }
  own.examples = static_cast<uint64_t>(context_.plan.Places(own.step, own.id).size());
  if (own.examples == 0) {
    own.state = Own::State::kComputed;
    own.sums = BatchSums{0, 0, std::vector<double>(context_.spec.metrics_size())};
    own.ready.assign(own.ready.size(), 1);
    for (uint32_t p = 0; p < own.ready.size(); ++p) TryPush(own, p);
    return;
  }
  own.state = Own::State::kComputing;
  own.work = context_.NewWork();
  own.gradient = context_.pool.Acquire();
  context_.effects.emplace_back(Compute{own.work, own.id, own.step, own.values, own.gradient});
}

void IndependentMode::TryPush(Own& own, uint32_t partition) {
  if (!own.ready[partition] || own.filled[partition]) return;
  if (own.requests[partition].state == Request::State::kIdle) SendAgain(own, partition);
}

void IndependentMode::SendAgain(Own& own, uint32_t partition) {
  const uint32_t owner = static_cast<uint32_t>(own.id.value);
  Frame frame;
  if (own.state == Own::State::kPulling) {
    frame = context_.MakePull(partition);
    frame.replica_first = own.id;
    frame.replica_count = 1;
    frame.sequence = own.clock;
  } else {
    frame = context_.MakePush(partition, owner, 1, own.step, own.examples, own.gradient);
  }
  context_.SendRequest(own.requests[partition], owner, std::move(frame));
}

void IndependentMode::OnGradient(const GradientReady& event) {
  Own* own = FindWork(event.work);
  if (own == nullptr || own->state != Own::State::kComputing) return;
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) {
    own->ready[p] = 1;
    TryPush(*own, p);
  }
}

void IndependentMode::OnComputed(uint64_t work, BatchSums sums) {
  Own* own = FindWork(work);
  if (own == nullptr || own->state != Own::State::kComputing) return;
  own->state = Own::State::kComputed;
  own->sums = std::move(sums);
  FinishStep(*own);
}

void IndependentMode::OnEvaluated(uint64_t work, const BatchSums& sums) {
  Own* own = FindWork(work);
  if (own == nullptr || own->state != Own::State::kEvaluating) return;
  context_.reports.AddValidation(own->id, *context_.EvaluationBefore(own->step), sums);
  StartCompute(*own);
}

void IndependentMode::OnReply(RequestName name, Reply& reply) {
  const auto own = std::find_if(own_.begin(), own_.end(),
                                [&](const Own& o) { return o.id.value == static_cast<int32_t>(name.owner); });
  if (own == own_.end() || name.partition >= own->requests.size()) return;
  const Request& request = own->requests[name.partition];
  if (request.state != Request::State::kSent || request.token != reply.request) return;
  if (own->state == Own::State::kPulling) {
    OnPullReply(*own, name.partition, reply);
  } else {
    OnPushReply(*own, name.partition, reply);
  }
}

void IndependentMode::OnPushReply(Own& own, uint32_t partition, Reply& reply) {
  absl::Status status = reply.frame.ok() ? context_.CheckValues(*reply.frame, partition) : reply.frame.status();
  const uint64_t expected = static_cast<uint64_t>(own.step) + 1;
  if (status.ok() && reply.frame->sequence < expected) {
    status = absl::UnavailableError("the answer to a push shows values from before it");
  }
  if (absl::IsOutOfRange(status)) {
    StartPull(own, context_.Pause(own.pull_attempts++));  // the job was taken back to an earlier step
    return;
  }
  if (!status.ok()) {
    context_.Retry(own.requests[partition], partition, status);
    return;
  }
  if (reply.frame->sequence > std::max(expected, own.sequences[partition])) {
    // Someone else computes this replica, and is ahead.
    StartPull(own, context_.Pause(own.pull_attempts++));
    return;
  }
  own.requests[partition] = Request();
  if (own.next.empty()) own.next = context_.pool.Acquire();
  context_.CopyValues(*reply.frame, own.next);
  own.filled[partition] = 1;
  ++own.filled_count;
  FinishStep(own);
}

// Does nothing while an answer or the computation's end is missing.
void IndependentMode::FinishStep(Own& own) {
  if (own.filled_count < context_.parts.size() || own.state != Own::State::kComputed) return;
  context_.reports.AddStep(own.id, own.step, own.sums, context_.plan.steps_per_epoch, context_.now);
  context_.pool.Release(std::exchange(own.values, std::exchange(own.next, {})));
  if (!own.gradient.empty()) context_.pool.Release(std::exchange(own.gradient, {}));
  own.pull_attempts = 0;
  ++own.step;
  Checkpoint();
  BeginStep(own);
}

void IndependentMode::Checkpoint() {
  if (step() >= 0) context_.CheckpointIfDue(step(), std::nullopt);
}

void IndependentMode::ResendDue() {
  for (Own& own : own_) {
    for (uint32_t p = 0; p < own.requests.size(); ++p) {
      if (own.requests[p].state != Request::State::kWaiting) continue;
      if (own.requests[p].retry_at > context_.now) {
        context_.retry_earliest = std::min(context_.retry_earliest, own.requests[p].retry_at);
      } else {
        SendAgain(own, p);
      }
    }
  }
}

int64_t IndependentMode::step() const {
  int64_t lowest = -1;
  for (const Own& own : own_) {
    if (own.step >= 0 && (lowest < 0 || own.step < lowest)) lowest = own.step;
  }
  return lowest;
}

IndependentMode::Own* IndependentMode::FindWork(uint64_t work) {
  for (Own& own : own_) {
    if (own.work == work && work != 0) return &own;
  }
  return nullptr;
}

bool IndependentMode::Knows(uint64_t work) const {
  return work != 0 && std::any_of(own_.begin(), own_.end(), [&](const Own& own) { return own.work == work; });
}

}  // namespace cairn::replica
