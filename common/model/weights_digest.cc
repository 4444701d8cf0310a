#include "common/model/weights_digest.h"

#include <algorithm>

#include "common/base/bad.h"
#include "common/model/fault_check.h"
#include "common/tensor/finite.h"

namespace cairn {
namespace {

// Whether the user allows other bits in every run.
bool MayDiffer(const v1::JobSpec& spec) { return spec.has_deterministic() && !spec.deterministic(); }

// Whether the bits of a step are a function of the job, and a worker has all variables of it.
bool IsRecordable(const v1::JobSpec& spec) {
  return IsSynchronous(spec) && spec.backup_replicas() == 0 && spec.strategy() != v1::CENTRAL_STORAGE &&
         !spec.model().has_external() && !MayDiffer(spec);
}

}  // namespace

void WeightsDigest::Add(absl::Span<const float> values) {
  const int64_t begin = done_, end = begin + static_cast<int64_t>(values.size());
  for (; variable_ < graph_.variables().size(); ++variable_) {
    const Variable& variable = graph_.variables()[variable_];
    if (variable.offset >= end) break;
    const int64_t from = std::max(begin, variable.offset), to = std::min(end, variable.offset + variable.size);
    if (from == variable.offset) digest_.Add(variable.name.data(), variable.name.size());
    if (from < to) {
      const absl::Span<const float> part =
          values.subspan(static_cast<size_t>(from - begin), static_cast<size_t>(to - from));
      digest_.Add(part.data(), part.size() * sizeof(float));
      if (not_finite_.empty() && !AllFinite(part)) not_finite_ = variable.name;
    }
    if (to < variable.offset + variable.size) break;  // the rest is in the next numbers
  }
  done_ = end;
}

int64_t DigestEverySteps(const v1::JobSpec& spec) {
  if (!IsRecordable(spec)) return 0;
  return spec.has_digest_every_steps() ? spec.digest_every_steps() : kDigestEveryStepsDefault;
}

absl::Status CheckDigestEverySteps(const v1::JobSpec& spec) {
  const int32_t every = spec.digest_every_steps();
  if (every < 0) return Bad("digest_every_steps: ", every, " is negative; use 1 or more, or 0 for none");
  if (every == 0 || IsRecordable(spec)) return absl::OkStatus();
  if (spec.strategy() == v1::CENTRAL_STORAGE) {
    return Bad(
        "digest_every_steps: with strategy CENTRAL_STORAGE no worker has all variables; leave it out: steps are "
        "checked at checkpoints");
  }
  if (spec.model().has_external()) {
    return Bad(
        "digest_every_steps: with model.external a program computes the steps, which cannot be computed again without "
        "it; leave it out");
  }
  if (MayDiffer(spec)) {
    return Bad(
        "digest_every_steps: with deterministic: false the steps need not be the same in every run; leave one of them "
        "out");
  }
  return Bad(
      "digest_every_steps: the steps of an asynchronous job, or with backup_replicas, are not the same in "
      "every run; leave it out");
}

}  // namespace cairn
