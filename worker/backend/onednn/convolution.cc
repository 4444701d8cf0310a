// Convolutions over images, sequences and volumes, in groups of channels too, depthwise ones (grouped), Dense on images
// (by 1x1) and transposed ones (oneDNN's deconvolution) in the layouts that oneDNN chooses. Kernels go from Keras'
// layout to oneDNN's once a step, their gradients back.
//
// Under compute_dtype BFLOAT16 an ordinary convolution reads bfloat16 copies of its input, its kernel and its output's
// gradient, which the same reorders make that change layouts; what it writes is float32.
#include <optional>

#include "worker/backend/onednn/bound_variable.h"
#include "worker/backend/onednn/depthwise_gradient.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

using dnnl::algorithm;
using dnnl::memory;

struct Geometry {
  memory::dims strides, dilates, pad_begin, pad_end;
  memory::dims kernel;  // oneDNN's: {o, i, axes...}, or {groups, o, i, axes...}
  Desc keras_kernel;    // the same numbers as they lie in the parameter space
  void AddAxis(const WindowAxis& axis) {
    strides.push_back(axis.stride);
    dilates.push_back(axis.dilation - 1);
    pad_begin.push_back(axis.pad_begin);
    pad_end.push_back(axis.pad_end);
  }
};

// The axes of Keras' kernels are [h, w, in, out] ([w, in, out] along a sequence, [d, h, w, in, out] of volumes, [in,
// out] of Dense; `in` of a group), depthwise [h, w, channels, multiplier] (output channel c * multiplier + m),
// transposed [h, w, out, in].
Geometry MakeGeometry(const Convolution& c) {
  Geometry g;
  memory::dims axes, lie;  // the kernel's, and how far apart their numbers lie
  const Shape& shape = c.kernel->shape;
  const int64_t first = shape[shape.size() - 2], last = shape.back();
  const Window& w = c.window;
  int64_t stride = first * last * w.kernel[0] * w.kernel[1];
  if (c.output.size() == 4) {
    g.AddAxis(w.depth);
    axes.push_back(w.depth.kernel);
    lie.push_back(stride);
  }
  for (int i = 0; i < 2; ++i) {
    g.AddAxis({w.kernel[i], w.strides[i], w.dilation[i], w.pad_begin[i], w.pad_end[i]});
    axes.push_back(w.kernel[i]);
    lie.push_back(stride /= w.kernel[i]);
  }
  const auto set = [&](memory::dims dims, memory::dims strides) {
    dims.insert(dims.end(), axes.begin(), axes.end());
    strides.insert(strides.end(), lie.begin(), lie.end());
    g.keras_kernel = Desc(dims, memory::data_type::f32, strides);
    g.kernel = std::move(dims);
  };
  const int64_t groups = w.groups;
  switch (c.kind) {
    case Convolution::kForward:
      groups == 1 ? set({last, first}, {1, last}) : set({groups, last / groups, first}, {last / groups, 1, last});
      break;
    case Convolution::kDepthwise: set({first, last, 1}, {last, 1, 1}); break;
    case Convolution::kTransposed: set({first, last}, {last, 1}); break;
  }
  return g;
}

// Fewer input channels (pictures) leave a tile of bfloat16 products mostly empty: measured slower than float32.
constexpr int64_t kBfloat16ChannelsMin = 16;

Desc Any(const memory::dims& dims, memory::data_type type = memory::data_type::f32) {
  return Desc(dims, type, Tag::any);
}

// The gradient of a kernel by DepthwiseKernelGradient.
class DepthwiseGradient {
 public:
  // Whether it is used for the convolution; oneDNN's primitive is used for the others.
  static bool Suits(const Convolution& c) {
    const Window& w = c.window;
    return c.kind == Convolution::kDepthwise && c.output.size() == 3 && c.kernel->shape.back() == 1 &&
           w.dilation[0] == 1 && w.dilation[1] == 1 && HasDepthwiseGradient(w.kernel[0], w.kernel[1]);
  }

