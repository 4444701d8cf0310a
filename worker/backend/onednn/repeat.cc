// RepeatVector: the row of an example, n times.
#include <algorithm>

#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/loop_op.h"

namespace cairn::onednn {
namespace {

class RepeatOp : public LoopOp {
 public:
  RepeatOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : LoopOp(b, {in}, {{node.output[1]}}, node.output, out, BackwardReads::kNothing),
        examples_(b.examples()),
        times_(node.output[0]),
        features_(node.output[1]) {}

 private:
  void Compute(const Run&, float* y) override {
    ForExamples(examples_ * times_, examples_ * times_ * features_,
                [&](int64_t row) { std::copy_n(x() + row / times_ * features_, features_, y + row * features_); });
  }

  // Sums from the first row to the last.
  void Derive(const Run&, const float* dy) override {
    if (dx() == nullptr) return;
    ForExamples(examples_, examples_ * times_ * features_, [&](int64_t e) {
      ColumnSums(dy + e * times_ * features_, times_, features_, features_, dx() + e * features_);
    });
  }

  const int64_t examples_, times_, features_;
};

std::unique_ptr<Op> MakeRepeat(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<RepeatOp>(b, node, in, out);
}

constexpr Layer kLayers[] = {
    {LayerKind::kRepeatVector, CompileOne<MakeRepeat>},
};

}  // namespace

absl::Span<const Layer> RepeatLayers() { return kLayers; }

}  // namespace cairn::onednn
