// What of the data a model is to give, where that is not one label an example: data.targets and data.weight_column.
//
// Pure functions; any thread. Errors: INVALID_ARGUMENT, `field: what is wrong; what to do`.
#pragma once

#include <string>

#include "cairn/v1/data.pb.h"
#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// An example's target for the loss: the output's shape; without its last axis where the target is class numbers.
Shape TargetShape(const v1::Loss& loss, const Shape& output);

// Of numbers that the model sees as scale * number + offset: a Rescaling that alone takes the model's input.
struct InputScale {
  float scale = 1, offset = 0;
};
InputScale ScaleOfInput(const Graph& graph);

// Of a job with several outputs, a target that names nothing: the data's label.
inline bool IsLabel(const v1::TargetSource& target) {
  return target.columns().empty() && target.feature().empty() && !target.input_itself() && target.pictures().empty();
}
// Whether the model is to give the data's label, be it alone or beside other targets.
bool TakesLabel(const v1::Data& data);
// Of several targets the one that is the example itself, or that are pictures; -1: none.
int InputTargetOf(const v1::Data& data);
int PictureTargetOf(const v1::Data& data);
// Where a target's numbers begin in an example's labels. data: checked.
int64_t TargetPlace(const v1::Data& data, int target);

// The target is the example as the model's first layers see it: after augmentation and a leading Rescaling.
bool TargetIsInput(const v1::Data& data);
// The target are pictures whose pixels count as those of the input do, and not as class numbers.
bool TargetIsScaled(const v1::Data& data, const v1::Loss& loss);

// Needs the loss to be checked. Fills in the target's shape.
absl::Status CheckTargets(v1::JobSpec* spec, const Graph& graph);

// The same of a job with several outputs, whose losses are checked: each has one target, in the order of
// JobSpec.outputs. Fills in the label where nothing is named. (outputs_check.cc)
absl::Status CheckTargetsOfOutputs(v1::JobSpec* spec, const Graph& graph);
// One of them. where: "data.targets[1]".
absl::Status CheckTargetOf(const std::string& where, const v1::Data& data, const Shape& wanted, const Graph& graph,
                           const Node& output, v1::TargetSource* target);
absl::Status CheckWeightColumn(const v1::Data& data);

// What needs the data's format.
absl::Status CheckTargetsAgainstData(const v1::Data& data, v1::Data::Format format);

}  // namespace cairn
