// EinsumDense as matrix products, one for each index of the letters that all three operands share. Operands are put
// into the order of the products before them, and results back into their own order.
#include "worker/backend/einsum.h"

#include <algorithm>

#include "worker/backend/fusion.h"
#include "worker/backend/onednn/bound_variable.h"
#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/loop_op.h"
#include "worker/backend/onednn/matrix_product.h"

namespace cairn::onednn {
namespace {

class EinsumOp : public LoopOp {
 public:
  EinsumOp(PlanBuilder& b, const Node& node, const Shape& input, Value* in, Value* out)
      : LoopOp(b, {in}, {input}, node.output, out, BackwardReads::kNothing),
        places_(EinsumPlacesOf(node, input)),
        examples_(b.examples()),
        rows_(examples_ * places_.rows),
        in_(NumElements(input)),
        out_(NumElements(node.output)),
        kernel_(b, b.FindVariable(node, "kernel")),
        bias_(b, b.FindVariable(node, "bias")) {
    if (const Variable* const bias = b.FindVariable(node, "bias")) bias_numbers_ = bias->size;
    ordered_x_ = b.New(MakeDesc({places_.shared, rows_, places_.summed}, Tag::abc));
    ordered_kernel_ = b.New(MakeDesc({places_.shared, places_.summed, places_.columns}, Tag::abc));
    ordered_y_ = b.New(MakeDesc({places_.shared, rows_, places_.columns}, Tag::abc));
  }

 private:
  void UseBackward(PlanBuilder& b) override {
    b.Use(ordered_x_);
    b.Use(ordered_kernel_);
    ordered_dy_ = b.New(ordered_y_->desc);
    ordered_dx_ = b.New(ordered_x_->desc);
    ordered_dkernel_ = b.New(ordered_kernel_->desc);
  }

  // Calls fn(index in [examples, size], index in [shared, examples, rows, width]) for all numbers of x or y.
  template <typename Fn>
  void ForOrdered(const std::vector<int32_t>& places, int64_t size, int64_t width, const Fn& fn) const {
    const int64_t each = places_.rows * width;
    ForExamples(examples_, examples_ * size, [&](int64_t e) {
      for (int64_t g = 0; g < places_.shared; ++g) {
        for (int64_t i = 0; i < each; ++i)
          fn(e * size + places[static_cast<size_t>(g * each + i)], (g * examples_ + e) * each + i);
      }
    });
  }

  void Compute(const Run&, float* y) override {
    const float* const kernel = kernel_.value();
    for (size_t i = 0; i < places_.kernel.size(); ++i) ordered_kernel_->data()[i] = kernel[places_.kernel[i]];
    ForOrdered(places_.x, in_, places_.summed,
               [&](int64_t at, int64_t ordered) { ordered_x_->data()[ordered] = x()[at]; });
    const MatrixProduct product{.m = rows_,
                                .n = places_.columns,
                                .k = places_.summed,
                                .a_row = places_.summed,
                                .b_row = places_.columns,
                                .c_row = places_.columns};
    for (int64_t g = 0; g < places_.shared; ++g) {
      MultiplyMatrices(product, X(ordered_x_, g), Kernel(ordered_kernel_, g), 0, Y(ordered_y_, g));
    }
    const float* const bias = bias_.value();
    ForOrdered(places_.y, out_, places_.columns, [&](int64_t at, int64_t ordered) {
      y[at] =
          ordered_y_->data()[ordered] + (bias == nullptr ? 0.0f : bias[places_.bias[static_cast<size_t>(at % out_)]]);
    });
  }

  void Derive(const Run&, const float* dy) override {
    if (bias_.trains()) {
      std::vector<double> sums(static_cast<size_t>(bias_numbers_), 0.0);
      for (int64_t i = 0; i < examples_ * out_; ++i)
        sums[static_cast<size_t>(places_.bias[static_cast<size_t>(i % out_)])] += dy[i];
      std::copy(sums.begin(), sums.end(), bias_.gradient());
    }
    ForOrdered(places_.y, out_, places_.columns,
               [&](int64_t at, int64_t ordered) { ordered_dy_->data()[ordered] = dy[at]; });
    if (float* const to = kernel_.gradient()) {
      const MatrixProduct product{.transpose_a = 'T',
                                  .m = places_.summed,
                                  .n = places_.columns,
                                  .k = rows_,
                                  .a_row = places_.summed,
                                  .b_row = places_.columns,
                                  .c_row = places_.columns};
      for (int64_t g = 0; g < places_.shared; ++g) {
        MultiplyMatrices(product, X(ordered_x_, g), Y(ordered_dy_, g), 0, Kernel(ordered_dkernel_, g));
      }
      for (size_t i = 0; i < places_.kernel.size(); ++i) to[places_.kernel[i]] = ordered_dkernel_->data()[i];
    }
    if (dx() == nullptr) return;
    const MatrixProduct product{.transpose_b = 'T',
                                .m = rows_,
                                .n = places_.summed,
                                .k = places_.columns,
                                .a_row = places_.columns,
                                .b_row = places_.columns,
                                .c_row = places_.summed};
    for (int64_t g = 0; g < places_.shared; ++g) {
      MultiplyMatrices(product, Y(ordered_dy_, g), Kernel(ordered_kernel_, g), 0, X(ordered_dx_, g));
    }
    ForOrdered(places_.x, in_, places_.summed,
               [&](int64_t at, int64_t ordered) { dx()[at] = ordered_dx_->data()[ordered]; });
  }

  float* X(Tensor* t, int64_t g) const { return t->data() + g * rows_ * places_.summed; }
  float* Y(Tensor* t, int64_t g) const { return t->data() + g * rows_ * places_.columns; }
  float* Kernel(Tensor* t, int64_t g) const { return t->data() + g * places_.summed * places_.columns; }

  const EinsumPlaces places_;
  const int64_t examples_, rows_, in_, out_;
  const BoundVariable kernel_, bias_;
  int64_t bias_numbers_ = 0;
  Tensor *ordered_x_ = nullptr, *ordered_kernel_ = nullptr, *ordered_y_ = nullptr;
  Tensor *ordered_dx_ = nullptr, *ordered_dkernel_ = nullptr, *ordered_dy_ = nullptr;
};

void CompileEinsum(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  const Shape& input = b.graph().nodes()[node.inputs[0]].output;
  const Activation activation = b.groups().ActivationOf(node);
  const bool further = IsFurtherActivation(node), plain = activation.linear() && !further;
  Value* const target = plain ? out : b.NewInnerValue(out->needs_gradient);
  b.AddOp(node.variables, target, std::make_unique<EinsumOp>(b, node, input, in[0], target));
  if (plain) return;
  b.AddOp({}, out,
          further                    ? MakeFurtherActivation(b, node, target, out)
          : activation.elementwise() ? MakeActivation(b, activation, target, out)
                                     : MakeSoftmax(b, target, out));
}

constexpr Layer kLayers[] = {
    {LayerKind::kEinsumDense, CompileEinsum},
};

}  // namespace

absl::Span<const Layer> EinsumLayers() { return kLayers; }

}  // namespace cairn::onednn
