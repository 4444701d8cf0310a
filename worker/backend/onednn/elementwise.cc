#include "worker/backend/onednn/elementwise.h"

#include <cstring>

#include "worker/backend/affine.h"
#include "worker/backend/noise.h"
#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/image_layout.h"
#include "worker/backend/onednn/loop_op.h"
#include "worker/backend/places.h"

namespace cairn::onednn {

Call MakeEltwise(PlanBuilder& b, dnnl::algorithm algorithm, float alpha, float beta, Tensor* in, Tensor* out) {
  const dnnl::eltwise_forward::desc desc(b.forward_kind(), algorithm, in->desc, alpha, beta);
  const dnnl::eltwise_forward::primitive_desc pd(desc, b.Attributes(), b.engine());
  return b.MakeCall(pd, dnnl::eltwise_forward(pd), {{DNNL_ARG_SRC, b.Use(in)}, {DNNL_ARG_DST, b.Use(out)}});
}

namespace {

using dnnl::algorithm;

class RescalingOp : public ElementwiseOp {
 public:
  RescalingOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : ElementwiseOp(b, false, in, out), scale_(node.layer.rescaling().scale()) {
    forward_ = MakeEltwise(b, algorithm::eltwise_linear, scale_, node.layer.rescaling().offset(), in->data, out->data);
  }
  void Forward(const Run& run) override { forward_(run); }

 private:
  void Backward(const Run&, const float* dy, float* dx, int64_t count) override { Scale(dy, scale_, dx, count); }

  const float scale_;
  Call forward_;
};

// The mask is drawn in Keras' order and then brought into the input's layout.
class DropoutOp : public ElementwiseOp {
 public:
  DropoutOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : ElementwiseOp(b, false, in, out), node_(node), count_(b.examples() * NumElements(node.output)) {
    const Desc layout = in->data->desc;
    mask_ = b.New(layout);
    plain_ = mask_;
    if (!IsPlain(layout)) {
      plain_ = b.New(MakeDesc(layout.dims(), Tag::nhwc));
      reorder_ = b.Reorder(plain_->memory, mask_->memory);
    }
  }

  void Forward(const Run& run) override {
    DropoutFactors(run.info, node_.id, node_.layer.dropout().rate(), count_, plain_->data());
    if (reorder_) reorder_(run);
    Multiply(in_->data->data(), mask_->data(), out_->data->data(), mask_->numbers());
  }

 private:
  void CompileBackward(PlanBuilder& b, Tensor*) override { b.Use(mask_); }
  void Backward(const Run&, const float* dy, float* dx, int64_t count) override {
    Multiply(dy, mask_->data(), dx, count);
  }

  const Node& node_;
  const int64_t count_;
  Tensor* mask_ = nullptr;
  Tensor* plain_ = nullptr;
  Call reorder_;
};

// Any other noise: factors and offsets along some axes, repeated along the others.
class NoiseOp : public LoopOp {
 public:
  NoiseOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : LoopOp(b, {in}, {node.output}, node.output, out, BackwardReads::kNothing),
        node_(node),
        noise_(*NoiseOf(node)),
        examples_(b.examples()),
        places_(RepeatedPlaces(noise_.shape, node.output)),
        drawn_(NumElements(noise_.shape)) {
    factors_ = b.New(MakeDesc({examples_, drawn_}, Tag::nc));
    if (HasOffsets(noise_.kind)) offsets_ = b.New(MakeDesc({examples_, drawn_}, Tag::nc));
  }

 private:
  void UseBackward(PlanBuilder& b) override { b.Use(factors_); }

  void Compute(const Run& run, float* y) override {
    const size_t count = static_cast<size_t>(examples_ * drawn_);
    FillNoise(run.info, node_.id, noise_, absl::MakeSpan(factors_->data(), count),
              offsets_ == nullptr ? absl::Span<float>() : absl::MakeSpan(offsets_->data(), count));
    ForNumbers([&](int64_t i, int64_t place) {
      y[i] = x()[i] * factors_->data()[place] + (offsets_ == nullptr ? 0.0f : offsets_->data()[place]);
    });
  }

  void Derive(const Run&, const float* dy) override {
    if (dx() == nullptr) return;
    ForNumbers([&](int64_t i, int64_t place) { dx()[i] = dy[i] * factors_->data()[place]; });
  }

