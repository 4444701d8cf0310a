// Resizing, CenterCrop and adaptive pooling: loops over channels last, one axis after the other.
#include "common/model/resample.h"

#include <algorithm>
#include <cstring>

#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

// One axis: [outer, in, inner] to [outer, out, inner].
struct Turn {
  int64_t outer = 1, in = 1, out = 1, inner = 1;
  std::vector<ResampledPlace> places;
};

// y += weight * x
void AddScaled(const float* x, float weight, int64_t count, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] += weight * x[i];
}

void Apply(const Turn& t, const float* x, float* y) {
#pragma omp parallel for if (t.outer * t.out * t.inner >= kParallelNumbersMin)
  for (int64_t row = 0; row < t.outer * t.out; ++row) {
    const ResampledPlace& place = t.places[static_cast<size_t>(row % t.out)];
    float* to = y + row * t.inner;
    std::memset(to, 0, static_cast<size_t>(t.inner) * sizeof(float));
    const float* from = x + (row / t.out * t.in + place.first) * t.inner;
    for (const double weight : place.weights) {
      AddScaled(from, static_cast<float>(weight), t.inner, to);
      from += t.inner;
    }
  }
}

void ApplyBackward(const Turn& t, const float* dy, float* dx) {
#pragma omp parallel for if (t.outer * t.out * t.inner >= kParallelNumbersMin)
  for (int64_t outer = 0; outer < t.outer; ++outer) {
    float* to = dx + outer * t.in * t.inner;
    std::memset(to, 0, static_cast<size_t>(t.in * t.inner) * sizeof(float));
    for (int64_t o = 0; o < t.out; ++o) {
      const ResampledPlace& place = t.places[static_cast<size_t>(o)];
      const float* from = dy + (outer * t.out + o) * t.inner;
      for (size_t i = 0; i < place.weights.size(); ++i) {
        AddScaled(from, static_cast<float>(place.weights[i]), t.inner,
                  to + (place.first + static_cast<int64_t>(i)) * t.inner);
      }
    }
  }
}

// Axes that keep their size have no turn.
class ResampleOp : public Op {
 public:
  ResampleOp(PlanBuilder& b, const Node& node, Value* in, Value* out) : in_(in), out_(out), fill_(FillOf(node)) {
    const Shape& shape = b.graph().nodes()[node.inputs[0]].output;
    const std::vector<ResampledAxis> axes = ResampledAxesOf(node, shape);
    source_ = b.Read(in->data, PlainDesc(b.examples(), shape));
    Shape here = shape;
    inside_ = {1};
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      const ResampledAxis& a = axes[axis];
      std::vector<float> inside;
      for (const float share : inside_) {
        for (const ResampledPlace& place : a.places) inside.push_back(share * static_cast<float>(1 - place.outside));
      }
      inside_ = std::move(inside);
      if (a.identity()) continue;
      Turn turn{b.examples(), a.in, static_cast<int64_t>(a.places.size()), 1, a.places};
      for (size_t i = 0; i < axis; ++i) turn.outer *= here[i];
      for (size_t i = axis + 1; i < here.size(); ++i) turn.inner *= here[i];
      here[axis] = turn.out;
      turns_.push_back(std::move(turn));
    }
    out->data = b.New(PlainDesc(b.examples(), node.output));
    for (size_t i = 0; i + 1 < turns_.size(); ++i) between_.push_back(b.New(Between(turns_[i])));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    b.Use(out_->gradient);
    sink_ = b.WriteGradient(in_, source_.tensor->desc);
    for (size_t i = 0; i + 1 < turns_.size(); ++i) gradients_.push_back(b.New(Between(turns_[i])));
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    const float* x = source_.tensor->data();
    for (size_t i = 0; i < turns_.size(); ++i) {
      float* y = i + 1 == turns_.size() ? out_->data->data() : between_[i]->data();
      Apply(turns_[i], x, y);
      x = y;
    }
    if (turns_.empty()) std::memcpy(out_->data->data(), x, static_cast<size_t>(out_->data->bytes));
    if (fill_ != 0) AddFill();
  }

  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    const float* dy = out_->gradient->data();
    for (size_t i = turns_.size(); i-- > 0;) {
      float* dx = i == 0 ? sink_.tensor->data() : gradients_[i - 1]->data();
      ApplyBackward(turns_[i], dy, dx);
      dy = dx;
    }
    if (turns_.empty()) std::memcpy(sink_.tensor->data(), dy, static_cast<size_t>(sink_.tensor->bytes));
    sink_.Finish(run);
  }

 private:
  static Desc Between(const Turn& t) { return MakeDesc({t.outer * t.out * t.inner}, Tag::a); }

  void AddFill() {
    const int64_t pixels = static_cast<int64_t>(inside_.size()), numbers = out_->data->numbers();
    const int64_t channels = out_->data->desc.dims()[1], rows = numbers / channels;
    float* y = out_->data->data();
    for (int64_t row = 0; row < rows; ++row) {
      const float more = fill_ * (1 - inside_[static_cast<size_t>(row % pixels)]);
      for (int64_t c = 0; c < channels; ++c) y[row * channels + c] += more;
    }
  }

  Value* const in_;
  Value* const out_;
  const float fill_;
  std::vector<float> inside_;  // of each pixel how much of it the input gives
  std::vector<Turn> turns_;
  Source source_;
  std::vector<Tensor*> between_, gradients_;  // behind each turn but the last
  Sink sink_;
};

