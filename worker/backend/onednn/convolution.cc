// Convolutions over images and sequences, depthwise ones (grouped), Dense on images (by 1x1) and transposed ones
// (oneDNN's deconvolution) in the layouts that oneDNN chooses. Kernels go from Keras' layout to oneDNN's once a step,
// their gradients back.
//
// Under compute_dtype BFLOAT16 an ordinary convolution reads bfloat16 copies of its input, its kernel and its output's
// gradient, which the same reorders make that change layouts; what it writes is float32.
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

using dnnl::algorithm;
using dnnl::memory;

struct Geometry {
  memory::dims strides{1, 1}, dilates{0, 0}, pad_begin{0, 0}, pad_end{0, 0};
  memory::dims kernel;  // oneDNN's: {o, i, h, w}, or {groups, o, i, h, w}
  Desc keras_kernel;    // the same numbers as they lie in the parameter space
};

// The axes of Keras' kernels are [h, w, in, out] ([w, in, out] along a sequence, [in, out] of Dense), depthwise [h, w,
// channels, multiplier] (output channel c * multiplier + m), transposed [h, w, out, in].
Geometry MakeGeometry(const Convolution& c) {
  Geometry g;
  for (int i = 0; i < 2; ++i) {
    g.strides[i] = c.window.strides[i];
    g.dilates[i] = c.window.dilation[i] - 1;
    g.pad_begin[i] = c.window.pad_begin[i];
    g.pad_end[i] = c.window.pad_end[i];
  }
  const int64_t h = c.window.kernel[0], w = c.window.kernel[1];
  const Shape& shape = c.kernel->shape;
  const int64_t first = shape[shape.size() - 2], last = shape.back();
  const auto type = memory::data_type::f32;
  switch (c.kind) {
    case Convolution::kForward:
      g.kernel = {last, first, h, w};
      g.keras_kernel = MakeDesc(g.kernel, Tag::hwio);
      break;
    case Convolution::kDepthwise:
      g.kernel = {first, last, 1, h, w};
      g.keras_kernel = Desc(g.kernel, type, memory::dims{last, 1, 1, w * first * last, first * last});
      break;
    case Convolution::kTransposed:
      g.kernel = {first, last, h, w};
      g.keras_kernel = Desc(g.kernel, type, memory::dims{last, 1, w * first * last, first * last});
      break;
  }
  return g;
}

// Fewer input channels (pictures) leave a tile of bfloat16 products mostly empty: measured slower than float32.
constexpr int64_t kBfloat16ChannelsMin = 16;

Desc Any(const memory::dims& dims, memory::data_type type = memory::data_type::f32) {
  return Desc(dims, type, Tag::any);
}

// oneDNN's two families of the same shape.
struct Forwards {
  static constexpr algorithm kAlgorithm = algorithm::convolution_direct;
  using Forward = dnnl::convolution_forward;
  using BackwardData = dnnl::convolution_backward_data;
  using BackwardWeights = dnnl::convolution_backward_weights;
};
struct Transposed {
  static constexpr algorithm kAlgorithm = algorithm::deconvolution_direct;
  using Forward = dnnl::deconvolution_forward;
  using BackwardData = dnnl::deconvolution_backward_data;
  using BackwardWeights = dnnl::deconvolution_backward_weights;
};

