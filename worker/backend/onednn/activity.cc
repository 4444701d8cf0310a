// ActivityRegularization: returns its input; the plan adds its penalties to the loss.
#include "common/model/activity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/loop_op.h"

namespace cairn::onednn {
namespace {

class ActivityOp : public LoopOp {
 public:
  ActivityOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : LoopOp(b, {in}, {node.output}, node.output, out, BackwardReads::kInputs),
        factors_(ActivityFactorsOf(node)),
        numbers_(NumElements(node.output)),
        penalties_(static_cast<size_t>(b.examples())) {
    b.AddPenalty(&penalty_);
  }

 private:
  void Compute(const Run&, float* y) override {
    const auto examples = static_cast<int64_t>(penalties_.size());
    ForExamples(examples, examples * numbers_, [&](int64_t e) {
      const float* const from = x() + e * numbers_;
      std::copy_n(from, numbers_, y + e * numbers_);
      double absolute = 0, squares = 0;
      for (int64_t i = 0; i < numbers_; ++i) {
        absolute += std::fabs(from[i]);
        squares += static_cast<double>(from[i]) * from[i];
      }
      penalties_[static_cast<size_t>(e)] = factors_.l1 * absolute + factors_.l2 * squares;
    });
    penalty_ = 0;  // added up in the order of the examples, whatever the number of threads
    for (const double penalty : penalties_) penalty_ += penalty;
  }

  void Derive(const Run&, const float* dy) override {
    if (dx() == nullptr) return;
    const auto examples = static_cast<int64_t>(penalties_.size());
    const auto l1 = static_cast<float>(factors_.l1), twice_l2 = static_cast<float>(2 * factors_.l2);
    ForExamples(examples, examples * numbers_, [&](int64_t e) {
      for (int64_t i = e * numbers_; i < (e + 1) * numbers_; ++i) {
        const float v = x()[i], sign = static_cast<float>(v > 0) - static_cast<float>(v < 0);
        dx()[i] = dy[i] + (l1 * sign + twice_l2 * v);
      }
    });
  }

  const ActivityFactors factors_;
  const int64_t numbers_;
  std::vector<double> penalties_;  // of each example
  double penalty_ = 0;
};

std::unique_ptr<Op> MakeActivity(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<ActivityOp>(b, node, in, out);
}

constexpr Layer kLayers[] = {
    {LayerKind::kActivityRegularization, CompileOne<MakeActivity>},
};

}  // namespace

absl::Span<const Layer> ActivityLayers() { return kLayers; }

}  // namespace cairn::onednn