// Of equal numbers of a window the first one gets the gradient.
class AdaptiveMaxOp : public Op {
 public:
  AdaptiveMaxOp(PlanBuilder& b, const Node& node, Value* in, Value* out) : in_(in), out_(out) {
    const Shape& shape = b.graph().nodes()[node.inputs[0]].output;
    source_ = b.Read(in->data, PlainDesc(b.examples(), shape));
    examples_ = b.examples();
    channels_ = shape.back();
    for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
      std::vector<AdaptiveWindow>& windows = axes_[axis + 4 - shape.size()];
      ins_[axis + 4 - shape.size()] = shape[axis];
      windows.clear();
      for (int64_t o = 0; o < node.output[axis]; ++o)
        windows.push_back(AdaptiveWindowOf(o, shape[axis], node.output[axis]));
    }
    out->data = b.New(PlainDesc(b.examples(), node.output));
    if (b.training()) places_ = b.NewBytes(out->data->numbers() * 4);
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    b.Use(out_->gradient);
    b.Use(places_);
    sink_ = b.WriteGradient(in_, source_.tensor->desc);
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    const int64_t example = ins_[0] * ins_[1] * ins_[2] * channels_, outs = Outs() * channels_;
#pragma omp parallel for if (examples_ * outs >= kParallelNumbersMin)
    for (int64_t e = 0; e < examples_; ++e) {
      int32_t* places = places_ == nullptr ? nullptr : reinterpret_cast<int32_t*>(places_->data()) + e * outs;
      ForwardExample(source_.tensor->data() + e * example, out_->data->data() + e * outs, places);
    }
  }

  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    const int64_t example = ins_[0] * ins_[1] * ins_[2] * channels_, outs = Outs() * channels_;
    std::memset(sink_.tensor->data(), 0, static_cast<size_t>(sink_.tensor->bytes));
    const int32_t* places = reinterpret_cast<const int32_t*>(places_->data());
    for (int64_t i = 0; i < examples_ * outs; ++i)
      sink_.tensor->data()[i / outs * example + places[i]] += out_->gradient->data()[i];
    sink_.Finish(run);
  }

 private:
  int64_t Outs() const { return static_cast<int64_t>(axes_[0].size() * axes_[1].size() * axes_[2].size()); }

  // places: the index in the example that each number comes from; may be null.
  void ForwardExample(const float* x, float* y, int32_t* places) const {
    for (const AdaptiveWindow& z : axes_[0]) {
      for (const AdaptiveWindow& row : axes_[1]) {
        for (const AdaptiveWindow& column : axes_[2]) {
          MaximumOf(x, z, row, column, y, places);
          y += channels_;
          if (places != nullptr) places += channels_;
        }
      }
    }
  }

  void MaximumOf(const float* x, const AdaptiveWindow& z, const AdaptiveWindow& row, const AdaptiveWindow& column,
                 float* y, int32_t* places) const {
    bool first = true;
    for (int64_t iz = z.begin; iz < z.end; ++iz) {
      for (int64_t iy = row.begin; iy < row.end; ++iy) {
        for (int64_t ix = column.begin; ix < column.end; ++ix) {
          const int64_t at = ((iz * ins_[1] + iy) * ins_[2] + ix) * channels_;
          for (int64_t c = 0; c < channels_; ++c) {
            if (!first && !(x[at + c] > y[c])) continue;
            y[c] = x[at + c];
            if (places != nullptr) places[c] = static_cast<int32_t>(at + c);
          }
          first = false;
        }
      }
    }
  }

  Value* const in_;
  Value* const out_;
  int64_t examples_ = 0, channels_ = 0;
  int64_t ins_[3] = {1, 1, 1};  // depth, height, width
  std::vector<AdaptiveWindow> axes_[3] = {{{0, 1}}, {{0, 1}}, {{0, 1}}};
  Source source_;
  Tensor* places_ = nullptr;
  Sink sink_;
};

std::unique_ptr<Op> MakeResample(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<ResampleOp>(b, node, in, out);
}

std::unique_ptr<Op> MakeAdaptiveMax(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<AdaptiveMaxOp>(b, node, in, out);
}

constexpr Layer kLayers[] = {
    {LayerKind::kResizing, CompileOne<MakeResample>},
    {LayerKind::kCenterCrop, CompileOne<MakeResample>},
    {LayerKind::kAdaptiveAveragePooling1D, CompileOne<MakeResample>},
    {LayerKind::kAdaptiveAveragePooling2D, CompileOne<MakeResample>},
    {LayerKind::kAdaptiveAveragePooling3D, CompileOne<MakeResample>},
    {LayerKind::kAdaptiveMaxPooling1D, CompileOne<MakeAdaptiveMax>},
    {LayerKind::kAdaptiveMaxPooling2D, CompileOne<MakeAdaptiveMax>},
    {LayerKind::kAdaptiveMaxPooling3D, CompileOne<MakeAdaptiveMax>},
};

}  // namespace

absl::Span<const Layer> ResampleLayers() { return kLayers; }

}  // namespace cairn::onednn
