#include <cstring>

#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

using dnnl::memory;

// To channels last with another shape: a flattened image becomes a vector.
class PlainOp : public Op {
 public:
  PlainOp(PlanBuilder& b, const Shape& shape, Value* in, Value* out) : in_(in), out_(out) {
    const memory from = b.Use(in->data);
    out->data = b.New(PlainDesc(b.examples(), shape));
    forward_ = b.Reorder(from, b.Use(out->data, Image()));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    sink_ = b.WriteGradient(in_, in_->data->desc);
    backward_ = b.Reorder(b.Use(out_->gradient, Image()), sink_.tensor->memory);
  }

  void Forward(const Run& run) override { forward_(run); }

  void BackwardInputs(const Run& run) override {
    if (!backward_) return;
    backward_(run);
    sink_.Finish(run);
  }

 private:
  Desc Image() const {
    const memory::dims dims = in_->data->desc.dims();
    return MakeDesc(dims, dims.size() == 2 ? Tag::nc : Tag::nhwc);
  }

  Value* const in_;
  Value* const out_;
  Call forward_, backward_;
  Sink sink_;
};

// In blocks of channels if every input is and no block is cut; else channels last. Volumes are joined as volumes along
// the axes that an image does not have.
class ConcatenateOp : public Op {
 public:
  ConcatenateOp(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out)
      : in_(in), out_(out), output_(node.output), axis_(AxisOf(node)) {
    std::vector<Desc> inputs;
    std::vector<std::pair<int, memory>> arguments;
    for (size_t k = 0; k < in.size(); ++k) {
      shapes_.push_back(b.graph().nodes()[node.inputs[k]].output);
      inputs.push_back(Seen(in[k]->data->desc, shapes_[k]));
      arguments.emplace_back(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(k), b.Use(in[k]->data, inputs[k]));
    }
    const memory::dims dims = MakeDims(b.examples(), node.output);
    const Desc layout = dims.size() == 2                ? MakeDesc(dims, Tag::nc)
                        : axis_ == 1 && Blocked(inputs) ? MakeDesc(dims, Tag::nChw16c)
                                                        : MakeDesc(dims, Tag::nhwc);
    const Desc seen = Seen(layout, node.output);
    const dnnl::concat::primitive_desc pd(seen, axis_, inputs, b.engine(), b.Attributes());
    out->data = b.New(layout);
    arguments.emplace_back(DNNL_ARG_DST, b.Use(out->data, seen));
    forward_ = b.MakeCall(pd, dnnl::concat(pd), std::move(arguments));
  }

  void CompileBackward(PlanBuilder& b) override {
    const Desc whole = Seen(out_->data->desc, output_);
    memory::dims offsets(whole.dims().size(), 0);
    for (size_t k = 0; k < in_.size(); ++k) {
      const Desc seen = Seen(in_[k]->data->desc, shapes_[k]);
      const memory::dims dims = seen.dims();
      if (in_[k]->needs_gradient) {
        Part& part = parts_.emplace_back();
        part.sink = b.WriteGradient(in_[k], in_[k]->data->desc);
        const Desc view = whole.submemory_desc(dims, offsets);
        part.copy = b.Reorder(b.Use(out_->gradient, view), b.Use(part.sink.tensor, seen));
      }
      offsets[static_cast<size_t>(axis_)] += dims[static_cast<size_t>(axis_)];
    }
  }

  void Forward(const Run& run) override { forward_(run); }

  void BackwardInputs(const Run& run) override {
    for (const Part& part : parts_) {
      part.copy(run);
      part.sink.Finish(run);
    }
  }

 private:
  struct Part {
    Call copy;
    Sink sink;
  };

  // In oneDNN's order of dimensions: examples, channels, the other axes; a sequence has a height of 1 before its steps.
  static int AxisOf(const Node& node) {
    const v1::Concatenate& join = node.layer.concatenate();
    if (!join.has_axis()) return 1;
    return join.axis() + (node.output.size() == 2 ? 2 : 1);
  }

  // The view of `shape` that is joined: along its channels an image suffices.
  Desc Seen(const Desc& desc, const Shape& shape) const { return axis_ == 1 ? desc : VolumeOf(desc, shape); }

  static bool Blocked(const std::vector<Desc>& inputs) {
    for (const Desc& desc : inputs) {
      const memory::dims dims = desc.dims();
      if (dims[1] % 16 != 0 || desc != MakeDesc(dims, Tag::nChw16c)) return false;
    }
    return true;
  }

  const std::vector<Value*> in_;
  Value* const out_;
  const Shape output_;
  const int axis_;
  std::vector<Shape> shapes_;  // of the inputs
  Call forward_;
  std::vector<Part> parts_;
};

