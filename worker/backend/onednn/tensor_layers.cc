// Layers on tensors that have no variables: operations, reductions, parts. Channels last.
#include <algorithm>

#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"
#include "worker/backend/tensor_function.h"

namespace cairn::onednn {
namespace {

class TensorOp : public Op {
 public:
  TensorOp(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out)
      : in_(in), out_(out), function_(MakeTensorFunction<float>(b.graph(), node, b.examples())) {
    for (size_t k = 0; k < in.size(); ++k) {
      const Shape& shape = b.graph().nodes()[node.inputs[k]].output;
      sources_.push_back(b.Read(in[k]->data, PlainDesc(b.examples(), shape)));
      x_.push_back(nullptr);
    }
    out->data = b.New(PlainDesc(b.examples(), node.output));
    out->may_overwrite = false;  // the way back takes it
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!out_->needs_gradient) return;
    b.Use(out_->gradient);
    b.Use(out_->data);
    int64_t largest = 0;
    for (size_t k = 0; k < in_.size(); ++k) {
      b.Use(sources_[k].tensor);
      sinks_.push_back(in_[k]->needs_gradient ? b.WriteGradient(in_[k], sources_[k].tensor->desc) : Sink{});
      if (in_[k]->needs_gradient) largest = std::max(largest, sources_[k].tensor->numbers());
    }
    sums_ = b.NewBytes(largest * static_cast<int64_t>(sizeof(double)));
  }

  void Forward(const Run& run) override {
    for (const Source& source : sources_) source.Prepare(run);
    function_->Forward(Inputs(), out_->data->data());
  }

  void BackwardInputs(const Run& run) override {
    for (size_t k = 0; k < sinks_.size(); ++k) {
      if (sinks_[k].tensor == nullptr) continue;
      const int64_t count = sources_[k].tensor->numbers();
      double* const sums = reinterpret_cast<double*>(sums_->data());
      std::fill_n(sums, count, 0.0);
      function_->Backward(Inputs(), out_->data->data(), out_->gradient->data(), k, sums);
      float* const dx = sinks_[k].tensor->data();
      for (int64_t i = 0; i < count; ++i) dx[i] = static_cast<float>(sums[i]);
      sinks_[k].Finish(run);
    }
  }

 private:
  const std::vector<const float*>& Inputs() {
    for (size_t k = 0; k < sources_.size(); ++k) x_[k] = sources_[k].tensor->data();
    return x_;
  }

  const std::vector<Value*> in_;
  Value* const out_;
  const std::unique_ptr<TensorFunction<float>> function_;
  std::vector<Source> sources_;
  std::vector<const float*> x_;
  std::vector<Sink> sinks_;
  Tensor* sums_ = nullptr;  // of one input's gradient
};

}  // namespace

std::unique_ptr<Op> MakeTensorOp(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  return std::make_unique<TensorOp>(b, node, in, out);
}

namespace {

constexpr Layer kLayers[] = {
    {LayerKind::kOperation, CompileAll<MakeTensorOp>}, {LayerKind::kSubtract, CompileAll<MakeTensorOp>},
    {LayerKind::kMinimum, CompileAll<MakeTensorOp>},   {LayerKind::kReduce, CompileAll<MakeTensorOp>},
    {LayerKind::kSlice, CompileAll<MakeTensorOp>},     {LayerKind::kStack, CompileAll<MakeTensorOp>},
    {LayerKind::kPad, CompileAll<MakeTensorOp>},       {LayerKind::kTile, CompileAll<MakeTensorOp>},
    {LayerKind::kTake, CompileAll<MakeTensorOp>},      {LayerKind::kOneHot, CompileAll<MakeTensorOp>},
    {LayerKind::kEinsum, CompileAll<MakeTensorOp>},    {LayerKind::kTopK, CompileAll<MakeTensorOp>},
};

}  // namespace

absl::Span<const Layer> TensorLayers() { return kLayers; }

}  // namespace cairn::onednn
