// Dense on vectors and on the rows of a sequence: three matrix products with the kernel as it is in the parameter
// space, [in, out]. By measurement this is as fast as oneDNN's inner products in layouts of their own choice, and needs
// no reorder of the kernel. If the input is a flattened image in a blocked layout, the rows of the kernel are put into
// its order (few numbers) instead of the image into the kernel's order (many).
#include <cstring>
#include <optional>
#include <vector>

#include "common/base/check.h"
#include "worker/backend/onednn/bound_variable.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

using dnnl::memory;

// The index in the flattened image (channels last) of the number at index p of an example; -1 for padding.
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

// A kernel whose rows are put in the order in which a blocked image holds its numbers. Padding of the image meets rows
// of zeros: it adds nothing to the output, and the kernel's gradient has no row for it.
class ReorderedKernel {
 public:
  // For a flattened `image`.
  ReorderedKernel(PlanBuilder& b, const Desc& image, int64_t units)
      : row_of_(RowOrder(image)), units_(units), kernel_(b.New(MakeDesc({rows(), units}, Tag::ab))) {}

  void CompileBackward(PlanBuilder& b, bool trains) {
    b.Use(kernel_);
    if (trains) gradient_ = b.New(kernel_->desc);
  }

  int64_t rows() const { return static_cast<int64_t>(row_of_.size()); }
  const float* kernel() const { return kernel_->data(); }
  float* gradient() const { return gradient_->data(); }

  // Copies the kernel in Keras' order to kernel().
  void PutInOrder(const float* keras) {
    float* const ordered = kernel_->data();
    for (int64_t p = 0; p < rows(); ++p) {
      if (row_of_[p] >= 0) {
        std::memcpy(ordered + p * units_, keras + row_of_[p] * units_, units_ * sizeof(float));
      } else {
        std::memset(ordered + p * units_, 0, units_ * sizeof(float));
      }
    }
  }
  // Copies gradient() to the gradient in Keras' order.
  void PutBack(float* keras) const {
    for (int64_t p = 0; p < rows(); ++p) {
      if (row_of_[p] < 0) continue;
      std::memcpy(keras + row_of_[p] * units_, gradient_->data() + p * units_, units_ * sizeof(float));
    }
  }

 private:
  const std::vector<int64_t> row_of_;
  const int64_t units_;
  Tensor* const kernel_;
  Tensor* gradient_ = nullptr;
};

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
        kernel_(b, p.kernel),
        bias_(b, p.bias) {
    const Desc& given = in->data->desc;
    source_ = b.Read(in->data, p.output.size() == 2 ? MakeDesc(given.dims(), Tag::nhwc) : given);
    // A flattened image may be in a blocked layout; the rows of a sequence are read as contiguous numbers.
    if (p.output.size() == 1 && !IsPlain(given)) {
      reordered_.emplace(b, given, units_);
      in_numbers_ = reordered_->rows();
    }
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
    if (reordered_) reordered_->CompileBackward(b, kernel_.trains());
    if (kernel_.trains()) b.Use(source_.tensor);
    if (in_->needs_gradient) sink_ = b.WriteGradient(in_, source_.tensor->desc);
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    if (reordered_) reordered_->PutInOrder(kernel_.value());
    float* y = out_->data->data();
    Check(dnnl_sgemm('N', 'N', rows_, units_, in_numbers_, 1, source_.tensor->data(), in_numbers_, Kernel(), units_, 0,
                     y, units_));
    BiasActivation(call_ ? Activation{} : activation_, bias_.value(), y, rows_, units_);
    if (call_) call_(run);
  }

  void BackwardVariables(const Run&) override {
    float* g = out_->gradient->data();
    if (undo_) ActivationBackward(activation_, out_->data->data(), g, rows_ * units_);
    if (!kernel_.trains()) return;
    float* const gradient = reordered_ ? reordered_->gradient() : kernel_.gradient();
    Check(dnnl_sgemm('T', 'N', in_numbers_, units_, rows_, 1, source_.tensor->data(), in_numbers_, g, units_, 0,
                     gradient, units_));
    if (reordered_) reordered_->PutBack(kernel_.gradient());
    if (bias_.trains()) ColumnSums(g, rows_, units_, units_, bias_.gradient());
  }

  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    Check(dnnl_sgemm('N', 'T', rows_, in_numbers_, units_, 1, out_->gradient->data(), units_, Kernel(), units_, 0,
                     sink_.tensor->data(), in_numbers_));
    sink_.Finish(run);
  }

 private:
  // The kernel in the order of the input's numbers.
  const float* Kernel() const { return reordered_ ? reordered_->kernel() : kernel_.value(); }

  const Activation activation_;
  Value* const in_;
  Value* const out_;
  const int64_t rows_, units_;
  int64_t in_numbers_;  // of a row of the input, padding included
  const BoundVariable kernel_, bias_;
  Source source_;
  std::optional<ReorderedKernel> reordered_;  // where the input is a blocked image
  Call call_;                                 // an activation that is a primitive
  Sink sink_;
  bool undo_ = false;  // backward takes the activation's derivative
};

}  // namespace

std::unique_ptr<Op> MakeDense(PlanBuilder& b, const Projection& projection, const Activation& activation, Value* in,
                              Value* out) {
  return std::make_unique<DenseOp>(b, projection, activation, in, out);
}

}  // namespace cairn::onednn