template <typename Family>
class ConvolutionOp : public Op {
 public:
  ConvolutionOp(PlanBuilder& b, const Convolution& convolution, const Activation& activation, Value* in, Value* out)
      : activation_(activation),
        in_(in),
        out_(out),
        kernel_(convolution.kernel),
        bias_(convolution.bias),
        geometry_(MakeGeometry(convolution)),
        operand_(b.bfloat16() && convolution.kind == Convolution::kForward &&
                         geometry_.kernel[1] >= kBfloat16ChannelsMin
                     ? memory::data_type::bf16
                     : memory::data_type::f32),
        trains_(b.Trains(*convolution.kernel)) {
    forward_.desc = MakeForward(b, MakeDims(b.examples(), convolution.output));
    forward_.in = b.Read(in->data, forward_.desc.src_desc());
    const memory weights = ForwardWeights(b);
    out->data = b.New(forward_.desc.dst_desc());
    out->activation = activation;
    out->may_overwrite = activation.linear() || !b.training();
    std::vector<std::pair<int, memory>> arguments = {
        {DNNL_ARG_SRC, forward_.in.tensor->memory}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, out->data->memory}};
    if (bias_ != nullptr) arguments.emplace_back(DNNL_ARG_BIAS, b.ValueOf(*bias_, BiasDesc()));
    forward_.run = b.MakeCall(forward_.desc, typename Family::Forward(forward_.desc), std::move(arguments));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!out_->activation_undone && !activation_.linear()) {
      b.Use(out_->data);
      undo_ = true;
    }
    if (trains_) CompileWeights(b);
    if (in_->needs_gradient) CompileData(b);
  }

  void Forward(const Run& run) override {
    forward_.in.Prepare(run);
    if (forward_.kernel_reorder) forward_.kernel_reorder(run);
    forward_.run(run);
  }

  void BackwardVariables(const Run& run) override {
    if (undo_) {
      ActivationBackward(activation_, out_->data->data(), out_->gradient->data(), out_->gradient->numbers());
    }
    if (!trains_) return;
    kernel_gradient_.in.Prepare(run);
    kernel_gradient_.out_gradient.Prepare(run);
    kernel_gradient_.run(run);
    if (kernel_gradient_.kernel_reorder) kernel_gradient_.kernel_reorder(run);
  }

  void BackwardInputs(const Run& run) override {
    if (!input_gradient_.run) return;
    input_gradient_.out_gradient.Prepare(run);
    if (input_gradient_.kernel_reorder) input_gradient_.kernel_reorder(run);
    input_gradient_.run(run);
    input_gradient_.sink.Finish(run);
  }

 private:
  Desc BiasDesc() const { return MakeDesc({bias_->size}, Tag::x); }

  typename Family::Forward::primitive_desc MakeForward(PlanBuilder& b, const memory::dims& output) const {
    const Desc src = Any(in_->data->desc.dims(), operand_), weights = Any(geometry_.kernel, operand_),
               dst = Any(output);
    const Geometry& g = geometry_;
    using Forward = typename Family::Forward;
    const typename Forward::desc desc =
        bias_ != nullptr ? typename Forward::desc(b.forward_kind(), Family::kAlgorithm, src, weights, BiasDesc(), dst,
                                                  g.strides, g.dilates, g.pad_begin, g.pad_end)
                         : typename Forward::desc(b.forward_kind(), Family::kAlgorithm, src, weights, dst, g.strides,
                                                  g.dilates, g.pad_begin, g.pad_end);
    dnnl::primitive_attr attributes = b.Attributes();
    AppendActivation(activation_, &attributes);
    return typename Forward::primitive_desc(desc, attributes, b.engine());
  }

  memory ForwardWeights(PlanBuilder& b) {
    const memory keras = b.ValueOf(*kernel_, geometry_.keras_kernel);
    const Desc wanted = forward_.desc.weights_desc();
    if (wanted == geometry_.keras_kernel) return keras;
    forward_.kernel = b.New(wanted);
    forward_.kernel_reorder = b.Reorder(keras, forward_.kernel->memory);
    return forward_.kernel->memory;
  }

  void CompileWeights(PlanBuilder& b) {
    const Geometry& g = geometry_;
    const Desc src = Any(in_->data->desc.dims(), operand_), weights = Any(g.kernel),
               diff_dst = Any(out_->data->desc.dims(), operand_);
    using Backward = typename Family::BackwardWeights;
    const typename Backward::desc desc =
        bias_ != nullptr ? typename Backward::desc(Family::kAlgorithm, src, weights, BiasDesc(), diff_dst, g.strides,
                                                   g.dilates, g.pad_begin, g.pad_end)
                         : typename Backward::desc(Family::kAlgorithm, src, weights, diff_dst, g.strides, g.dilates,
                                                   g.pad_begin, g.pad_end);
    const typename Backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_.desc);
    // The copy that forward made, if there is one and it will do.
    const bool copied = forward_.in.tensor != in_->data && pd.src_desc() == forward_.in.tensor->desc;
    kernel_gradient_.in = b.Read(copied ? forward_.in.tensor : in_->data, pd.src_desc());
    kernel_gradient_.out_gradient = b.Read(out_->gradient, pd.diff_dst_desc());

    memory gradient = b.GradientOf(*kernel_, g.keras_kernel);
    if (pd.diff_weights_desc() != g.keras_kernel) {
      Tensor* blocked = b.New(pd.diff_weights_desc());
      kernel_gradient_.kernel_reorder = b.Reorder(blocked->memory, gradient);
      gradient = blocked->memory;
    }
    std::vector<std::pair<int, memory>> arguments = {{DNNL_ARG_SRC, kernel_gradient_.in.tensor->memory},
                                                     {DNNL_ARG_DIFF_DST, kernel_gradient_.out_gradient.tensor->memory},
                                                     {DNNL_ARG_DIFF_WEIGHTS, gradient}};
    if (bias_ != nullptr) arguments.emplace_back(DNNL_ARG_DIFF_BIAS, b.GradientOf(*bias_, BiasDesc()));
    kernel_gradient_.run = b.MakeCall(pd, Backward(pd), std::move(arguments));
  }

  void CompileData(PlanBuilder& b) {
    const Geometry& g = geometry_;
    using Backward = typename Family::BackwardData;
    const typename Backward::desc desc(Family::kAlgorithm, Any(in_->data->desc.dims()), Any(g.kernel, operand_),
                                       Any(out_->data->desc.dims(), operand_), g.strides, g.dilates, g.pad_begin,
                                       g.pad_end);
    const typename Backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_.desc);
    const bool copied = trains_ && kernel_gradient_.out_gradient.tensor != out_->gradient &&
                        pd.diff_dst_desc() == kernel_gradient_.out_gradient.tensor->desc;
    input_gradient_.out_gradient =
        b.Read(copied ? kernel_gradient_.out_gradient.tensor : out_->gradient, pd.diff_dst_desc());

    memory weights;
    if (forward_.kernel != nullptr && pd.weights_desc() == forward_.kernel->desc) {
      weights = b.Use(forward_.kernel);
    } else {
      weights = b.ValueOf(*kernel_, g.keras_kernel);
      if (pd.weights_desc() != g.keras_kernel) {
        Tensor* blocked = b.New(pd.weights_desc());
        input_gradient_.kernel_reorder = b.Reorder(weights, blocked->memory);
        weights = blocked->memory;
      }
    }
    input_gradient_.sink = b.WriteGradient(in_, pd.diff_src_desc());
    input_gradient_.run = b.MakeCall(pd, Backward(pd),
                                     {{DNNL_ARG_DIFF_DST, input_gradient_.out_gradient.tensor->memory},
                                      {DNNL_ARG_WEIGHTS, weights},
                                      {DNNL_ARG_DIFF_SRC, input_gradient_.sink.tensor->memory}});
  }

  // The three primitives, each with what it reads in its own layout.
  struct ForwardPass {
    typename Family::Forward::primitive_desc desc;
    Source in;
    Tensor* kernel = nullptr;  // null: it reads Keras' layout
    Call kernel_reorder;
    Call run;
  };
  struct KernelGradient {
    Source in, out_gradient;
    Call run;
    Call kernel_reorder;  // to Keras' layout
  };
  struct InputGradient {
    Source out_gradient;
    Call kernel_reorder;
    Call run;  // none: nobody wants it
    Sink sink;
  };

  const Activation activation_;
  Value* const in_;
  Value* const out_;
  const Variable* const kernel_;
  const Variable* const bias_;
  const Geometry geometry_;
  const memory::data_type operand_;  // of inputs, kernel and output gradient
  const bool trains_;
  ForwardPass forward_;
  KernelGradient kernel_gradient_;
  InputGradient input_gradient_;
  bool undo_ = false;
};

}  // namespace

std::unique_ptr<Op> MakeConvolution(PlanBuilder& b, const Convolution& convolution, const Activation& activation,
                                    Value* in, Value* out) {
  if (convolution.kind == Convolution::kTransposed) {
    return std::make_unique<ConvolutionOp<Transposed>>(b, convolution, activation, in, out);
  }
  return std::make_unique<ConvolutionOp<Forwards>>(b, convolution, activation, in, out);
}

}  // namespace cairn::onednn
