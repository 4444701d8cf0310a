// Conv2D, DepthwiseConv2D (a grouped convolution) and Dense on images (a convolution by 1x1) as oneDNN convolutions in
// the layouts that oneDNN chooses. Kernels go from Keras' layout to oneDNN's once a step, their gradients back.
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

Geometry MakeGeometry(const Node& node, const Window* extra, const Shape& kernel) {
  Geometry g;
  if (node.kind == LayerKind::kDense) {
    g.kernel = {kernel[1], kernel[0], 1, 1};
    g.keras_kernel = MakeDesc(g.kernel, Tag::hwio);
    return g;
  }
  const Window& window = node.window;
  for (int i = 0; i < 2; ++i) {
    g.strides[i] = window.strides[i];
    g.dilates[i] = window.dilation[i] - 1;
    g.pad_begin[i] = window.pad_begin[i] + (extra != nullptr ? extra->pad_begin[i] : 0);
    g.pad_end[i] = window.pad_end[i] + (extra != nullptr ? extra->pad_end[i] : 0);
  }
  const int64_t h = kernel[0], w = kernel[1];
  if (node.kind == LayerKind::kConv2D) {
    g.kernel = {kernel[3], kernel[2], h, w};
    g.keras_kernel = MakeDesc(g.kernel, Tag::hwio);
  } else {  // [h, w, channels, multiplier]: output channel c * multiplier + m
    const int64_t channels = kernel[2], multiplier = kernel[3];
    g.kernel = {channels, multiplier, 1, h, w};
    const memory::dims strides{multiplier, 1, 1, w * channels * multiplier, channels * multiplier};
    g.keras_kernel = Desc(g.kernel, memory::data_type::f32, strides);
  }
  return g;
}

Desc Any(const memory::dims& dims) { return MakeDesc(dims, Tag::any); }

void AppendActivation(const Activation& activation, dnnl::primitive_attr* attributes) {
  dnnl::post_ops post;
  switch (activation.kind) {
    case v1::RELU:
      post.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
      break;
    case v1::LEAKY_RELU:
      post.append_eltwise(1, algorithm::eltwise_relu, activation.slope, 0);
      break;
    case v1::SIGMOID:
      post.append_eltwise(1, algorithm::eltwise_logistic, 0, 0);
      break;
    case v1::TANH:
      post.append_eltwise(1, algorithm::eltwise_tanh, 0, 0);
      break;
    default:
      return;
  }
  attributes->set_post_ops(post);
}

