// Training on mixed examples: data.augmentation's mix_up and cut_mix average the labels of two examples of a replica's
// batch.
//
// Pure functions; any thread. Where the label is a class number it becomes a distribution over the model's outputs,
// and SPARSE_CATEGORICAL_CROSSENTROPY is computed as CATEGORICAL_CROSSENTROPY, which takes both.
#pragma once

#include <cstdint>

#include "cairn/v1/data.pb.h"
#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

inline bool IsMix(const v1::Augmentation& step) { return step.has_mix_up() || step.has_cut_mix(); }
bool MixesExamples(const v1::Data& data);

// Errors: INVALID_ARGUMENT, `data.augmentation[1]: mix_up averages labels, which HINGE does not take; ...`. The loss
// and the targets must be checked before.
absl::Status CheckMixedLabels(const v1::JobSpec& spec, const Graph& graph);

// The numbers of a mixed label that is a class number in the data; 0: labels are averaged as they are.
int64_t MixedClasses(const v1::JobSpec& spec, const Graph& graph);

// The loss that the job's batches are computed with.
v1::Loss ComputedLoss(const v1::JobSpec& spec);

}  // namespace cairn
