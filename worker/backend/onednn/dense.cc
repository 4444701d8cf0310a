// Dense on vectors: three matrix products on the weights as they lie in the parameter space, [in, out]. Measured, this
// is as fast as oneDNN's inner products in layouts of their own choice, and needs no reorder of the weights. Where the
// input is a flattened image in a blocked layout, the rows of the weights are put in its order (few numbers) instead of
// the image in the weights' order (many).
#include <cstring>

#include "common/base/check.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

// row_of[p]: the number of the flattened image (channels last) that stands at place p of an example; -1 for padding.
std::vector<int64_t> RowOrder(const Desc& desc) {
  const dnnl::memory::dims dims = desc.dims();
  const auto& layout = desc.data.format_desc.blocking;
  const int64_t block = layout.inner_nblks == 1 ? layout.inner_blks[0] : 1;
  CAIRN_CHECK(layout.inner_nblks == 0 || (layout.inner_nblks == 1 && layout.inner_idxs[0] == 1),
              "images are blocked by channel or not at all");
  std::vector<int64_t> row_of(desc.get_size() / sizeof(float) / dims[0], -1);
  int64_t row = 0;
  for (int64_t h = 0; h < dims[2]; ++h) {
    for (int64_t w = 0; w < dims[3]; ++w) {
      for (int64_t c = 0; c < dims[1]; ++c) {
        row_of[c / block * layout.strides[1] + c % block + h * layout.strides[2] + w * layout.strides[3]] = row++;
      }
    }
  }
  return row_of;
}

void Check(dnnl_status_t status) { dnnl::error::wrap_c_api(status, "could not multiply matrices"); }

class DenseOp : public Op {
 public:
  DenseOp(PlanBuilder& b, const Node& node, const Activation& activation, Value* in, Value* out)
      : activation_(activation), in_(in), out_(out), examples_(b.examples()) {
    const Variable* kernel = &b.graph().variables()[node.variables[0]];
    const Variable* bias = b.FindVariable(node, "bias");
    units_ = kernel->shape[1];
    if (!IsPlain(in->data->desc)) row_of_ = RowOrder(in->data->desc);
    rows_ = row_of_.empty() ? kernel->shape[0] : static_cast<int64_t>(row_of_.size());
    const Desc kernel_desc = MakeDesc({kernel->shape[0], units_}, Tag::ab);
    const Desc bias_desc = MakeDesc({units_}, Tag::x);
    kernel_ = b.ValueOf(*kernel, kernel_desc);
    if (bias != nullptr) bias_ = b.ValueOf(*bias, bias_desc);
    if (b.training()) {
      kernel_gradient_ = b.GradientOf(*kernel, kernel_desc);
      if (bias != nullptr) bias_gradient_ = b.GradientOf(*bias, bias_desc);
    }
    b.Use(in->data);
    if (!row_of_.empty()) ordered_ = b.New(MakeDesc({rows_, units_}, Tag::ab));
    out->data = b.New(MakeDesc({examples_, units_}, Tag::nc));
    out->activation = activation;
    out->may_overwrite = activation.linear();
    if (activation.kind == v1::SIGMOID || activation.kind == v1::TANH) CompileActivation(b);
  }

  void CompileBackward(PlanBuilder& b) override {
    b.Use(out_->gradient);
    if (!out_->activation_undone && !activation_.linear()) {
      b.Use(out_->data);
      undo_ = true;
    }
    b.Use(in_->data);
    if (!row_of_.empty()) {
      b.Use(ordered_);
      ordered_gradient_ = b.New(ordered_->desc);
    }
    if (in_->needs_gradient) sink_ = b.WriteGradient(in_, in_->data->desc);
  }

  void Forward(const Run& run) override {
    const float* weights = Handle(kernel_);
    if (ordered_ != nullptr) weights = OrderRows();
    float* y = out_->data->data();
    Check(dnnl_sgemm('N', 'N', examples_, units_, rows_, 1, in_->data->data(), rows_, weights, units_, 0, y, units_));
    const bool primitive = static_cast<bool>(call_);
    BiasActivation(primitive ? Activation{} : activation_, bias_ ? Handle(bias_) : nullptr, y, examples_, units_);
    if (primitive) call_(run);
  }

  void BackwardVariables(const Run&) override {
    float* g = out_->gradient->data();
    if (undo_) ActivationBackward(activation_, out_->data->data(), g, examples_ * units_);
    float* gradient = ordered_ != nullptr ? ordered_gradient_->data() : Handle(kernel_gradient_);
    Check(dnnl_sgemm('T', 'N', rows_, units_, examples_, 1, in_->data->data(), rows_, g, units_, 0, gradient, units_));
    if (ordered_ != nullptr) {
      float* keras = Handle(kernel_gradient_);
      for (int64_t p = 0; p < rows_; ++p) {
        if (row_of_[p] >= 0) std::memcpy(keras + row_of_[p] * units_, gradient + p * units_, units_ * sizeof(float));
      }
    }
    if (bias_gradient_) ColumnSums(g, examples_, units_, units_, Handle(bias_gradient_));
  }

  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    const float* weights = ordered_ != nullptr ? ordered_->data() : Handle(kernel_);
    Check(dnnl_sgemm('N', 'T', examples_, rows_, units_, 1, out_->gradient->data(), units_, weights, units_, 0,
                     sink_.tensor->data(), rows_));
    sink_.Finish(run);
  }

 private:
  static float* Handle(const dnnl::memory& memory) { return static_cast<float*>(memory.get_data_handle()); }

  // Padding meets rows of zeros: it adds nothing forward, and gets zeros backward.
  const float* OrderRows() {
    const float* keras = Handle(kernel_);
    float* ordered = ordered_->data();
    for (int64_t p = 0; p < rows_; ++p) {
      if (row_of_[p] >= 0) {
        std::memcpy(ordered + p * units_, keras + row_of_[p] * units_, units_ * sizeof(float));
      } else {
        std::memset(ordered + p * units_, 0, units_ * sizeof(float));
      }
    }
    return ordered;
  }

  void CompileActivation(PlanBuilder& b) {
    const auto algorithm =
        activation_.kind == v1::TANH ? dnnl::algorithm::eltwise_tanh : dnnl::algorithm::eltwise_logistic;
    const dnnl::eltwise_forward::desc desc(b.forward_kind(), algorithm, out_->data->desc, 0, 0);
    const dnnl::eltwise_forward::primitive_desc pd(desc, b.Attributes(), b.engine());
    call_ = b.MakeCall(pd, dnnl::eltwise_forward(pd),
                       {{DNNL_ARG_SRC, out_->data->memory}, {DNNL_ARG_DST, out_->data->memory}});
  }

  const Activation activation_;
  Value* const in_;
  Value* const out_;
  const int64_t examples_;
  int64_t rows_ = 0, units_ = 0;
  std::vector<int64_t> row_of_;  // empty: the input is plain
  dnnl::memory kernel_, bias_, kernel_gradient_, bias_gradient_;
  Tensor* ordered_ = nullptr;  // the weights in the input's order
  Tensor* ordered_gradient_ = nullptr;
  Call call_;  // an activation that needs exp
  Sink sink_;
  bool undo_ = false;
};

}  // namespace

std::unique_ptr<Op> MakeDense(PlanBuilder& b, const Node& node, const Activation& activation, Value* in, Value* out) {
  return std::make_unique<DenseOp>(b, node, activation, in, out);
}

}  // namespace cairn::onednn
