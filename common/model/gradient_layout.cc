#include "common/model/gradient_layout.h"

#include <algorithm>
#include <bit>

#include "common/base/limits.h"
#include "common/model/fault_check.h"
#include "common/model/strategy_check.h"
#include "common/tensor/dtype.h"

namespace cairn {
namespace {

uint64_t ExamplesOfASum(const v1::JobSpec& spec) {
  const auto examples = static_cast<uint64_t>(std::max(spec.batch_size(), 1)) *
                        static_cast<uint64_t>(std::max(spec.accumulate_steps(), 1));
  if (IsSynchronous(spec)) return examples;
  const auto replicas = static_cast<uint64_t>(std::max(spec.replicas(), 1));
  return (examples + replicas - 1) / replicas * static_cast<uint64_t>(LocalSyncOf(spec));
}

}  // namespace

GradientLayout GradientLayoutOf(const Graph& graph, const v1::JobSpec& spec) {
  GradientLayout layout;
  layout.shift = std::min(static_cast<int>(std::bit_width(ExamplesOfASum(spec) - 1)), kFloat16ShiftMax);
  for (const Variable& v : graph.variables()) {  // in order of offset
    if (v.kind != VariableKind::kMovingAverage) continue;
    const int64_t end = v.offset + (v.size + kSpaceAlignment - 1) / kSpaceAlignment * kSpaceAlignment;
    if (!layout.averages.empty() && layout.averages.back().second == v.offset) {
      layout.averages.back().second = end;
    } else {
      layout.averages.emplace_back(v.offset, end);
    }
  }
  return layout;
}

v1::DataType GradientTypeOf(const v1::JobSpec& spec) {
  return spec.wire_dtype() == v1::DATA_TYPE_UNSPECIFIED ? v1::FLOAT32 : spec.wire_dtype();
}

v1::DataType ValuesTypeOf(const v1::JobSpec& spec) {
  if (spec.values_wire_dtype() != v1::DATA_TYPE_UNSPECIFIED) return spec.values_wire_dtype();
  const v1::DataType gradients = GradientTypeOf(spec);
  return IsBlockInt(gradients) ? v1::BFLOAT16 : gradients;
}

bool NeedsLayout(const v1::JobSpec& spec) {
  const v1::DataType gradients = GradientTypeOf(spec);
  return gradients == v1::FLOAT16 || IsBlockInt(gradients) || IsBlockInt(ValuesTypeOf(spec));
}

}  // namespace cairn
