#include <cstring>
#include <numeric>

#include "worker/backend/onednn/image_layout.h"
#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

using dnnl::algorithm;
using dnnl::memory;

bool IsMaximum(LayerKind kind) {
  switch (kind) {
    case LayerKind::kMaxPooling1D:
    case LayerKind::kMaxPooling2D:
    case LayerKind::kMaxPooling3D:
    case LayerKind::kGlobalMaxPooling1D:
    case LayerKind::kGlobalMaxPooling2D:
    case LayerKind::kGlobalMaxPooling3D: return true;
    default: return false;
  }
}

// If the input comes from a fused activation and has no other reader, the derivative of the activation is taken on this
// operation's (smaller) side: the maximum of a window is f(x) at the position that receives its gradient.
class PoolingOp : public Op {
 public:
  PoolingOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : in_(in), out_(out), shape_(b.graph().nodes()[node.inputs[0]].output) {
    const bool maximum = IsMaximum(node.kind);
    algorithm_ = maximum ? algorithm::pooling_max : algorithm::pooling_avg_exclude_padding;
    if (shape_.size() == 4) AddAxis(node.window.depth);
    for (int i = 0; i < 2; ++i) {
      const Window& w = node.window;
      AddAxis({w.kernel[i], w.strides[i], 1, w.pad_begin[i], w.pad_end[i]});
    }
    // Pooling over the whole input gives an image of one pixel.
    Shape output = node.output;
    if (output.size() == 1) output.insert(output.begin(), shape_.size() - 1, 1);
    const Desc src = VolumeOf(in->data->desc, shape_), dst = MakeDesc(VolumeDims(b.examples(), output), Tag::any);
    const dnnl::pooling_forward::desc desc(b.forward_kind(), algorithm_, src, dst, strides_, kernel_, pad_begin_,
                                           pad_end_);
    forward_desc_ = dnnl::pooling_forward::primitive_desc(desc, b.Attributes(), b.engine());
    out->data = b.New(ImageOf(forward_desc_.dst_desc()));
    std::vector<std::pair<int, memory>> arguments = {{DNNL_ARG_SRC, b.Use(in->data, src)},
                                                     {DNNL_ARG_DST, b.Use(out->data, forward_desc_.dst_desc())}};
    if (maximum && b.training()) {
      workspace_ = b.New(forward_desc_.workspace_desc());
      arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace_->memory);
      if (in->readers == 1 && !in->activation.linear()) {
        in->activation_undone = true;
        undo_ = true;
        out->may_overwrite = false;
      }
    }
    forward_ = b.MakeCall(forward_desc_, dnnl::pooling_forward(forward_desc_), std::move(arguments));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    const Desc dst = forward_desc_.dst_desc(), src = VolumeOf(in_->data->desc, shape_);
    const memory gradient = b.Use(out_->gradient, dst);
    if (undo_) b.Use(out_->data);
    sink_ = b.WriteGradient(in_, in_->data->desc);
    const dnnl::pooling_backward::desc desc(algorithm_, src, dst, strides_, kernel_, pad_begin_, pad_end_);
    const dnnl::pooling_backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_desc_);
    std::vector<std::pair<int, memory>> arguments = {{DNNL_ARG_DIFF_DST, gradient},
                                                     {DNNL_ARG_DIFF_SRC, b.Use(sink_.tensor, src)}};
    if (workspace_ != nullptr) arguments.emplace_back(DNNL_ARG_WORKSPACE, b.Use(workspace_));
    backward_ = b.MakeCall(pd, dnnl::pooling_backward(pd), std::move(arguments));
  }

  void Forward(const Run& run) override { forward_(run); }

  void BackwardInputs(const Run& run) override {
    if (!backward_) return;
    if (undo_) {
      ActivationBackward(in_->activation, out_->data->data(), out_->gradient->data(), out_->gradient->numbers());
    }
    backward_(run);
    sink_.Finish(run);
  }

 private:
  void AddAxis(const WindowAxis& axis) {
    kernel_.push_back(axis.kernel);
    strides_.push_back(axis.stride);
    pad_begin_.push_back(axis.pad_begin);
    pad_end_.push_back(axis.pad_end);
  }

  Value* const in_;
  Value* const out_;
  const Shape shape_;  // of the input
  algorithm algorithm_;
  memory::dims kernel_, strides_, pad_begin_, pad_end_;
  dnnl::pooling_forward::primitive_desc forward_desc_;
  Tensor* workspace_ = nullptr;
  Call forward_, backward_;
  Sink sink_;
  bool undo_ = false;
};

class GlobalAverageOp : public Op {
 public:
  GlobalAverageOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : in_(in), out_(out), layout_(in->data->desc), scale_(1.0f / layout_.pixels) {
    b.Use(in->data);
    out->data = b.New(PlainDesc(b.examples(), node.output));
    line_ = b.New(MakeDesc({layout_.padded_channels}, Tag::x));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    b.Use(out_->gradient);
    b.Use(line_);
    sink_ = b.WriteGradient(in_, in_->data->desc);
  }

