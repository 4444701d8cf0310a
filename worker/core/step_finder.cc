#include "worker/core/step_finder.h"

#include <utility>

namespace cairn::replica {

void StepFinder::Start(absl::Duration pause) {
  const size_t partitions = context_.assignment.parts.size();
  requests_.assign(partitions, Request());
  versions_.assign(partitions, 0);
  loss_scales_.assign(partitions, 0);
  wanted_.assign(partitions, std::nullopt);
  found_ = 0;
  for (uint32_t p = 0; p < partitions; ++p) {
    if (pause > absl::ZeroDuration()) {
      context_.requests.RetryAfter(requests_[p], pause);
    } else {
      Send(p);
    }
  }
}

void StepFinder::Send(uint32_t partition) {
  Frame frame = context_.frames.MakePull(partition);
  frame.want_version = wanted_[partition];
  context_.requests.Send(requests_[partition], owner_, std::move(frame));
}

void StepFinder::Again(uint32_t partition, std::optional<uint64_t> version) {
  wanted_[partition] = version;
  --found_;
  Send(partition);
}

StepFinder::Answer StepFinder::OnReply(uint32_t partition, Reply& reply) {
  Request& request = requests_[partition];
  if (request.token != reply.request || request.state != Request::State::kSent) return Answer::kIgnored;
  const absl::Status status =
      reply.frame.ok() ? context_.frames.CheckValues(*reply.frame, partition) : reply.frame.status();
  const bool gone = wanted_[partition] && (absl::IsFailedPrecondition(status) ||
                                           (status.ok() && reply.frame->version != *wanted_[partition]));
  if (gone) return Answer::kGone;
  if (!status.ok()) {
    context_.requests.Retry(request, partition, status);
    return Answer::kIgnored;
  }
  request = Request();
  versions_[partition] = reply.frame->version;
  loss_scales_[partition] = reply.frame->loss_scale;
  ++found_;
  return Answer::kFound;
}

void StepFinder::Resend(const std::vector<char>& moved, bool raised) {
  for (uint32_t p = 0; p < requests_.size(); ++p) {
    if (!context_.requests.ResendAtOnce(requests_[p], moved[p] != 0, raised)) continue;
    requests_[p].attempt = 0;
    Send(p);
  }
}

void StepFinder::ResendDue() {
  for (uint32_t p = 0; p < requests_.size(); ++p) {
    if (context_.requests.Due(requests_[p])) Send(p);
  }
}

std::optional<float> StepFinder::LossScaleAt(uint64_t version) const {
  std::optional<float> scale;
  for (size_t p = 0; p < versions_.size(); ++p) {
    if (versions_[p] == version) scale = loss_scales_[p];
  }
  return scale;
}

}  // namespace cairn::replica