// The axes of the output as they lie in the input's memory, channels last.
class PermuteOp : public Op {
 public:
  PermuteOp(PlanBuilder& b, const Node& node, Value* in, Value* out) : in_(in), out_(out) {
    const Shape& shape = b.graph().nodes()[node.inputs[0]].output;
    source_ = b.Read(in->data, PlainDesc(b.examples(), shape));
    out->data = b.New(PlainDesc(b.examples(), node.output));
    Shape strides;  // of the output's axes in the input
    for (int32_t dim : node.layer.permute().dims()) {
      int64_t stride = 1;
      for (size_t axis = dim; axis < shape.size(); ++axis) stride *= shape[axis];
      strides.push_back(stride);
    }
    const memory::dims dims = out->data->desc.dims();
    const int64_t example = NumElements(shape);
    const memory::dims turned = strides.size() == 1   ? memory::dims{example, strides[0]}
                                : strides.size() == 2 ? memory::dims{example, strides[1], example, strides[0]}
                                                      : memory::dims{example, strides[2], strides[0], strides[1]};
    turned_ = Desc(dims, memory::data_type::f32, turned);
    forward_ = b.Reorder(b.Use(source_.tensor, turned_), out->data->memory);
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    sink_ = b.WriteGradient(in_, source_.tensor->desc);
    backward_ = b.Reorder(b.Use(out_->gradient), b.Use(sink_.tensor, turned_));
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    forward_(run);
  }

  void BackwardInputs(const Run& run) override {
    if (!backward_) return;
    backward_(run);
    sink_.Finish(run);
  }

 private:
  Value* const in_;
  Value* const out_;
  Source source_;
  Desc turned_;
  Call forward_, backward_;
  Sink sink_;
};

class UpSamplingOp : public Op {
 public:
  UpSamplingOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : in_(in),
        out_(out),
        shape_(b.graph().nodes()[node.inputs[0]].output),
        algorithm_(node.layer.up_sampling2d().interpolation() == v1::UpSampling2D::BILINEAR
                       ? dnnl::algorithm::resampling_linear
                       : dnnl::algorithm::resampling_nearest) {
    const Desc from = VolumeOf(in->data->desc, shape_);
    const dnnl::resampling_forward::desc desc(b.forward_kind(), algorithm_, from,
                                              MakeDesc(VolumeDims(b.examples(), node.output), Tag::any));
    forward_desc_ = dnnl::resampling_forward::primitive_desc(desc, b.Attributes(), b.engine());
    const memory src = b.Use(in->data, from);
    out->data = b.New(ImageOf(forward_desc_.dst_desc()));
    forward_ = b.MakeCall(forward_desc_, dnnl::resampling_forward(forward_desc_),
                          {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, b.Use(out->data, forward_desc_.dst_desc())}});
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    const Desc from = VolumeOf(in_->data->desc, shape_);
    const memory gradient = b.Use(out_->gradient, forward_desc_.dst_desc());
    sink_ = b.WriteGradient(in_, in_->data->desc);
    const dnnl::resampling_backward::desc desc(algorithm_, from, forward_desc_.dst_desc());
    const dnnl::resampling_backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_desc_);
    backward_ = b.MakeCall(pd, dnnl::resampling_backward(pd),
                           {{DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, b.Use(sink_.tensor, from)}});
  }

  void Forward(const Run& run) override { forward_(run); }

  void BackwardInputs(const Run& run) override {
    if (!backward_) return;
    backward_(run);
    sink_.Finish(run);
  }

 private:
  Value* const in_;
  Value* const out_;
  const Shape shape_;  // of the input
  const dnnl::algorithm algorithm_;
  dnnl::resampling_forward::primitive_desc forward_desc_;
  Call forward_, backward_;
  Sink sink_;
};

// The position of the smaller image or volume within the larger one.
memory::dims OffsetsOf(const Node& node) {
  const Window& w = node.window;
  if (node.output.size() == 4) return {0, 0, w.depth.pad_begin, w.pad_begin[0], w.pad_begin[1]};
  return {0, 0, w.pad_begin[0], w.pad_begin[1]};
}

class ZeroPaddingOp : public Op {
 public:
  ZeroPaddingOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : in_(in),
        out_(out),
        shape_(b.graph().nodes()[node.inputs[0]].output),
        output_(node.output),
        offsets_(OffsetsOf(node)) {
    const memory from = b.Use(in->data, VolumeOf(in->data->desc, shape_));
    // oneDNN can describe a window of an image in this layout whatever the number of channels.
    out->data = b.New(PlainDesc(b.examples(), node.output));
    forward_ = b.Reorder(from, b.Use(out->data, Inner(out->data)));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    sink_ = b.WriteGradient(in_, in_->data->desc);
    backward_ = b.Reorder(b.Use(out_->gradient, Inner(out_->gradient)),
                          b.Use(sink_.tensor, VolumeOf(sink_.tensor->desc, shape_)));
  }

