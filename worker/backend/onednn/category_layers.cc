// Layers of categories. Channels last.
#include <algorithm>

#include "common/model/category_function.h"
#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

class CategoryOp : public Op {
 public:
  CategoryOp(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out)
      : in_(in), out_(out), examples_(b.examples()), function_(b.graph(), node) {
    for (size_t k = 0; k < in.size(); ++k) {
      sources_.push_back(b.Read(in[k]->data, PlainDesc(examples_, b.graph().nodes()[node.inputs[k]].output)));
    }
    out->data = b.New(PlainDesc(examples_, node.output));
  }

  void CompileBackward(PlanBuilder& b) override {
    for (size_t k = 0; k < in_.size(); ++k) {
      sinks_.push_back(in_[k]->needs_gradient ? b.WriteGradient(in_[k], sources_[k].tensor->desc) : Sink{});
    }
  }

  // A number that the layer refuses is reported, and counts as zeros.
  void Forward(const Run& run) override {
    std::vector<const float*> x;
    for (const Source& source : sources_) {
      source.Prepare(run);
      x.push_back(source.tensor->data());
    }
    const absl::Status status = function_.Forward<float>(examples_, x, out_->data->data());
    if (status.ok()) return;
    if (run.error->ok()) *run.error = status;
    std::fill_n(out_->data->data(), out_->data->numbers(), 0.0f);
  }

  void BackwardInputs(const Run& run) override {
    for (const Sink& sink : sinks_) {
      if (sink.tensor == nullptr) continue;
      std::fill_n(sink.tensor->data(), sink.tensor->numbers(), 0.0f);  // categories have no gradient
      sink.Finish(run);
    }
  }

 private:
  const std::vector<Value*> in_;
  Value* const out_;
  const int64_t examples_;
  const CategoryFunction function_;
  std::vector<Source> sources_;
  std::vector<Sink> sinks_;
};

std::unique_ptr<Op> MakeCategories(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  return std::make_unique<CategoryOp>(b, node, in, out);
}

constexpr Layer kLayers[] = {
    {LayerKind::kDiscretization, CompileAll<MakeCategories>},
    {LayerKind::kCategoryEncoding, CompileAll<MakeCategories>},
    {LayerKind::kHashing, CompileAll<MakeCategories>},
    {LayerKind::kHashedCrossing, CompileAll<MakeCategories>},
    {LayerKind::kIntegerLookup, CompileAll<MakeCategories>},
};

}  // namespace

absl::Span<const Layer> CategoryLayers() { return kLayers; }

}  // namespace cairn::onednn
