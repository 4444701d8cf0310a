// Sums of figures: those of validations, and those of the training steps that an epoch's updates contain (EpochFigures
// in job_status.proto).
//
// Pure functions; any thread. Terms are rounded once and added exactly (common/base/exact_sum.h), so a sum has the same
// bits whatever the order and grouping of the additions. Invariants of a list of EpochFigures, which a job's first
// partition keeps:
//   1. It is in order of epoch; each epoch occurs once.
//   2. Its epochs are less than OpenEpochsMax apart. The coordinator has stored all older ones: no update of a later
//      epoch is accepted before that (EpochIsOpen). So the list always fits into a partition's image.
#pragma once

#include <cstdint>

#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"

namespace cairn {

using EpochList = google::protobuf::RepeatedPtrField<v1::EpochFigures>;

// Afterwards `to` has `metrics` metrics.
void AddSums(const v1::MetricSums& from, int metrics, v1::MetricSums& to);
// Both must be of the same epoch and job.
void AddFigures(const v1::EpochFigures& from, v1::EpochFigures& to);

// Checks figures that a peer sent, of a job with `metrics` metrics. Errors: INVALID_ARGUMENT.
absl::Status CheckFigures(const v1::EpochFigures& figures, int metrics);
absl::Status CheckEpochList(const EpochList& epochs, int metrics);  // checks the invariants too

int OpenEpochsMax(int metrics);
// Whether a list whose first epoch is `first` has room for `epoch`.
inline bool EpochIsOpen(int32_t first, int32_t epoch, int metrics) { return epoch < first + OpenEpochsMax(metrics); }
// Adds the figures of an update and drops epochs that are too old (invariant 2).
void CountFigures(const v1::EpochFigures& update, int metrics, EpochList& epochs);
// Drops the epochs before `stored`.
void DropStored(int32_t stored, EpochList& epochs);

}  // namespace cairn