  void Forward(const Run& run) override {
    std::memset(out_->data->data(), 0, out_->data->bytes);
    forward_(run);
  }

  void BackwardInputs(const Run& run) override {
    if (!backward_) return;
    backward_(run);
    sink_.Finish(run);
  }

 private:
  Desc Inner(Tensor* tensor) const {
    return VolumeOf(tensor->desc, output_).submemory_desc(VolumeDims(in_->data->desc.dims()[0], shape_), offsets_);
  }

  Value* const in_;
  Value* const out_;
  const Shape shape_, output_;
  const memory::dims offsets_;
  Call forward_, backward_;
  Sink sink_;
};

// A window of the input, channels last; its pads are what is cut off.
class CroppingOp : public Op {
 public:
  CroppingOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : in_(in),
        out_(out),
        shape_(b.graph().nodes()[node.inputs[0]].output),
        output_(node.output),
        offsets_(OffsetsOf(node)) {
    source_ = b.Read(in->data, PlainDesc(b.examples(), shape_));
    out->data = b.New(PlainDesc(b.examples(), node.output));
    forward_ =
        b.Reorder(b.Use(source_.tensor, Inner(source_.tensor)), b.Use(out->data, VolumeOf(out->data->desc, output_)));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    sink_ = b.WriteGradient(in_, source_.tensor->desc);
    backward_ = b.Reorder(b.Use(out_->gradient, VolumeOf(out_->gradient->desc, output_)),
                          b.Use(sink_.tensor, Inner(sink_.tensor)));
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    forward_(run);
  }

  void BackwardInputs(const Run& run) override {
    if (!backward_) return;
    std::memset(sink_.tensor->data(), 0, sink_.tensor->bytes);
    backward_(run);
    sink_.Finish(run);
  }

 private:
  Desc Inner(Tensor* tensor) const {
    return VolumeOf(tensor->desc, shape_).submemory_desc(VolumeDims(out_->data->desc.dims()[0], output_), offsets_);
  }

  Value* const in_;
  Value* const out_;
  const Shape shape_, output_;
  const memory::dims offsets_;
  Source source_;
  Call forward_, backward_;
  Sink sink_;
};

std::unique_ptr<Op> MakeCropping(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<CroppingOp>(b, node, in, out);
}

}  // namespace

std::unique_ptr<Op> MakePlain(PlanBuilder& b, const Shape& shape, Value* in, Value* out) {
  return std::make_unique<PlainOp>(b, shape, in, out);
}

std::unique_ptr<Op> MakeConcatenate(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  return std::make_unique<ConcatenateOp>(b, node, in, out);
}

std::unique_ptr<Op> MakePermute(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<PermuteOp>(b, node, in, out);
}

std::unique_ptr<Op> MakeUpSampling(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<UpSamplingOp>(b, node, in, out);
}

std::unique_ptr<Op> MakeZeroPadding(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<ZeroPaddingOp>(b, node, in, out);
}

namespace {

void CompileInput(PlanBuilder& b, const Node& node, const std::vector<Value*>&, Value*) { b.CompileInput(node); }

void CompileReshape(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  b.AddOp({}, out, MakePlain(b, node.output, in[0], out));
}

constexpr Layer kLayers[] = {
    {LayerKind::kInput, CompileInput},
    {LayerKind::kFlatten, CompileReshape},
    {LayerKind::kReshape, CompileReshape},
    {LayerKind::kPermute, CompileOne<MakePermute>},
    {LayerKind::kUpSampling1D, CompileOne<MakeUpSampling>},
    {LayerKind::kUpSampling2D, CompileOne<MakeUpSampling>},
    {LayerKind::kUpSampling3D, CompileOne<MakeUpSampling>},
    {LayerKind::kCropping1D, CompileOne<MakeCropping>},
    {LayerKind::kCropping2D, CompileOne<MakeCropping>},
    {LayerKind::kCropping3D, CompileOne<MakeCropping>},
    {LayerKind::kZeroPadding1D, CompileOne<MakeZeroPadding>},
    {LayerKind::kZeroPadding2D, CompileOne<MakeZeroPadding>},
    {LayerKind::kZeroPadding3D, CompileOne<MakeZeroPadding>},
};

}  // namespace

absl::Span<const Layer> LayoutLayers() { return kLayers; }

}  // namespace cairn::onednn