  // Calls fn(number, its index among the drawn numbers).
  template <typename Fn>
  void ForNumbers(const Fn& fn) const {
    const int64_t size = static_cast<int64_t>(places_.size());
    ForExamples(examples_, examples_ * size, [&](int64_t e) {
      for (int64_t i = 0; i < size; ++i) fn(e * size + i, e * drawn_ + places_[static_cast<size_t>(i)]);
    });
  }

  const Node& node_;
  const LayerNoise noise_;
  const int64_t examples_;
  const std::vector<int32_t> places_;
  const int64_t drawn_;  // of an example
  Tensor* factors_ = nullptr;
  Tensor* offsets_ = nullptr;  // null: none
};

// Whole channels: number n * channels + c of the mask is for channel c of example n.
class SpatialDropoutOp : public ElementwiseOp {
 public:
  SpatialDropoutOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : ElementwiseOp(b, false, in, out), node_(node), layout_(in->data->desc) {
    mask_ = b.New(MakeDesc({layout_.examples, layout_.channels}, Tag::nc));
    line_ = b.New(MakeDesc({layout_.padded_channels}, Tag::x));
  }

  void Forward(const Run& run) override {
    DropoutFactors(run.info, node_.id, node_.layer.spatial_dropout2d().rate(), mask_->numbers(), mask_->data());
    MultiplyChannels(in_->data->data(), out_->data->data());
  }

 private:
  void CompileBackward(PlanBuilder& b, Tensor*) override {
    b.Use(mask_);
    b.Use(line_);
  }
  void Backward(const Run&, const float* dy, float* dx, int64_t) override { MultiplyChannels(dy, dx); }

  // The padding of a block of channels is multiplied by 0.
  void MultiplyChannels(const float* x, float* y) {
    float* line = line_->data();
    std::memset(line, 0, line_->bytes);
    for (int64_t n = 0; n < layout_.examples; ++n) {
      std::memcpy(line, mask_->data() + n * layout_.channels, layout_.channels * sizeof(float));
      for (int64_t c = 0; c < layout_.padded_channels; c += layout_.block) {
        const int64_t begin = n * layout_.example_stride + c / layout_.block * layout_.block_stride;
        MultiplyRows(x + begin, line + c, layout_.pixels, layout_.pixel_stride, layout_.block, y + begin);
      }
    }
  }

  const Node& node_;
  const ImageLayout layout_;
  Tensor* mask_ = nullptr;
  Tensor* line_ = nullptr;  // of one example, padded
};

}  // namespace

std::unique_ptr<Op> MakeRescaling(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  if (IsAffine(node)) return MakeAffine(b, node, in, out);
  return std::make_unique<RescalingOp>(b, node, in, out);
}

std::unique_ptr<Op> MakeDropout(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  const LayerNoise noise = *NoiseOf(node);
  if (noise.shape != node.output || noise.seed != 0) return std::make_unique<NoiseOp>(b, node, in, out);
  return std::make_unique<DropoutOp>(b, node, in, out);
}

std::unique_ptr<Op> MakeSpatialDropout(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  if (node.layer.spatial_dropout2d().seed() != 0) return std::make_unique<NoiseOp>(b, node, in, out);
  return std::make_unique<SpatialDropoutOp>(b, node, in, out);
}

namespace {

std::unique_ptr<Op> MakeNoise(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<NoiseOp>(b, node, in, out);
}

constexpr Layer kLayers[] = {
    {LayerKind::kRescaling, CompileOne<MakeRescaling>},
    {LayerKind::kDropout, CompileOne<MakeDropout>},
    {LayerKind::kSpatialDropout2D, CompileOne<MakeSpatialDropout>},
    {LayerKind::kSpatialDropout1D, CompileOne<MakeNoise>},
    {LayerKind::kSpatialDropout3D, CompileOne<MakeNoise>},
    {LayerKind::kAlphaDropout, CompileOne<MakeNoise>},
    {LayerKind::kGaussianNoise, CompileOne<MakeNoise>},
    {LayerKind::kGaussianDropout, CompileOne<MakeNoise>},
};

}  // namespace

absl::Span<const Layer> ElementwiseLayers() { return kLayers; }

}  // namespace cairn::onednn