  // in, out_gradient: what Read gave for Layout of their dimensions.
  DepthwiseGradient(PlanBuilder& b, const Convolution& c, Tensor* in, Tensor* out_gradient)
      : in_(in), out_gradient_(out_gradient), kernel_(b, c.kernel), bias_(b, c.bias) {
    const memory::dims x = in->desc.dims(), y = out_gradient->desc.dims();
    const Window& w = c.window;
    shape_ = {.examples = x[0], .channels = x[1], .rows = x[2], .columns = x[3]};
    shape_.out_rows = y[2], shape_.out_columns = y[3];
    shape_.kernel = w.kernel[0];
    shape_.row_stride = w.strides[0], shape_.column_stride = w.strides[1];
    shape_.pad_top = w.pad_begin[0], shape_.pad_left = w.pad_begin[1];
    scratch_ = b.New(MakeDesc({DepthwiseScratchNumbers(shape_)}, Tag::x));
  }
  static Desc Layout(const memory::dims& dims) { return MakeDesc(dims, Tag::nChw16c); }

  void Run() const {
    DepthwiseKernelGradient(shape_, in_->data(), out_gradient_->data(), scratch_->data(), kernel_.gradient());
    if (bias_.trains()) DepthwiseBiasGradient(shape_, out_gradient_->data(), bias_.gradient());
  }