class ConvolutionOp : public Op {
 public:
  ConvolutionOp(PlanBuilder& b, const Node& node, const Window* extra, const Activation& activation, Value* in,
                Value* out)
      : node_(node), activation_(activation), in_(in), out_(out) {
    kernel_ = &b.graph().variables()[node.variables[0]];
    bias_ = b.FindVariable(node, "bias");
    geometry_ = MakeGeometry(node, extra, kernel_->shape);
    forward_desc_ = MakeForward(b);
    source_ = b.Read(in->data, forward_desc_.src_desc());
    const memory weights = ForwardWeights(b);
    out->data = b.New(forward_desc_.dst_desc());
    out->activation = activation;
    out->may_overwrite = activation.linear();
    std::vector<std::pair<int, memory>> arguments = {
        {DNNL_ARG_SRC, source_.tensor->memory}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, out->data->memory}};
    if (bias_ != nullptr) arguments.emplace_back(DNNL_ARG_BIAS, b.ValueOf(*bias_, BiasDesc()));
    forward_ = b.MakeCall(forward_desc_, dnnl::convolution_forward(forward_desc_), std::move(arguments));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!out_->activation_undone && !activation_.linear()) {
      b.Use(out_->data);
      undo_ = true;
    }
    CompileWeights(b);
    if (in_->needs_gradient) CompileData(b);
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    if (weights_reorder_) weights_reorder_(run);
    forward_(run);
  }

  void BackwardVariables(const Run& run) override {
    if (undo_) {
      ActivationBackward(activation_, out_->data->data(), out_->gradient->data(), out_->gradient->numbers());
    }
    backward_source_.Prepare(run);
    weights_gradient_.Prepare(run);
    backward_weights_(run);
    if (gradient_reorder_) gradient_reorder_(run);
  }

  void BackwardInputs(const Run& run) override {
    if (!backward_data_) return;
    data_gradient_.Prepare(run);
    if (backward_weights_reorder_) backward_weights_reorder_(run);
    backward_data_(run);
    sink_.Finish(run);
  }

 private:
  Desc BiasDesc() const { return MakeDesc({bias_->size}, Tag::x); }

  dnnl::convolution_forward::primitive_desc MakeForward(PlanBuilder& b) const {
    const Desc src = Any(in_->data->desc.dims()), weights = Any(geometry_.kernel);
    const Desc dst = Any(MakeDims(b.examples(), node_.output));
    const Geometry& g = geometry_;
    using Forward = dnnl::convolution_forward;
    const Forward::desc desc = bias_ != nullptr
                                   ? Forward::desc(b.forward_kind(), algorithm::convolution_direct, src, weights,
                                                   BiasDesc(), dst, g.strides, g.dilates, g.pad_begin, g.pad_end)
                                   : Forward::desc(b.forward_kind(), algorithm::convolution_direct, src, weights, dst,
                                                   g.strides, g.dilates, g.pad_begin, g.pad_end);
    dnnl::primitive_attr attributes = b.Attributes();
    AppendActivation(activation_, &attributes);
    return Forward::primitive_desc(desc, attributes, b.engine());
  }

  memory ForwardWeights(PlanBuilder& b) {
    const memory keras = b.ValueOf(*kernel_, geometry_.keras_kernel);
    const Desc wanted = forward_desc_.weights_desc();
    if (wanted == geometry_.keras_kernel) return keras;
    weights_ = b.New(wanted);
    weights_reorder_ = b.Reorder(keras, weights_->memory);
    return weights_->memory;
  }

  void CompileWeights(PlanBuilder& b) {
    const Geometry& g = geometry_;
    const Desc src = Any(in_->data->desc.dims()), weights = Any(g.kernel), diff_dst = Any(out_->data->desc.dims());
    using Backward = dnnl::convolution_backward_weights;
    const Backward::desc desc = bias_ != nullptr
                                    ? Backward::desc(algorithm::convolution_direct, src, weights, BiasDesc(), diff_dst,
                                                     g.strides, g.dilates, g.pad_begin, g.pad_end)
                                    : Backward::desc(algorithm::convolution_direct, src, weights, diff_dst, g.strides,
                                                     g.dilates, g.pad_begin, g.pad_end);
    const Backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_desc_);
    // The copy that forward made, if there is one and it will do.
    const bool copied = source_.tensor != in_->data && pd.src_desc() == source_.tensor->desc;
    backward_source_ = b.Read(copied ? source_.tensor : in_->data, pd.src_desc());
    weights_gradient_ = b.Read(out_->gradient, pd.diff_dst_desc());

    memory gradient = b.GradientOf(*kernel_, g.keras_kernel);
    if (pd.diff_weights_desc() != g.keras_kernel) {
      Tensor* blocked = b.New(pd.diff_weights_desc());
      gradient_reorder_ = b.Reorder(blocked->memory, gradient);
      gradient = blocked->memory;
    }
    std::vector<std::pair<int, memory>> arguments = {{DNNL_ARG_SRC, backward_source_.tensor->memory},
                                                     {DNNL_ARG_DIFF_DST, weights_gradient_.tensor->memory},
                                                     {DNNL_ARG_DIFF_WEIGHTS, gradient}};
    if (bias_ != nullptr) arguments.emplace_back(DNNL_ARG_DIFF_BIAS, b.GradientOf(*bias_, BiasDesc()));
    backward_weights_ = b.MakeCall(pd, dnnl::convolution_backward_weights(pd), std::move(arguments));
  }

  void CompileData(PlanBuilder& b) {
    const Geometry& g = geometry_;
    using Backward = dnnl::convolution_backward_data;
    const Backward::desc desc(algorithm::convolution_direct, Any(in_->data->desc.dims()), Any(g.kernel),
                              Any(out_->data->desc.dims()), g.strides, g.dilates, g.pad_begin, g.pad_end);
    const Backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_desc_);
    const bool copied =
        weights_gradient_.tensor != out_->gradient && pd.diff_dst_desc() == weights_gradient_.tensor->desc;
    data_gradient_ = b.Read(copied ? weights_gradient_.tensor : out_->gradient, pd.diff_dst_desc());

    memory weights;
    if (weights_ != nullptr && pd.weights_desc() == weights_->desc) {
      weights = b.Use(weights_);
    } else {
      weights = b.ValueOf(*kernel_, g.keras_kernel);
      if (pd.weights_desc() != g.keras_kernel) {
        Tensor* blocked = b.New(pd.weights_desc());
        backward_weights_reorder_ = b.Reorder(weights, blocked->memory);
        weights = blocked->memory;
      }
    }
    sink_ = b.WriteGradient(in_, pd.diff_src_desc());
    backward_data_ = b.MakeCall(pd, dnnl::convolution_backward_data(pd),
                                {{DNNL_ARG_DIFF_DST, data_gradient_.tensor->memory},
                                 {DNNL_ARG_WEIGHTS, weights},
                                 {DNNL_ARG_DIFF_SRC, sink_.tensor->memory}});
  }

  const Node& node_;
  const Activation activation_;
  Value* const in_;
  Value* const out_;
  const Variable* kernel_ = nullptr;
  const Variable* bias_ = nullptr;
  Geometry geometry_;
  dnnl::convolution_forward::primitive_desc forward_desc_;
  Source source_, backward_source_;          // the inputs
  Source weights_gradient_, data_gradient_;  // the output's gradient
  Tensor* weights_ = nullptr;                // in forward's layout, if it is not Keras'
  Call weights_reorder_, backward_weights_reorder_, gradient_reorder_;
  Call forward_, backward_weights_, backward_data_;
  Sink sink_;
  bool undo_ = false;
};

}  // namespace

std::unique_ptr<Op> MakeConvolution(PlanBuilder& b, const Node& node, const Window* extra, const Activation& activation,
                                    Value* in, Value* out) {
  return std::make_unique<ConvolutionOp>(b, node, extra, activation, in, out);
}

}  // namespace cairn::onednn
