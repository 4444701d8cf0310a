// SynchronousMode: answers to pushes and CLIPs.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/core/synchronous_mode.h"

namespace cairn::replica {
void SynchronousMode::OnReply(RequestName name, Reply& reply) {
  if (name.partition >= context_.parts.size()) return;
  if (phase_ == Phase::kFinding && name.owner == kValuesOwner) return OnFindReply(name.partition, reply);
  if (phase_ != Phase::kRunning) return;
  if (name.owner == kValuesOwner) return OnValues(name.partition, reply);
  if (name.owner == kClipOwner) return OnAnswer(clips_.request(name.partition), nullptr, name.partition, reply);
  for (Push& push : pushes_) {
    if (push.node.first + 1 == name.owner) return OnAnswer(push.requests[name.partition], &push, name.partition, reply);
  }
}

void SynchronousMode::OnAnswer(Request& request, Push* push, uint32_t partition, Reply& reply) {
  if (request.token != reply.request || request.state != Request::State::kSent) return;
  const uint64_t expected = static_cast<uint64_t>(step_) + 1;
  const bool norms = push != nullptr && reply.frame.ok() && reply.frame->kind == v1::ExchangeFrame::NORMS &&
                     reply.frame->sequence == expected;
  absl::Status status = reply.frame.status();
  if (status.ok() && !norms) status = CheckAnswer(*reply.frame, partition);
  if (status.ok() && !norms) status = context_.CheckLossScale(*reply.frame);
  if (status.ok() && !norms && reply.frame->version < expected) {
    status = absl::UnavailableError("the answer to a push shows values from before it");
  }
  std::vector<uint32_t> known;  // partitions whose factors this tells
  if (status.ok() && (norms || reply.frame->version == expected)) {
    auto taken = clips_.Take(*reply.frame, partition);
    status = taken.ok() ? absl::OkStatus() : absl::UnavailableError(taken.status().message());
    if (taken.ok()) known = *std::move(taken);
  }
  if (absl::IsOutOfRange(status)) {
    FindAnew();  // the job was taken back to an earlier step
  } else if (push == nullptr && absl::IsAborted(status)) {
    SumLost(partition);
  } else if (!status.ok() && push == nullptr) {
    context_.Retry(request, partition, status);
  } else if (!status.ok()) {
    OnPushFailed(*push, partition, status);
  } else if (norms) {
    request = Request();
    clips_.Send(known, done_);
  } else if (reply.frame->version > expected) {
    StartFinding(absl::ZeroDuration());  // our replicas were computed elsewhere, and the job went on
  } else {
    if (done_count_ > 0 && reply.frame->loss_scale != next_loss_scale_) {
      return context_.FailJob(absl::StrCat("the partitions differ in the loss scale after step ", step_, ": ",
                                           reply.frame->loss_scale, " in partition ", partition, ", ", next_loss_scale_,
                                           " in others; resume from a checkpoint"));
    }
    next_loss_scale_ = reply.frame->loss_scale;
    TakeValues(*reply.frame);
    done_[partition] = 1;
    clips_.End(partition);
    for (Push& each : pushes_) each.requests[partition] = Request();
    ++done_count_;
    if (AllDone()) return FinishStep();
    clips_.Send(known, done_);
  }
}

void SynchronousMode::SumLost(uint32_t partition) {
  clips_.Forget(partition);
  OnSumLost(partition);
}

}  // namespace cairn::replica
