#include "worker/core/step_clips.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::replica {

void StepClips::Begin(int64_t step) {
  step_ = step;
  norms_.Clear(/*one_decides=*/context_.job.spec.backup_replicas() > 0);
  requests_.assign(context_.assignment.parts.size(), Request());
}

void StepClips::Stop() {
  norms_.Clear();
  requests_.clear();
}

// The norms come in NORMS, and also in the VALUES of an update that was made before its norms were known here: other
// partitions may still need them.
absl::StatusOr<std::vector<uint32_t>> StepClips::Take(const Frame& frame, uint32_t partition) {
  if (frame.scalars.empty()) {
    if (frame.kind != v1::ExchangeFrame::NORMS) return std::vector<uint32_t>();
    return absl::InvalidArgumentError(absl::StrCat("partition ", partition, ": NORMS without records"));
  }
  CAIRN_ASSIGN_OR_RETURN(std::vector<NormRecord> records, DecodeNorms(frame.scalars));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<double> factors, AppliedFactors(frame.scalars));
  return norms_.Set(partition, std::move(records), factors);
}

void StepClips::Send(const std::vector<uint32_t>& partitions, const std::vector<char>& done) {
  for (uint32_t p : partitions) {
    if (!done[p] && requests_[p].state == Request::State::kIdle) SendOne(p);
  }
}

// Does nothing while a share of the norms is missing: the answer that brings it calls this again.
void StepClips::SendOne(uint32_t partition) {
  const auto factors = norms_.FactorsFor(partition, ClipNormOf(context_.job.spec.optimizer()));
  if (!factors) {
    requests_[partition] = Request();
    return;
  }
  Frame clip = context_.frames.MakeClip(partition, step_, EncodeFactors(*factors), norms_.HashOf(partition));
  if (by_layer_) clip.reply_dtype = v1::DATA_TYPE_UNSPECIFIED;  // as for its pushes
  context_.requests.Send(requests_[partition], owner_, std::move(clip));
}

void StepClips::Forget(uint32_t partition) {
  norms_.Forget(partition);
  requests_[partition] = Request();
}

void StepClips::Resend(uint32_t partition, bool moved, bool raised) {
  if (!context_.requests.ResendAtOnce(requests_[partition], moved, raised)) return;
  requests_[partition].attempt = 0;
  SendOne(partition);
}

void StepClips::ResendDue() {
  for (uint32_t p = 0; p < partitions(); ++p) {
    if (context_.requests.Due(requests_[p])) SendOne(p);
  }
}

}  // namespace cairn::replica