  void Forward(const Run&) override {
    float* sums = line_->data();
    for (int64_t n = 0; n < layout_.examples; ++n) {
      const float* x = in_->data->data() + n * layout_.example_stride;
      for (int64_t c = 0; c < layout_.padded_channels; c += layout_.block) {
        ColumnSums(x + c / layout_.block * layout_.block_stride, layout_.pixels, layout_.pixel_stride, layout_.block,
                   sums + c);
      }
      Scale(sums, scale_, out_->data->data() + n * layout_.channels, layout_.channels);
    }
  }

  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    float* line = line_->data();
    std::memset(line, 0, layout_.padded_channels * sizeof(float));
    for (int64_t n = 0; n < layout_.examples; ++n) {
      Scale(out_->gradient->data() + n * layout_.channels, scale_, line, layout_.channels);
      float* dx = sink_.tensor->data() + n * layout_.example_stride;
      for (int64_t c = 0; c < layout_.padded_channels; c += layout_.block) {
        FillRows(line + c, layout_.pixels, layout_.pixel_stride, layout_.block,
                 dx + c / layout_.block * layout_.block_stride);
      }
    }
    sink_.Finish(run);
  }

 private:
  Value* const in_;
  Value* const out_;
  const ImageLayout layout_;
  const float scale_;
  Tensor* line_ = nullptr;  // one number for each channel
  Sink sink_;
};

// The mean over the steps of a sequence that count; 0 if none does.
class MaskedAverageOp : public Op {
 public:
  MaskedAverageOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : in_(in), out_(out), examples_(b.examples()), mask_(b.StepMaskOf(node.inputs[0])) {
    const Shape& shape = b.graph().nodes()[node.inputs[0]].output;
    steps_ = shape[0];
    width_ = shape[1];
    source_ = b.Read(in->data, PlainDesc(examples_, shape));
    b.Use(mask_);
    out->data = b.New(PlainDesc(examples_, node.output));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    b.Use(out_->gradient);
    b.Use(mask_);
    sink_ = b.WriteGradient(in_, source_.tensor->desc);
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    for (int64_t e = 0; e < examples_; ++e) {
      float* const y = out_->data->data() + e * width_;
      std::memset(y, 0, width_ * sizeof(float));
      for (int64_t s = 0; s < steps_; ++s) {
        if (Mask(e)[s] != 0) AddTo(source_.tensor->data() + (e * steps_ + s) * width_, y, width_);
      }
      Scale(y, Share(e), y, width_);
    }
  }

  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    for (int64_t e = 0; e < examples_; ++e) {
      for (int64_t s = 0; s < steps_; ++s) {
        Scale(out_->gradient->data() + e * width_, Mask(e)[s] * Share(e),
              sink_.tensor->data() + (e * steps_ + s) * width_, width_);
      }
    }
    sink_.Finish(run);
  }

 private:
  const float* Mask(int64_t example) const { return mask_->data() + example * steps_; }
  float Share(int64_t example) const {
    const float count = std::accumulate(Mask(example), Mask(example) + steps_, 0.0f);
    return count > 0 ? 1 / count : 0;
  }

  Value* const in_;
  Value* const out_;
  const int64_t examples_;
  int64_t steps_ = 0, width_ = 0;
  Tensor* const mask_;
  Source source_;
  Sink sink_;
};

}  // namespace

std::unique_ptr<Op> MakePooling(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  const bool image = b.graph().nodes()[node.inputs[0]].output.size() < 4;
  if (image && IsMaximum(node.kind)) {
    if (std::unique_ptr<Op> op = MakeDisjointMaxPooling(b, node, in, out)) return op;
  }
  return std::make_unique<PoolingOp>(b, node, in, out);
}

std::unique_ptr<Op> MakeGlobalAveragePooling(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  if (b.StepMaskOf(node.inputs[0]) != nullptr) return std::make_unique<MaskedAverageOp>(b, node, in, out);
  return std::make_unique<GlobalAverageOp>(b, node, in, out);
}

namespace {

constexpr Layer kLayers[] = {
    {LayerKind::kMaxPooling1D, CompileOne<MakePooling>},
    {LayerKind::kMaxPooling2D, CompileOne<MakePooling>},
    {LayerKind::kMaxPooling3D, CompileOne<MakePooling>},
    {LayerKind::kAveragePooling1D, CompileOne<MakePooling>},
    {LayerKind::kAveragePooling2D, CompileOne<MakePooling>},
    {LayerKind::kAveragePooling3D, CompileOne<MakePooling>},
    {LayerKind::kGlobalMaxPooling1D, CompileOne<MakePooling>},
    {LayerKind::kGlobalMaxPooling2D, CompileOne<MakePooling>},
    {LayerKind::kGlobalMaxPooling3D, CompileOne<MakePooling>},
    {LayerKind::kGlobalAveragePooling1D, CompileOne<MakeGlobalAveragePooling>},
    {LayerKind::kGlobalAveragePooling2D, CompileOne<MakeGlobalAveragePooling>},
    {LayerKind::kGlobalAveragePooling3D, CompileOne<MakeGlobalAveragePooling>},
};

}  // namespace

absl::Span<const Layer> PoolingLayers() { return kLayers; }

}  // namespace cairn::onednn
