#include "worker/backend/cudnn/step_check.h"

#include "absl/strings/str_cat.h"
#include "common/model/model_inputs.h"
#include "common/tensor/dtype.h"

namespace cairn::cudnn {

absl::Status CheckSizes(const Graph& graph, int64_t batch_max, const Batch& batch, const StepInfo& info,
                        absl::Span<const float> values) {
  if (batch.examples < 1 || batch.examples > batch_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch of ", batch.examples, " examples, but the program was compiled for 1 to ", batch_max));
  }
  const int64_t numbers = batch.examples * ModelInputSize(graph), element = cairn::SizeOf(batch.element);
  if (static_cast<int64_t>(batch.inputs.size()) != numbers * element) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch.inputs: ", batch.inputs.size(), " bytes, but ", batch.examples, " examples of shape ",
                     cairn::ToString(ModelInputShape(graph)), " have ", numbers * element));
  }
  if (values.size() != static_cast<size_t>(graph.space_size())) {
    return absl::InvalidArgumentError(absl::StrCat("values: ", values.size(), " numbers, but the model has ",
                                                   graph.space_size(), "; pass the whole space"));
  }
  if (cairn::SizeOf(info.values) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("values: ", v1::DataType_Name(info.values),
                                                   " is not a type in which numbers cross to a GPU; use "
                                                   "FLOAT32, BFLOAT16 or FLOAT16"));
  }
  return absl::OkStatus();
}

absl::Status RefusalOf(const Plan& plan, const double* refusals) {
  for (const Plan::Check& check : plan.checks()) CAIRN_RETURN_IF_ERROR(check.error(refusals + check.begin));
  return absl::OkStatus();
}

}  // namespace cairn::cudnn
