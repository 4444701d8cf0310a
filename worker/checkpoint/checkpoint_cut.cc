#include "worker/checkpoint/checkpoint_cut.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/fault_check.h"
#include "common/model/optimizer_slots.h"
#include "common/model/strategy_check.h"

namespace cairn {

CheckpointCut::CheckpointCut(int64_t step, std::optional<uint64_t> want_version,
                             std::shared_ptr<const v1::AssignReplicas> assignment)
    : step_(step), want_version_(want_version), assignment_(std::move(assignment)) {
  parts_.resize(static_cast<size_t>(assignment_->routes_size()));
  uint64_t space = 0;
  for (const v1::Route& route : assignment_->routes()) {
    if (route.range().partition() >= parts_.size()) continue;
    Part& part = parts_[route.range().partition()];
    part.range = route.range();
    part.ps = route.ps();
    space = std::max(space, route.range().end());
  }
  // The partitions will cover it; it is not initialized here, on the training thread.
  values_ = Buffer::Allocate(space * sizeof(float));
  for (size_t i = 0; i < SlotNames(assignment_->spec().optimizer()).size(); ++i) {
    slots_.push_back(Buffer::Allocate(space * sizeof(float)));
  }
}

void CheckpointCut::Add(size_t partition, const Frame& tensor) {
  if (partition >= parts_.size()) return;
  Part& part = parts_[partition];
  if (part.status.ok()) part.status = Keep(part, tensor);
}

absl::Status CheckpointCut::Keep(Part& part, const Frame& frame) {
  const uint64_t begin = part.range.begin(), end = part.range.end();
  if (frame.tensor == 0) {
    if (!part.image.ParseFromString(frame.image)) return absl::InternalError("the image's header cannot be read");
    part.header = true;
    if (part.image.begin() != begin || part.image.end() != end || part.image.slots() != slots_.size() ||
        frame.tensors != slots_.size() + 1 ||
        part.image.sequences().last_sequence_size() * LocalSyncOf(assignment_->spec()) !=
            assignment_->spec().replicas()) {
      return absl::InternalError("the image is not of this job's partition");
    }
    if (want_version_ && part.image.version() != *want_version_) {
      return absl::UnavailableError(
          absl::StrFormat("received version %d, expected %d", part.image.version(), *want_version_));
    }
  }
  const size_t bytes = static_cast<size_t>(end - begin) * sizeof(float);
  if (frame.tensor > slots_.size() || frame.dtype != v1::FLOAT32 || frame.payload.size() != bytes) {
    return absl::InternalError(
        absl::StrFormat("tensor %d of the image has %d bytes, expected %d", frame.tensor, frame.payload.size(), bytes));
  }
  Buffer& into = frame.tensor == 0 ? values_ : slots_[frame.tensor - 1];
  std::memcpy(into.mutable_data() + begin * sizeof(float), frame.payload.data(), bytes);
  return absl::OkStatus();
}

absl::Status CheckpointCut::End(size_t partition, absl::Status end) {
  if (partition >= parts_.size()) return absl::InternalError("an answer of a partition that the job does not have");
  const Part& part = parts_[partition];
  if (end.ok()) end = part.status;
  if (end.ok() && !part.header) end = absl::InternalError("the answer holds no image");
  return Annotate(end, absl::StrCat("ps \"", part.ps, "\""));
}

absl::StatusOr<CheckpointContents> CheckpointCut::Contents(JobId job) const {
  CAIRN_ASSIGN_OR_RETURN(Graph graph, Graph::Build(assignment_->spec().model()));
  CheckpointContents contents;
  contents.graph = std::make_shared<const Graph>(std::move(graph));
  contents.values = values_;
  contents.slots = slots_;
  if (contents.values.size() != static_cast<size_t>(contents.graph->space_size()) * sizeof(float)) {
    return absl::InternalError("the routes do not cover the model");
  }
  CheckpointManifest& m = contents.manifest;
  m.job_id = job.value;
  m.submitted_unix_ms = assignment_->submitted_unix_ms();
  m.spec = assignment_->spec();
  m.synchronous = IsSynchronous(m.spec);
  m.step = step_;
  m.steps_per_epoch = assignment_->steps_per_epoch();
  m.total_steps = assignment_->total_steps();
  m.train_examples = assignment_->data().train_examples();
  if (!m.synchronous) m.replica_step.assign(static_cast<size_t>(m.spec.replicas()), INT64_MAX);
  for (const Part& part : parts_) {
    CheckpointPartition& p = m.partitions.emplace_back();
    p.begin = part.range.begin();
    p.end = part.range.end();
    p.version = part.image.version();
    if (&part == &parts_.front()) {
      m.loss_scale = part.image.loss_scale();
      m.figures = part.image.figures();
    }
    if (m.synchronous && part.image.loss_scale().SerializeAsString() != m.loss_scale.SerializeAsString()) {
      return absl::InternalError(
          absl::StrFormat("ps \"%s\": its partition has a different loss scale from the others", part.ps));
    }
    if (m.synchronous) continue;
    for (uint64_t sequence : part.image.sequences().last_sequence()) {  // one per unit
      p.sequences.insert(p.sequences.end(), static_cast<size_t>(LocalSyncOf(m.spec)), sequence);
    }
    for (size_t r = 0; r < p.sequences.size(); ++r) {
      m.replica_step[r] = std::min(m.replica_step[r], static_cast<int64_t>(p.sequences[r]));
    }
  }
  if (!m.synchronous) m.step = *std::min_element(m.replica_step.begin(), m.replica_step.end());
  return contents;
}

}  // namespace cairn
