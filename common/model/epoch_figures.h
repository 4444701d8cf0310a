// Sums of figures: of validations, and of the training steps that an epoch's updates hold (EpochFigures in
// job_status.proto).
//
// Pure functions; any thread. Terms are rounded once and added exactly (common/base/exact_sum.h), so that a sum has the
// same bits whoever added up what.
// Invariants of a list of EpochFigures, as a job's first partition keeps it:
//   1. In order of epoch, each epoch once.
//   2. Its epochs are less than OpenEpochsMax apart: an older one has been stored by the coordinator, for no update of
//      a later epoch is accepted before (EpochIsOpen). So a partition's image has room for them.
#pragma once

#include <cstdint>

#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"

namespace cairn {

using EpochList = google::protobuf::RepeatedPtrField<v1::EpochFigures>;

// `to` has `metrics` metrics after it.
void AddSums(const v1::MetricSums& from, int metrics, v1::MetricSums& to);
// Of the same epoch and job.
void AddFigures(const v1::EpochFigures& from, v1::EpochFigures& to);

// A peer's: they are of a job with so many metrics. Errors: INVALID_ARGUMENT.
absl::Status CheckFigures(const v1::EpochFigures& figures, int metrics);
absl::Status CheckEpochList(const EpochList& epochs, int metrics);  // the invariants, too

int OpenEpochsMax(int metrics);
// Whether the list, whose first epoch is `first`, has room for the epoch.
inline bool EpochIsOpen(int32_t first, int32_t epoch, int metrics) { return epoch < first + OpenEpochsMax(metrics); }
// Adds the figures of an update; drops epochs that are too old (invariant 2).
void CountFigures(const v1::EpochFigures& update, int metrics, EpochList& epochs);
// Drops the epochs before `epochs`.
void DropStored(int32_t stored, EpochList& epochs);

}  // namespace cairn
