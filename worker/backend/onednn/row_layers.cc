// Normalizations of rows by their own length: RMSNormalization, UnitNormalization.
#include <algorithm>
#include <array>
#include <cmath>

#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/loop_op.h"
#include "worker/backend/onednn/vector.h"
#include "worker/backend/rows.h"

namespace cairn::onednn {
namespace {

// The sum of a * b as kParts partial sums, which are added from the first to the last: the same bits for every vector
// width.
constexpr int64_t kParts = 32;
using Parts = std::array<float, kParts>;

CAIRN_VECTOR void AddProducts(const float* __restrict a, const float* __restrict b, int64_t count,
                              float* __restrict parts) {
  for (int64_t i = 0; i + kParts <= count; i += kParts) {
    for (int64_t k = 0; k < kParts; ++k) parts[k] += a[i + k] * b[i + k];
  }
}

float Dot(const float* a, const float* b, int64_t count) {
  Parts parts{};
  AddProducts(a, b, count, parts.data());
  float sum = 0;
  for (const float part : parts) sum += part;
  for (int64_t i = count / kParts * kParts; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

CAIRN_VECTOR void ScaleTwice(const float* x, float factor, const float* scale, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * factor * scale[i];
}
// dx = factor * (g - x * along)
CAIRN_VECTOR void Project(const float* __restrict g, const float* __restrict x, float factor, float along,
                          int64_t count, float* __restrict dx) {
  for (int64_t i = 0; i < count; ++i) dx[i] = factor * (g[i] - x[i] * along);
}
CAIRN_VECTOR void AddScaled(const float* __restrict a, const float* __restrict b, float factor, int64_t count,
                            float* __restrict sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] += a[i] * b[i] * factor;
}

class RmsNormalizationOp : public LoopOp {
 public:
  RmsNormalizationOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : LoopOp(b, {in}, {node.output}, node.output, out, BackwardReads::kInputs),
        columns_(node.output.back()),
        rows_(b.examples() * NumElements(node.output) / columns_),
        epsilon_(node.layer.rms_normalization().epsilon()) {
    const Variable& scale = *b.FindVariable(node, "scale");
    const Desc desc = MakeDesc({columns_}, Tag::x);
    scale_ = b.ValueOf(scale, desc);
    if (b.Trains(scale)) gradient_ = b.GradientOf(scale, desc);
    factors_ = b.New(MakeDesc({rows_}, Tag::x));
  }

 private:
  void UseBackward(PlanBuilder& b) override {
    b.Use(factors_);
    products_ = b.New(MakeDesc({rows_, columns_}, Tag::nc));
  }

  const float* scale() const { return static_cast<const float*>(scale_.get_data_handle()); }

  void Compute(const Run&, float* y) override {
    ForExamples(rows_, rows_ * columns_, [&](int64_t row) {
      const float* from = x() + row * columns_;
      const float factor = 1 / std::sqrt(Dot(from, from, columns_) / static_cast<float>(columns_) + epsilon_);
      factors_->data()[row] = factor;
      ScaleTwice(from, factor, scale(), columns_, y + row * columns_);
    });
  }

  void Derive(const Run&, const float* dy) override {
    const float* const factors = factors_->data();
    if (gradient_) {
      float* const sums = static_cast<float*>(gradient_.get_data_handle());
      std::fill(sums, sums + columns_, 0.0f);
      for (int64_t row = 0; row < rows_; ++row)
        AddScaled(dy + row * columns_, x() + row * columns_, factors[row], columns_, sums);
    }
    if (dx() == nullptr) return;
    ForExamples(rows_, rows_ * columns_, [&](int64_t row) {
      const int64_t begin = row * columns_;
      float* const g = products_->data() + begin;  // of what stood before the scale
      ScaleTwice(dy + begin, 1, scale(), columns_, g);
      const float factor = factors[row];
      const float along = Dot(g, x() + begin, columns_) * factor * factor / static_cast<float>(columns_);
      Project(g, x() + begin, factor, along, columns_, dx() + begin);
    });
  }

  const int64_t columns_, rows_;
  const float epsilon_;
  dnnl::memory scale_, gradient_;
  Tensor* factors_ = nullptr;
  Tensor* products_ = nullptr;
};

class UnitNormalizationOp : public LoopOp {
 public:
  UnitNormalizationOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : LoopOp(b, {in}, {node.output}, node.output, out, BackwardReads::kInputs),
        columns_(RowNumbers(node.layer.unit_normalization(), node.output)),
        rows_(b.examples() * NumElements(node.output) / columns_) {}

 private:
  static constexpr float kShortest = static_cast<float>(kUnitLengthMin);

  void Compute(const Run&, float* y) override {
    ForExamples(rows_, rows_ * columns_, [&](int64_t row) {
      const float* from = x() + row * columns_;
      Scale(from, 1 / std::max(std::sqrt(Dot(from, from, columns_)), kShortest), y + row * columns_, columns_);
    });
  }

  void Derive(const Run&, const float* dy) override {
    if (dx() == nullptr) return;
    ForExamples(rows_, rows_ * columns_, [&](int64_t row) {
      const float *from = x() + row * columns_, *g = dy + row * columns_;
      const float squares = Dot(from, from, columns_), length = std::sqrt(squares);
      const float along = length > kShortest ? Dot(from, g, columns_) / squares : 0.0f;
      Project(g, from, 1 / std::max(length, kShortest), along, columns_, dx() + row * columns_);
    });
  }

  const int64_t columns_, rows_;
};

std::unique_ptr<Op> MakeRms(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<RmsNormalizationOp>(b, node, in, out);
}

std::unique_ptr<Op> MakeUnit(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<UnitNormalizationOp>(b, node, in, out);
}

constexpr Layer kLayers[] = {
    {LayerKind::kRMSNormalization, CompileOne<MakeRms>},
    {LayerKind::kUnitNormalization, CompileOne<MakeUnit>},
};

}  // namespace

absl::Span<const Layer> RowLayers() { return kLayers; }

}  // namespace cairn::onednn
