#include "coordinator/core/step_digests.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/model/weights_digest.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

constexpr absl::Duration kSaveEvery = absl::Seconds(1);
constexpr size_t kDigestHexDigits = 32;

bool FitsJob(const Job& job, const v1::StepDigest& digest) {
  return DigestEverySteps(job.status.spec()) > 0 && digest.step() > 0 && digest.step() <= job.status.total_steps() &&
         digest.digest().size() == kDigestHexDigits &&
         std::all_of(digest.digest().begin(), digest.digest().end(), absl::ascii_isxdigit);
}

}  // namespace

// Where one step differs, those after it do, too.
void StepDigests::TellOtherBits(Job& job, const ClusterNode& node, const v1::StepDigest& had,
                                const v1::StepDigest& digest) {
  const auto ended = [&](const auto& told) {
    return jobs_.Find(told.first) == nullptr || !jobs_.At(told.first).active();
  };
  std::erase_if(told_, ended);
  const uint64_t generation = job.status.generation();
  if (const auto told = told_.find(job.id()); told != told_.end() && told->second == generation) return;
  told_[job.id()] = generation;
  jobs_.TellWarning(
      job,
      "worker \"%s\" reports digest %s after step %d, which had %s: its bits are not the same; later steps "
      "that differ are not told",
      node.name, digest.digest(), digest.step(), had.digest());
}

void StepDigests::OnReport(const ClusterNode& node, const v1::StepDigestReport& report) {
  Job* job = jobs_.Find(report.job_id());
  if (job == nullptr || !job->active()) return;  // it ended meanwhile
  if (report.generation() < std::max(job->partitions.rollback.generation, job->restoring.filled_in))
    return;  // from before that
  const v1::StepDigest& digest = report.digest();
  if (!FitsJob(*job, digest)) {
    return step_.Warn(OfJob(job->id()), "worker \"%s\" sent a digest that does not fit it; ignored", node.name);
  }
  auto& known = *job->status.mutable_step_digests();
  const auto at = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.step() >= digest.step(); });
  if (at != known.end() && at->step() == digest.step()) {
    if (at->digest() == digest.digest()) return;
    TellOtherBits(*job, node, *at, digest);
    *at = digest;
  } else {
    const auto place = static_cast<int>(at - known.begin());
    *known.Add() = digest;
    std::rotate(known.begin() + place, known.end() - 1, known.end());
    if (known.size() > kStepDigestsKept) known.DeleteSubrange(0, known.size() - kStepDigestsKept);
  }
  if (step_.now() < job->outputs.digests.saved + kSaveEvery) return;
  job->outputs.digests.saved = step_.now();
  jobs_.Save(*job);
}

}  // namespace cairn
