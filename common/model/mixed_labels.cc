#include "common/model/mixed_labels.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/model/data_check.h"
#include "common/model/job_outputs.h"
#include "common/model/loss_check.h"
#include "common/model/target_check.h"

namespace cairn {
namespace {

// Whether an average of two targets is a target.
bool TakesAverages(v1::Loss::Kind kind) {
  return kind != v1::Loss::HINGE && kind != v1::Loss::SQUARED_HINGE && kind != v1::Loss::CTC &&
         kind != v1::Loss::CIRCLE;
}

}  // namespace

bool MixesExamples(const v1::Data& data) {
  return std::any_of(data.augmentation().begin(), data.augmentation().end(), IsMix);
}

absl::Status CheckMixedLabels(const v1::JobSpec& spec, const Graph& graph) {
  const v1::Data& data = spec.data();
  const auto mix = std::find_if(data.augmentation().begin(), data.augmentation().end(), IsMix);
  if (mix == data.augmentation().end()) return absl::OkStatus();
  const std::string where = absl::StrCat("data.augmentation[", mix - data.augmentation().begin(),
                                         "]: ", mix->has_mix_up() ? "mix_up" : "cut_mix");
  if (TrainsOutputs(spec)) {
    return Bad(where, " averages the labels of one output, but `outputs` trains several; leave it out");
  }
  if (!TakesAverages(spec.loss().kind())) {
    return Bad(where, " averages labels, which ", v1::Loss::Kind_Name(spec.loss().kind()),
               " does not take; leave it out, or use a cross-entropy");
  }
  if (spec.loss().has_ignore_class()) {
    return Bad(where,
               " averages labels, of which loss.ignore_class could be left out no more; leave one of the two out");
  }
  if (!data.weight_column().empty()) {
    return Bad(where, ": a mixed example has the labels of two, but data.weight_column a weight for one; leave one of ",
               "the two out");
  }
  if (InputTargetOf(data) >= 0 || PictureTargetOf(data) >= 0) {
    return Bad(where, " averages labels, but data.targets names pictures or the input itself; leave it out");
  }
  const Shape& output = graph.output().output;
  if (spec.loss().kind() == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY && output.size() > 1) {
    return Bad(where, " averages one label of an example, but layer \"", graph.output().name, "\" gives ",
               ToString(output), ", a class for each position; leave it out");
  }
  return absl::OkStatus();
}

int64_t MixedClasses(const v1::JobSpec& spec, const Graph& graph) {
  const int64_t outputs = NumElements(graph.output().output);
  const bool one_number =
      spec.data().targets().empty() || spec.loss().kind() == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY;
  return IsCategorical(spec.loss().kind()) && one_number && outputs > 1 ? outputs : 0;
}

v1::Loss ComputedLoss(const v1::JobSpec& spec) {
  v1::Loss loss = spec.loss();
  if (MixesExamples(spec.data()) && loss.kind() == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY) {
    loss.set_kind(v1::Loss::CATEGORICAL_CROSSENTROPY);
  }
  return loss;
}

}  // namespace cairn
