// Dense on vectors and on the rows of a sequence: three matrix products on the weights as they lie in the parameter
// space, [in, out]. Measured, this is as fast as oneDNN's inner products in layouts of their own choice, and needs no
// reorder of the weights. Where the input is a flattened image in a blocked layout, the rows of the weights are put in
// its order (few numbers) instead of the image in the weights' order (many).
#include <cstring>

#include "common/base/check.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

using dnnl::memory;

// row_of[p]: the number of the flattened image (channels last) that stands at place p of an example; -1 for padding.
std::vector<int64_t> RowOrder(const Desc& desc) {
  const memory::dims dims = desc.dims();
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
  DenseOp(PlanBuilder& b, const Projection& p, const Activation& activation, Value* in, Value* out)
      : activation_(activation),
        in_(in),
        out_(out),
        rows_(b.examples() * NumElements(p.output) / p.units),
        units_(p.units),
        in_numbers_(p.kernel->size / p.units),
        trains_(b.Trains(*p.kernel)) {
    // A flattened image: its numbers may stand in an order of their own. Else the rows' numbers stand side by side.
    if (p.output.size() == 1 && !IsPlain(in->data->desc)) row_of_ = RowOrder(in->data->desc);
    if (!row_of_.empty()) in_numbers_ = static_cast<int64_t>(row_of_.size());
    const Desc kernel_desc = MakeDesc({p.kernel->size / units_, units_}, Tag::ab);
    const Desc bias_desc = MakeDesc({units_}, Tag::x);
    kernel_ = b.ValueOf(*p.kernel, kernel_desc);
    if (p.bias != nullptr) bias_ = b.ValueOf(*p.bias, bias_desc);
    if (trains_) {
      kernel_gradient_ = b.GradientOf(*p.kernel, kernel_desc);
      if (p.bias != nullptr) bias_gradient_ = b.GradientOf(*p.bias, bias_desc);
    }
    const memory::dims dims = in->data->desc.dims();
    const bool sequence = p.output.size() == 2;
    source_ = b.Read(in->data, sequence ? MakeDesc(dims, Tag::nhwc) : in->data->desc);
    if (!row_of_.empty()) ordered_ = b.New(MakeDesc({in_numbers_, units_}, Tag::ab));
    out->data = b.New(PlainDesc(b.examples(), p.output));
    out->activation = activation;
    out->may_overwrite = activation.linear() || !b.training();
    if (!CheapActivation(activation)) call_ = ApplyActivation(b, activation, out->data);
  }

  void CompileBackward(PlanBuilder& b) override {
    b.Use(out_->gradient);
    if (!out_->activation_undone && !activation_.linear()) {
      b.Use(out_->data);
      undo_ = true;
    }
    if (!row_of_.empty()) b.Use(ordered_);
    if (trains_) {
      b.Use(source_.tensor);
      if (!row_of_.empty()) ordered_gradient_ = b.New(ordered_->desc);
    }
    if (in_->needs_gradient) sink_ = b.WriteGradient(in_, source_.tensor->desc);
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    const float* weights = Handle(kernel_);
    if (ordered_ != nullptr) weights = OrderRows();
    float* y = out_->data->data();
    Check(dnnl_sgemm('N', 'N', rows_, units_, in_numbers_, 1, source_.tensor->data(), in_numbers_, weights, units_, 0,
                     y, units_));
    BiasActivation(call_ ? Activation{} : activation_, bias_ ? Handle(bias_) : nullptr, y, rows_, units_);
    if (call_) call_(run);
  }

  void BackwardVariables(const Run&) override {
    float* g = out_->gradient->data();
    if (undo_) ActivationBackward(activation_, out_->data->data(), g, rows_ * units_);
    if (!trains_) return;
    float* gradient = ordered_ != nullptr ? ordered_gradient_->data() : Handle(kernel_gradient_);
    Check(dnnl_sgemm('T', 'N', in_numbers_, units_, rows_, 1, source_.tensor->data(), in_numbers_, g, units_, 0,
                     gradient, units_));
    if (ordered_ != nullptr) {
      float* keras = Handle(kernel_gradient_);
      for (int64_t p = 0; p < in_numbers_; ++p) {
        if (row_of_[p] >= 0) std::memcpy(keras + row_of_[p] * units_, gradient + p * units_, units_ * sizeof(float));
      }
    }
    if (bias_gradient_) ColumnSums(g, rows_, units_, units_, Handle(bias_gradient_));
  }

  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    const float* weights = ordered_ != nullptr ? ordered_->data() : Handle(kernel_);
    Check(dnnl_sgemm('N', 'T', rows_, in_numbers_, units_, 1, out_->gradient->data(), units_, weights, units_, 0,
                     sink_.tensor->data(), in_numbers_));
    sink_.Finish(run);
  }

 private:
  static float* Handle(const memory& memory) { return static_cast<float*>(memory.get_data_handle()); }

  // Padding meets rows of zeros: it adds nothing forward, and gets zeros backward.
  const float* OrderRows() {
    const float* keras = Handle(kernel_);
    float* ordered = ordered_->data();
    for (int64_t p = 0; p < in_numbers_; ++p) {
      if (row_of_[p] >= 0) {
        std::memcpy(ordered + p * units_, keras + row_of_[p] * units_, units_ * sizeof(float));
      } else {
        std::memset(ordered + p * units_, 0, units_ * sizeof(float));
      }
    }
    return ordered;
  }

  const Activation activation_;
  Value* const in_;
  Value* const out_;
  const int64_t rows_, units_;
  int64_t in_numbers_;  // of a row of the input, padding included
  const bool trains_;
  std::vector<int64_t> row_of_;  // empty: they are in the kernel's order
  Source source_;
  memory kernel_, bias_, kernel_gradient_, bias_gradient_;
  Tensor* ordered_ = nullptr;  // the weights in the input's order
  Tensor* ordered_gradient_ = nullptr;
  Call call_;  // an activation that is a primitive
  Sink sink_;
  bool undo_ = false;
};

}  // namespace

std::unique_ptr<Op> MakeDense(PlanBuilder& b, const Projection& projection, const Activation& activation, Value* in,
                              Value* out) {
  return std::make_unique<DenseOp>(b, projection, activation, in, out);
}

}  // namespace cairn::onednn
