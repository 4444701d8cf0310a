#include "worker/backend/cudnn/recurrence_weights.h"

#include "worker/backend/cudnn/kernels/kernels.h"
#include "worker/backend/cudnn/launches.h"

namespace cairn::cudnn {

RecurrenceWeights::RecurrenceWeights(Builder& builder, const RecurrenceShape& shape)
    : b_(builder),
      s_(shape),
      kernel_(&builder.graph().variables()[shape.r.kernel]),
      recurrent_(&builder.graph().variables()[shape.r.recurrent_kernel]),
      bias_(shape.r.bias >= 0 ? &builder.graph().variables()[shape.r.bias] : nullptr) {}

void RecurrenceWeights::ReadKernel() { kernel_copy_ = InType(b_.ValueOf(kernel_), s_.features * s_.width()); }

void RecurrenceWeights::ReadRecurrent() {
  const int64_t units = s_.units();
  const Ref all = InType(b_.ValueOf(recurrent_), units * s_.width());
  if (!s_.ResetsBefore()) {
    recurrent_copy_ = all;
    return;
  }
  recurrent_copy_ = Columns(all, 0, 2 * units);
  candidate_copy_ = Columns(all, 2 * units, units);
}

Ref RecurrenceWeights::InType(const Ref& weights, int64_t numbers) const {
  const DType type = b_.type();
  if (type == DType::kFloat32) return weights;
  const Ref copy = b_.NewNumbers(numbers, type);
  EmitConvert(b_, {weights, DType::kFloat32}, {copy, type}, numbers);
  return copy;
}

Ref RecurrenceWeights::Columns(const Ref& all, int64_t begin, int64_t width) const {
  const Ref piece = b_.NewNumbers(s_.units() * width, b_.type());
  b_.Emit("columns", {all}, {piece}, [=, rows = s_.units(), whole = s_.width(), t = b_.type()](const Run& r) {
    return kernels::CopyColumns(r.stream(), rows, width, r.At<>(all), whole, begin, r.At<>(piece), width, 0, t, false);
  });
  return piece;
}

Ref RecurrenceWeights::state_bias() const {
  Ref second = bias();
  if (second) second.offset += s_.width() * SizeOf(DType::kFloat32);
  return second;
}

void RecurrenceWeights::EmitKernelGradient(const Ref& packed, const Ref& dparts) const {
  EmitProduct(b_, {.m = s_.features, .n = s_.width(), .k = s_.rows(), .transpose_a = true, .out = DType::kFloat32},
              packed, dparts, b_.GradientOf(kernel_));
}

void RecurrenceWeights::EmitRecurrentGradient(const Ref& states, const Ref& d, int64_t begin, int64_t columns) const {
  const Ref gradient = b_.GradientOf(recurrent_);
  const Product product{.m = s_.units(), .n = columns, .k = s_.rows(), .transpose_a = true, .out = DType::kFloat32};
  if (columns == s_.width()) return EmitProduct(b_, product, states, d, gradient);
  const Ref piece = b_.NewNumbers(product.m * product.n, DType::kFloat32);
  EmitProduct(b_, product, states, d, piece);
  b_.Emit("columns", {piece}, {gradient}, [=, rows = s_.units(), whole = s_.width()](const Run& r) {
    return kernels::CopyColumns(r.stream(), rows, columns, r.At<>(piece), columns, 0, r.At<>(gradient), whole, begin,
                                DType::kFloat32, false);
  });
}

void RecurrenceWeights::EmitBiasGradient(const Ref& dparts, const Ref& dstate_parts) const {
  if (bias_ == nullptr) return;
  Ref sums = b_.GradientOf(bias_);
  EmitColumnSums(b_, dparts, s_.rows(), s_.width(), sums, b_.type());
  if (!s_.ResetsAfter()) return;
  sums.offset += s_.width() * SizeOf(DType::kFloat32);
  EmitColumnSums(b_, dstate_parts, s_.rows(), s_.width(), sums, b_.type());
}

}  // namespace cairn::cudnn