 private:
  Tensor* const in_;
  Tensor* const out_gradient_;
  const BoundVariable kernel_, bias_;
  DepthwiseShape shape_;
  Tensor* scratch_;
};

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
      : convolution_(convolution),
        activation_(activation),
        in_(in),
        out_(out),
        kernel_(convolution.kernel),
        bias_(convolution.bias),
        geometry_(MakeGeometry(convolution)),
        src_(convolution.output.size() == 4 ? VolumeDims(b.examples(), convolution.input) : in->data->desc.dims()),
        dst_(VolumeDims(b.examples(), convolution.output)),
        operand_(b.bfloat16() && convolution.kind == Convolution::kForward && convolution.window.groups == 1 &&
                         geometry_.kernel[1] >= kBfloat16ChannelsMin
                     ? memory::data_type::bf16
                     : memory::data_type::f32),
        trains_(b.Trains(*convolution.kernel)) {
    forward_.desc = MakeForward(b);
    forward_.in = b.Read(in->data, ImageOf(forward_.desc.src_desc()));
    const memory weights = ForwardWeights(b);
    out->data = b.New(ImageOf(forward_.desc.dst_desc()));
    out->activation = activation;
    out->may_overwrite = activation.linear() || !b.training();
    std::vector<std::pair<int, memory>> arguments = {
        {DNNL_ARG_SRC, b.Use(forward_.in.tensor, forward_.desc.src_desc())},
        {DNNL_ARG_WEIGHTS, weights},
        {DNNL_ARG_DST, b.Use(out->data, forward_.desc.dst_desc())}};
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
    if (kernel_gradient_.depthwise.has_value()) return kernel_gradient_.depthwise->Run();
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

  typename Family::Forward::primitive_desc MakeForward(PlanBuilder& b) const {
    const Desc src = Any(src_, operand_), weights = Any(geometry_.kernel, operand_), dst = Any(dst_);
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
    if (DepthwiseGradient::Suits(convolution_)) {
      ReadForWeights(b, DepthwiseGradient::Layout(src_), DepthwiseGradient::Layout(dst_));
      kernel_gradient_.depthwise.emplace(b, convolution_, kernel_gradient_.in.tensor,
                                         kernel_gradient_.out_gradient.tensor);
      return;
    }
    const Geometry& g = geometry_;
    const Desc src = Any(src_, operand_), weights = Any(g.kernel), diff_dst = Any(dst_, operand_);
    using Backward = typename Family::BackwardWeights;
    const typename Backward::desc desc =
        bias_ != nullptr ? typename Backward::desc(Family::kAlgorithm, src, weights, BiasDesc(), diff_dst, g.strides,
                                                   g.dilates, g.pad_begin, g.pad_end)
                         : typename Backward::desc(Family::kAlgorithm, src, weights, diff_dst, g.strides, g.dilates,
                                                   g.pad_begin, g.pad_end);
    const typename Backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_.desc);
    ReadForWeights(b, pd.src_desc(), pd.diff_dst_desc());

    memory gradient = b.GradientOf(*kernel_, g.keras_kernel);
    if (pd.diff_weights_desc() != g.keras_kernel) {
      Tensor* blocked = b.New(pd.diff_weights_desc());
      kernel_gradient_.kernel_reorder = b.Reorder(blocked->memory, gradient);
      gradient = blocked->memory;
    }
    std::vector<std::pair<int, memory>> arguments = {
        {DNNL_ARG_SRC, b.Use(kernel_gradient_.in.tensor, pd.src_desc())},
        {DNNL_ARG_DIFF_DST, b.Use(kernel_gradient_.out_gradient.tensor, pd.diff_dst_desc())},
        {DNNL_ARG_DIFF_WEIGHTS, gradient}};
    if (bias_ != nullptr) arguments.emplace_back(DNNL_ARG_DIFF_BIAS, b.GradientOf(*bias_, BiasDesc()));
    kernel_gradient_.run = b.MakeCall(pd, Backward(pd), std::move(arguments));
  }

  // Brings the input and the output's gradient into the layouts in which the kernel's gradient reads them.
  void ReadForWeights(PlanBuilder& b, const Desc& src, const Desc& diff_dst) {
    // The copy that the forward pass made, if there is one in the right layout.
    const bool copied = forward_.in.tensor != in_->data && ImageOf(src) == forward_.in.tensor->desc;
    kernel_gradient_.in = b.Read(copied ? forward_.in.tensor : in_->data, ImageOf(src));
    kernel_gradient_.out_gradient = b.Read(out_->gradient, ImageOf(diff_dst));
  }

  void CompileData(PlanBuilder& b) {
    const Geometry& g = geometry_;
    using Backward = typename Family::BackwardData;
    const typename Backward::desc desc(Family::kAlgorithm, Any(src_), Any(g.kernel, operand_), Any(dst_, operand_),
                                       g.strides, g.dilates, g.pad_begin, g.pad_end);
    const typename Backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_.desc);
    const bool copied = trains_ && kernel_gradient_.out_gradient.tensor != out_->gradient &&
                        ImageOf(pd.diff_dst_desc()) == kernel_gradient_.out_gradient.tensor->desc;
    input_gradient_.out_gradient =
        b.Read(copied ? kernel_gradient_.out_gradient.tensor : out_->gradient, ImageOf(pd.diff_dst_desc()));

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
    input_gradient_.sink = b.WriteGradient(in_, ImageOf(pd.diff_src_desc()));
    input_gradient_.run =
        b.MakeCall(pd, Backward(pd),
                   {{DNNL_ARG_DIFF_DST, b.Use(input_gradient_.out_gradient.tensor, pd.diff_dst_desc())},
                    {DNNL_ARG_WEIGHTS, weights},
                    {DNNL_ARG_DIFF_SRC, b.Use(input_gradient_.sink.tensor, pd.diff_src_desc())}});
  }

  // The three primitives, each with its inputs in its own layout.
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
    Call kernel_reorder;                         // to Keras' layout
    std::optional<DepthwiseGradient> depthwise;  // instead of `run`
  };
  struct InputGradient {
    Source out_gradient;
    Call kernel_reorder;
    Call run;  // none: nobody wants it
    Sink sink;
  };

  const Convolution convolution_;
  const Activation activation_;
  Value* const in_;
  Value* const out_;
  const Variable* const kernel_;
  const Variable* const bias_;
  const Geometry geometry_;
  const memory::dims src_, dst_;     // of an image, or of a volume
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
