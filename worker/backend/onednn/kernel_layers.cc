// Layers with a kernel and an activation: Dense and the convolutions.
#include "worker/backend/fusion.h"
#include "worker/backend/onednn/features.h"

namespace cairn::onednn {
namespace {

bool IsSeparable(LayerKind kind) { return kind == LayerKind::kSeparableConv1D || kind == LayerKind::kSeparableConv2D; }

Convolution::Kind KindOf(LayerKind kind) {
  switch (kind) {
    case LayerKind::kConv1DTranspose:
    case LayerKind::kConv2DTranspose:
    case LayerKind::kConv3DTranspose: return Convolution::kTransposed;
    case LayerKind::kDepthwiseConv1D:
    case LayerKind::kDepthwiseConv2D: return Convolution::kDepthwise;
    default: return Convolution::kForward;
  }
}

void CompileLinear(PlanBuilder& b, const Node& node, const Activation& activation, Value* in, Value* out) {
  const std::vector<int>& ids = node.variables;
  const Variable* kernel = &b.graph().variables()[ids[0]];
  const Variable* bias = b.FindVariable(node, "bias");
  if (node.kind == LayerKind::kDense && node.output.size() < 3) {
    return b.AddOp(ids, out, MakeDense(b, {kernel, bias, kernel->shape[1], node.output}, activation, in, out));
  }
  const Shape& input = b.graph().nodes()[node.inputs[0]].output;
  Convolution convolution{Convolution::kForward, kernel, bias, node.window, node.output, input};
  if (node.kind == LayerKind::kDense && node.output.size() == 4) {  // the planes as one image
    convolution.output = {node.output[0] * node.output[1], node.output[2], node.output[3]};
  }
  if (const Node* const padding = b.groups().JoinedPadding(node)) {
    for (int i = 0; i < 2; ++i) {
      convolution.window.pad_begin[i] += padding->window.pad_begin[i];
      convolution.window.pad_end[i] += padding->window.pad_end[i];
    }
  }
  if (!IsSeparable(node.kind)) {
    convolution.kind = KindOf(node.kind);
    return b.AddOp(ids, out, MakeConvolution(b, convolution, activation, in, out));
  }
  convolution.kind = Convolution::kDepthwise;
  convolution.bias = nullptr;
  convolution.output.back() = kernel->shape[kernel->shape.size() - 2] * kernel->shape.back();
  Value* between = b.NewInnerValue(out->needs_gradient);
  b.AddOp({ids[0]}, between, MakeConvolution(b, convolution, {}, in, between));
  const Convolution pointwise{Convolution::kForward, &b.graph().variables()[ids[1]], bias, Window{}, node.output, {}};
  b.AddOp({ids.begin() + 1, ids.end()}, out, MakeConvolution(b, pointwise, activation, between, out));
}

// The layer without its activation, if that is an operation of its own, then the activation.
void CompileKernel(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  if (IsFurtherActivation(node)) {
    Value* between = b.NewInnerValue(out->needs_gradient);
    CompileLinear(b, node, {}, in[0], between);
    return b.AddOp({}, out, MakeFurtherActivation(b, node, between, out));
  }
  const Activation activation = b.groups().ActivationWithJoined(node);
  if (b.groups().Fusible(activation)) return CompileLinear(b, node, activation, in[0], out);
  Value* target = b.NewInnerValue(out->needs_gradient);
  CompileLinear(b, node, {}, in[0], target);
  b.AddOp({}, out, activation.elementwise() ? MakeActivation(b, activation, target, out) : MakeSoftmax(b, target, out));
}

constexpr Layer kLayers[] = {
    {LayerKind::kConv1D, CompileKernel},          {LayerKind::kConv2D, CompileKernel},
    {LayerKind::kConv3D, CompileKernel},          {LayerKind::kDepthwiseConv1D, CompileKernel},
    {LayerKind::kDepthwiseConv2D, CompileKernel}, {LayerKind::kSeparableConv1D, CompileKernel},
    {LayerKind::kSeparableConv2D, CompileKernel}, {LayerKind::kConv1DTranspose, CompileKernel},
    {LayerKind::kConv2DTranspose, CompileKernel}, {LayerKind::kConv3DTranspose, CompileKernel},
    {LayerKind::kDense, CompileKernel},
};

}  // namespace

absl::Span<const Layer> KernelLayers() { return kLayers; }

}  // namespace cairn::onednn
