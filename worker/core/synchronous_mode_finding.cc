// SynchronousMode: finding the step that the partitions are at.
#include <utility>

#include "worker/core/synchronous_mode.h"

namespace cairn::replica {

void SynchronousMode::StartFinding(absl::Duration pause) {
  for (Own& own : own_) Release(own);
  phase_ = Phase::kFinding;
  pushes_.clear();
  norms_.Clear();
  ForgetValues();
  const size_t partitions = context_.parts.size();
  finds_.assign(partitions, Request());
  versions_.assign(partitions, 0);
  found_scales_.assign(partitions, 0);
  wanted_.assign(partitions, std::nullopt);
  found_ = 0;
  for (uint32_t p = 0; p < partitions; ++p) {
    if (pause > absl::ZeroDuration()) {
      context_.RetryAfter(finds_[p], pause);
    } else {
      SendFind(p);
    }
  }
}

void SynchronousMode::SendFind(uint32_t partition) {
  Frame frame = context_.MakePull(partition);
  frame.want_version = wanted_[partition];
  context_.SendRequest(finds_[partition], kValuesOwner, std::move(frame));
}

void SynchronousMode::FindAgain(uint32_t partition, std::optional<uint64_t> version) {
  wanted_[partition] = version;
  --found_;
  SendFind(partition);
}

void SynchronousMode::OnFindReply(uint32_t partition, Reply& reply) {
  Request& request = finds_[partition];
  if (request.token != reply.request || request.state != Request::State::kSent) return;
  const absl::Status status = reply.frame.ok() ? context_.CheckValues(*reply.frame, partition) : reply.frame.status();
  const bool gone = wanted_[partition] && (absl::IsFailedPrecondition(status) ||
                                           (status.ok() && reply.frame->version != *wanted_[partition]));
  if (gone) return StartFinding(context_.Pause(find_attempts_++));  // the others went on meanwhile
  if (!status.ok()) return context_.Retry(request, partition, status);
  request = Request();
  versions_[partition] = reply.frame->version;
  found_scales_[partition] = reply.frame->loss_scale;
  OnFound(*reply.frame);
  if (++found_ == versions_.size()) OnAllFound();
}

void SynchronousMode::Run(uint64_t version) {
  step_ = static_cast<int64_t>(version);
  if (step_ > context_.plan.total_steps) {
    context_.FailJob("the variables have had more updates than the job has steps; drop the job and submit it anew");
    return;
  }
  phase_ = Phase::kRunning;
  for (size_t p = 0; p < versions_.size(); ++p) {  // some partition is there
    if (versions_[p] == version) loss_scale_ = found_scales_[p];
  }
  for (const Own& own : own_) context_.reports.Forget(own.id, step_, context_.plan.steps_per_epoch);
  BeginStep();
}

}  // namespace cairn::replica
