#include "worker/backend/embedding.h"

#include <algorithm>
#include <cstring>

#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

// A row of the table for each id. Backward adds rows in the order of the ids, on one thread.
class EmbeddingOp : public Op {
 public:
  EmbeddingOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : node_(node), in_(in), out_(out), examples_(b.examples()) {
    const Variable& table = b.graph().variables()[node.variables[0]];
    const Shape& shape = b.graph().nodes()[node.inputs[0]].output;
    rows_ = table.shape[0];
    width_ = table.shape[1];
    ids_per_example_ = NumElements(shape);
    ids_ = b.Read(in->data, PlainDesc(examples_, shape));
    const Desc desc = MakeDesc({rows_, width_}, Tag::nc);
    table_ = b.ValueOf(table, desc);
    if (b.Trains(table)) table_gradient_ = b.GradientOf(table, desc);
    out->data = b.New(PlainDesc(examples_, node.output));
    if (node.mask == node.id) {
      mask_ = b.New(MakeDesc({examples_ * ids_per_example_}, Tag::x));
      b.SetStepMask(node, mask_);
    }
  }

  void CompileBackward(PlanBuilder& b) override {
    b.Use(ids_.tensor);
    b.Use(out_->gradient);
    if (in_->needs_gradient) sink_ = b.WriteGradient(in_, ids_.tensor->desc);
  }

  // A bad id is reported, and read as 0.
  void Forward(const Run& run) override {
    ids_.Prepare(run);
    const float* table = static_cast<const float*>(table_.get_data_handle());
    const float* ids = ids_.tensor->data();
    float* y = out_->data->data();
    for (int64_t i = 0; i < examples_ * ids_per_example_; ++i) {
      const int64_t row = EmbeddingRow(ids[i], rows_);
      if (row < 0 && run.error->ok()) *run.error = BadEmbeddingId(node_, i / ids_per_example_, ids[i]);
      if (mask_ != nullptr) mask_->data()[i] = row == 0 ? 0.0f : 1.0f;
      std::memcpy(y + i * width_, table + std::max<int64_t>(row, 0) * width_, width_ * sizeof(float));
    }
  }

  void BackwardVariables(const Run&) override {
    if (!table_gradient_) return;
    float* table = static_cast<float*>(table_gradient_.get_data_handle());
    std::memset(table, 0, rows_ * width_ * sizeof(float));
    const float* ids = ids_.tensor->data();
    const float* dy = out_->gradient->data();
    for (int64_t i = 0; i < examples_ * ids_per_example_; ++i) {
      AddTo(dy + i * width_, table + EmbeddingRow(ids[i], rows_) * width_, width_);
    }
  }

  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    std::memset(sink_.tensor->data(), 0, sink_.tensor->bytes);  // ids have no gradient
    sink_.Finish(run);
  }

 private:
  const Node& node_;
  Value* const in_;
  Value* const out_;
  const int64_t examples_;
  int64_t rows_ = 0, width_ = 0, ids_per_example_ = 0;
  Source ids_;
  Tensor* mask_ = nullptr;  // mask_zero
  dnnl::memory table_, table_gradient_;
  Sink sink_;
};

}  // namespace

std::unique_ptr<Op> MakeEmbedding(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<EmbeddingOp>(b, node, in, out);
}

namespace {

constexpr Layer kLayers[] = {
    {LayerKind::kEmbedding, CompileOne<MakeEmbedding>},
};

}  // namespace

absl::Span<const Layer> EmbeddingLayers() { return kLayers; }

}  // namespace cairn::onednn
