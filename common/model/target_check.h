// The targets of a model when they are not simply one label per example: data.targets and data.weight_column.
//
// Pure functions; any thread. Errors: INVALID_ARGUMENT, `field: what is wrong; what to do`.
#pragma once

#include <string>

#include "cairn/v1/data.pb.h"
#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// The shape of an example's target for the loss: the output's shape, without its last axis if the target holds class
// indices; of CTC a label for each step.
Shape TargetShape(const v1::Loss& loss, const Shape& output);
// The same of a given target: CTC takes as many labels as it has, at most one for each step.
Shape WantedTarget(const v1::Loss& loss, const Shape& output, const v1::TargetSource& target);

// The model sees each number as scale * number + offset: the effect of a Rescaling that is the only layer to read the
// model's input.
struct InputScale {
  float scale = 1, offset = 0;
};
InputScale ScaleOfInput(const Graph& graph);

// Whether a target of a job with several outputs names no source and therefore is the data's label.
inline bool IsLabel(const v1::TargetSource& target) {
  return target.columns().empty() && target.feature().empty() && !target.input_itself() && target.pictures().empty();
}
// Whether the data's label is a target, either the only one or one of several.
bool TakesLabel(const v1::Data& data);
// The index of the target that is the example itself, or of the one that consists of pictures; -1: none.
int InputTargetOf(const v1::Data& data);
int PictureTargetOf(const v1::Data& data);
// Where a target's numbers begin in an example's labels. data: must be checked.
int64_t TargetPlace(const v1::Data& data, int target);

// Whether the target is the example as the model's first layers see it: after augmentation and a leading Rescaling.
bool TargetIsInput(const v1::Data& data);
// Whether the target consists of pictures whose pixels are scaled as those of the input are, and are not class indices.
bool TargetIsScaled(const v1::Data& data, const v1::Loss& loss);

// The loss must be checked before. Fills in the target's shape.
absl::Status CheckTargets(v1::JobSpec* spec, const Graph& graph);

// The same for a job with several outputs, whose losses must be checked before. Each output has one target, in the
// order of JobSpec.outputs. Fills in the label where no source is named. (outputs_check.cc)
absl::Status CheckTargetsOfOutputs(v1::JobSpec* spec, const Graph& graph);
// Checks one of the targets. where: "data.targets[1]".
absl::Status CheckTargetOf(const std::string& where, const v1::Data& data, const Shape& wanted, const Graph& graph,
                           const Node& output, v1::TargetSource* target);
absl::Status CheckWeightColumn(const v1::Data& data);

// Checks what depends on the data's format.
absl::Status CheckTargetsAgainstData(const v1::Data& data, v1::Data::Format format);

}  // namespace cairn
