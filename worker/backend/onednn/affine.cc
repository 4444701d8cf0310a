// Normalization, and Rescaling by channel: y = (x - shift) * scale + offset with factors that depend on the position.
#include "worker/backend/affine.h"

#include <algorithm>

#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/loop_op.h"
#include "worker/backend/onednn/vector.h"

namespace cairn::onednn {
namespace {

CAIRN_VECTOR void AffineLoop(const float* __restrict x, const float* __restrict shift, const float* __restrict scale,
                             const float* __restrict offset, int64_t count, float* __restrict y) {
  for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - shift[i]) * scale[i] + offset[i];
}
CAIRN_VECTOR void ScaleLoop(const float* __restrict dy, const float* __restrict scale, int64_t count,
                            float* __restrict dx) {
  for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * scale[i];
}

class AffineOp : public LoopOp {
 public:
  AffineOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : LoopOp(b, {in}, {node.output}, node.output, out, BackwardReads::kNothing),
        node_(node),
        examples_(b.examples()),
        size_(NumElements(node.output)) {
    const Shape shape = AffineShape(node);
    count_ = NumElements(shape);
    // The last axes, from the first one along which the factors differ, have the same factors in every stretch.
    Shape tail = node.output, tail_shape = shape;
    while (tail_shape.size() > 1 && tail_shape.front() == 1) {
      tail.erase(tail.begin());
      tail_shape.erase(tail_shape.begin());
    }
    places_ = RepeatedPlaces(tail_shape, tail);
    for (auto* numbers : {&wide_.shift, &wide_.scale, &wide_.offset}) numbers->resize(places_.size());
    if (const Variable* mean = b.FindVariable(node, "mean")) mean_ = b.ValueOf(*mean, MakeDesc({count_}, Tag::x));
    if (const Variable* v = b.FindVariable(node, "variance")) variance_ = b.ValueOf(*v, MakeDesc({count_}, Tag::x));
  }

 private:
  void Compute(const Run&, float* y) override {
    const auto numbers = [&](const dnnl::memory& memory) {
      if (!memory) return absl::Span<const float>();
      return absl::Span<const float>(static_cast<const float*>(memory.get_data_handle()), static_cast<size_t>(count_));
    };
    FillAffineFactors<float>(node_, numbers(mean_), numbers(variance_), &factors_);
    for (size_t i = 0; i < places_.size(); ++i) {
      wide_.shift[i] = factors_.shift[static_cast<size_t>(places_[i])];
      wide_.scale[i] = factors_.scale[static_cast<size_t>(places_[i])];
      wide_.offset[i] = factors_.offset[static_cast<size_t>(places_[i])];
    }
    ForStretches([&](int64_t begin, int64_t count) {
      AffineLoop(x() + begin, wide_.shift.data(), wide_.scale.data(), wide_.offset.data(), count, y + begin);
    });
  }

  // Uses the factors of the forward pass.
  void Derive(const Run&, const float* dy) override {
    if (dx() == nullptr) return;
    ForStretches([&](int64_t begin, int64_t count) { ScaleLoop(dy + begin, wide_.scale.data(), count, dx() + begin); });
  }

  template <typename Fn>
  void ForStretches(const Fn& fn) const {
    const int64_t stretch = static_cast<int64_t>(places_.size()), count = examples_ * size_ / stretch;
    ForExamples(count, examples_ * size_, [&](int64_t i) { fn(i * stretch, stretch); });
  }

  const Node& node_;
  const int64_t examples_, size_;
  int64_t count_ = 0;
  std::vector<int32_t> places_;
  AffineFactors<float> factors_, wide_;  // wide_: by place in a stretch
  dnnl::memory mean_, variance_;
};

void CompileAffine(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  b.AddOp(node.variables, out, MakeAffine(b, node, in[0], out));
}

constexpr Layer kLayers[] = {
    {LayerKind::kNormalization, CompileAffine},
};

}  // namespace

std::unique_ptr<Op> MakeAffine(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<AffineOp>(b, node, in, out);
}

absl::Span<const Layer> AffineLayers() { return kLayers; }

}  // namespace cairn::onednn
