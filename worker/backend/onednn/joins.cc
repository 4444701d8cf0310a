// Add, Average, Maximum, Multiply.
#include <algorithm>
#include <array>
#include <cstring>

#include "worker/backend/onednn/image_layout.h"
#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

// Add, and Average: the sum times 1 / inputs.
class SumOp : public Op {
 public:
  SumOp(PlanBuilder& b, float scale, const std::vector<Value*>& in, Value* out) : scale_(scale), in_(in), out_(out) {
    const Desc layout = in[0]->data->desc;
    for (Value* value : in) sources_.push_back(b.Read(value->data, layout));
    out->data = b.New(layout);
  }

  void CompileBackward(PlanBuilder& b) override {
    for (Value* in : in_) {
      if (!in->needs_gradient) continue;
      b.Use(out_->gradient);
      // One input without another reader takes over the gradient's buffer; the others get copies.
      if (!handed_on_ && in->readers == 1 && in->data->desc == out_->data->desc) {
        handed_on_ = true;
        in->gradient = out_->gradient;
        in->gradient_written = true;
        continue;
      }
      sinks_.push_back(b.WriteGradient(in, out_->data->desc));
    }
  }

  void Forward(const Run& run) override {
    float* y = out_->data->data();
    const int64_t count = out_->data->numbers();
    for (const Source& source : sources_) source.Prepare(run);
    std::memcpy(y, sources_[0].tensor->data(), count * sizeof(float));
    for (size_t i = 1; i < sources_.size(); ++i) AddTo(sources_[i].tensor->data(), y, count);
    if (scale_ != 1) Scale(y, scale_, y, count);
  }

  void BackwardInputs(const Run& run) override {
    if (out_->gradient == nullptr) return;
    float* dy = out_->gradient->data();
    if (scale_ != 1 && (handed_on_ || !sinks_.empty())) Scale(dy, scale_, dy, out_->gradient->numbers());
    for (const Sink& sink : sinks_) {
      std::memcpy(sink.tensor->data(), dy, out_->gradient->bytes);
      sink.Finish(run);
    }
  }

 private:
  const float scale_;
  const std::vector<Value*> in_;
  Value* const out_;
  std::vector<Source> sources_;
  std::vector<Sink> sinks_;
  bool handed_on_ = false;
};

// Of equal numbers the first input's gets the gradient.
class MaximumOp : public Op {
 public:
  MaximumOp(PlanBuilder& b, const std::vector<Value*>& in, Value* out) : in_(in), out_(out) {
    const Desc layout = in[0]->data->desc;
    for (Value* value : in) sources_.push_back(b.Read(value->data, layout));
    out->data = b.New(layout);
    out->may_overwrite = false;
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!out_->needs_gradient) return;
    b.Use(out_->data);
    b.Use(out_->gradient);  // of which every input takes its part away
    unused_ = b.New(out_->data->desc);
    for (size_t k = 0; k < in_.size(); ++k) {
      b.Use(sources_[k].tensor);
      sinks_.push_back(in_[k]->needs_gradient ? b.WriteGradient(in_[k], out_->data->desc) : Sink{unused_});
    }
  }

  void Forward(const Run& run) override {
    const int64_t count = out_->data->numbers();
    for (const Source& source : sources_) source.Prepare(run);
    std::memcpy(out_->data->data(), sources_[0].tensor->data(), count * sizeof(float));
    for (size_t k = 1; k < sources_.size(); ++k) MaximumWith(sources_[k].tensor->data(), out_->data->data(), count);
  }

  void BackwardInputs(const Run& run) override {
    for (size_t k = 0; k < sinks_.size(); ++k) {
      TakeWhereMaximum(sources_[k].tensor->data(), out_->data->data(), out_->gradient->data(), sinks_[k].tensor->data(),
                       out_->data->numbers());
      sinks_[k].Finish(run);
    }
  }

 private:
  const std::vector<Value*> in_;
  Value* const out_;
  std::vector<Source> sources_;
  std::vector<Sink> sinks_;
  Tensor* unused_ = nullptr;  // what an input without a gradient would get
};

// Inputs of one shape, in the layout of the first one.
class MultiplyOp : public Op {
 public:
  MultiplyOp(PlanBuilder& b, const std::vector<Value*>& in, Value* out) : in_(in), out_(out) {
    const Desc layout = in[0]->data->desc;
    for (Value* value : in) sources_.push_back(b.Read(value->data, layout));
    out->data = b.New(layout);
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!out_->needs_gradient) return;
    b.Use(out_->gradient);
    for (const Source& source : sources_) b.Use(source.tensor);
    for (Value* in : in_) sinks_.push_back(in->needs_gradient ? b.WriteGradient(in, out_->data->desc) : Sink{});
  }

  void Forward(const Run& run) override {
    for (const Source& source : sources_) source.Prepare(run);
    Product(sources_[0].tensor->data(), 0, out_->data->data());
  }

  void BackwardInputs(const Run& run) override {
    for (size_t k = 0; k < sinks_.size(); ++k) {
      if (sinks_[k].tensor == nullptr) continue;
      Product(out_->gradient->data(), k, sinks_[k].tensor->data());
      sinks_[k].Finish(run);
    }
  }

 private:
  // y = x * every input but number `skipped`.
  void Product(const float* x, size_t skipped, float* y) const {
    for (size_t k = 0; k < sources_.size(); ++k) {
      if (k == skipped) continue;
      Multiply(x, sources_[k].tensor->data(), y, out_->data->numbers());
      x = y;
    }
  }

  const std::vector<Value*> in_;
  Value* const out_;
  std::vector<Source> sources_;
  std::vector<Sink> sinks_;
};

// An image times a factor for each of its channels, [1, 1, channels], as in squeeze and excitation. In the layout of
// the image.
class ScaleChannelsOp : public Op {
 public:
  ScaleChannelsOp(PlanBuilder& b, Value* image, Value* factors, Value* out)
      : image_(image), factors_(factors), out_(out), layout_(image->data->desc) {
    const Shape shape = {1, 1, layout_.channels};
    b.Use(image->data);
    source_ = b.Read(factors->data, PlainDesc(b.examples(), shape));
    line_ = b.New(MakeDesc({layout_.examples, layout_.padded_channels}, Tag::nc));
    out->data = b.New(image->data->desc);
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!out_->needs_gradient) return;
    for (Tensor* tensor : {image_->data, line_, out_->gradient}) b.Use(tensor);
    if (factors_->needs_gradient) {
      sums_ = b.New(line_->desc);
      factors_sink_ = b.WriteGradient(factors_, source_.tensor->desc);
    }
    if (image_->needs_gradient) image_sink_ = b.WriteGradient(image_, image_->data->desc);
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    const int64_t channels = layout_.channels, padded = layout_.padded_channels;
    for (int64_t n = 0; n < layout_.examples; ++n) {  // the padding of a block of channels is multiplied by 0
      std::fill_n(line_->data() + n * padded, padded, 0.0f);
      std::memcpy(line_->data() + n * padded, source_.tensor->data() + n * channels, channels * sizeof(float));
    }
    MultiplyImage(image_->data->data(), out_->data->data());
  }

  void BackwardInputs(const Run& run) override {
    if (sums_ != nullptr) {
      const float *const x = image_->data->data(), *const dy = out_->gradient->data();
      ForBlocks([&](int64_t begin, int64_t channel) {
        ProductSums(x + begin, dy + begin, layout_.pixels, layout_.pixel_stride, layout_.block,
                    sums_->data() + channel);
      });
      const int64_t channels = layout_.channels;
      for (int64_t n = 0; n < layout_.examples; ++n) {
        std::memcpy(factors_sink_.tensor->data() + n * channels, sums_->data() + n * layout_.padded_channels,
                    channels * sizeof(float));
      }
      factors_sink_.Finish(run);
    }
    if (image_sink_.tensor == nullptr) return;
    MultiplyImage(out_->gradient->data(), image_sink_.tensor->data());
    image_sink_.Finish(run);
  }

 private:
  void MultiplyImage(const float* x, float* y) const {
    ForBlocks([&](int64_t begin, int64_t channel) {
      MultiplyRows(x + begin, line_->data() + channel, layout_.pixels, layout_.pixel_stride, layout_.block, y + begin);
    });
  }

  // Calls fn(index of a block's first number in the image, index of its first channel in line_), in parallel.
  template <typename Fn>
  void ForBlocks(Fn fn) const {
    const int64_t blocks = layout_.padded_channels / layout_.block;
#pragma omp parallel for schedule(static) if (out_->data->numbers() >= kParallelNumbersMin)
    for (int64_t i = 0; i < layout_.examples * blocks; ++i) {
      fn(i / blocks * layout_.example_stride + i % blocks * layout_.block_stride, i * layout_.block);
    }
  }

  Value* const image_;
  Value* const factors_;
  Value* const out_;
  const ImageLayout layout_;
  Source source_;           // the factors, plain
  Tensor* line_ = nullptr;  // the same with the padding of the image's channels
  Tensor* sums_ = nullptr;  // the gradient of line_
  Sink image_sink_, factors_sink_;
};

// Inputs of several shapes, channels last. Axes of 1 are repeated: their stride is 0.
class BroadcastMultiplyOp : public Op {
 public:
  BroadcastMultiplyOp(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out)
      : in_(in), out_(out), examples_(b.examples()), shape_(Image(node.output)) {
    for (size_t k = 0; k < in.size(); ++k) {
      const Shape& shape = b.graph().nodes()[node.inputs[k]].output;
      sources_.push_back(b.Read(in[k]->data, PlainDesc(b.examples(), shape)));
      strides_.push_back(StridesOf(Image(shape)));
    }
    out->data = b.New(PlainDesc(b.examples(), node.output));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!out_->needs_gradient) return;
    b.Use(out_->gradient);
    line_ = b.New(MakeDesc({shape_[2]}, Tag::x));
    for (const Source& source : sources_) b.Use(source.tensor);
    for (size_t k = 0; k < in_.size(); ++k) {
      sinks_.push_back(in_[k]->needs_gradient ? b.WriteGradient(in_[k], sources_[k].tensor->desc) : Sink{});
    }
  }

  void Forward(const Run& run) override {
    for (const Source& source : sources_) source.Prepare(run);
    ForEachLine([&](const Line& line, int64_t place) {
      float* y = out_->data->data() + place;
      std::fill(y, y + shape_[2], 1.0f);
      MultiplyOthers(line, sources_.size(), y);
    });
  }

  void BackwardInputs(const Run& run) override {
    float* product = line_ == nullptr ? nullptr : line_->data();
    for (size_t k = 0; k < sinks_.size(); ++k) {
      if (sinks_[k].tensor == nullptr) continue;
      std::memset(sinks_[k].tensor->data(), 0, sinks_[k].tensor->bytes);
      ForEachLine([&](const Line& line, int64_t place) {
        std::memcpy(product, out_->gradient->data() + place, shape_[2] * sizeof(float));
        MultiplyOthers(line, k, product);
        float* dx = sinks_[k].tensor->data() + PlaceOf(line, k);
        if (strides_[k][3] != 0) {
          AddTo(product, dx, shape_[2]);
        } else {
          double sum = 0;
          for (int64_t c = 0; c < shape_[2]; ++c) sum += product[c];
          *dx += static_cast<float>(sum);
        }
      });
      sinks_[k].Finish(run);
    }
  }

 private:
  using Line = std::array<int64_t, 3>;  // example, row, column

  static Shape Image(Shape shape) {
    shape.insert(shape.begin(), 3 - shape.size(), 1);
    return shape;
  }

  std::array<int64_t, 4> StridesOf(const Shape& shape) const {
    std::array<int64_t, 4> strides = {shape[0] * shape[1] * shape[2], shape[1] * shape[2], shape[2], 1};
    for (int axis = 0; axis < 3; ++axis) {
      if (shape[axis] != shape_[axis]) strides[axis + 1] = 0;
    }
    return strides;
  }

  int64_t PlaceOf(const Line& line, size_t k) const {
    return line[0] * strides_[k][0] + line[1] * strides_[k][1] + line[2] * strides_[k][2];
  }

  // Calls fn(line, index of its first number in the output), in order.
  template <typename Fn>
  void ForEachLine(Fn fn) const {
    int64_t place = 0;
    for (int64_t n = 0; n < examples_; ++n) {
      for (int64_t h = 0; h < shape_[0]; ++h) {
        for (int64_t w = 0; w < shape_[1]; ++w, place += shape_[2]) fn(Line{n, h, w}, place);
      }
    }
  }

  // y = y * the numbers of every input in the line, except input number `skipped`.
  void MultiplyOthers(const Line& line, size_t skipped, float* y) const {
    for (size_t k = 0; k < sources_.size(); ++k) {
      if (k == skipped) continue;
      const float* x = sources_[k].tensor->data() + PlaceOf(line, k);
      if (strides_[k][3] != 0) {
        Multiply(y, x, y, shape_[2]);
      } else {
        Scale(y, *x, y, shape_[2]);
      }
    }
  }

  const std::vector<Value*> in_;
  Value* const out_;
  const int64_t examples_;
  const Shape shape_;  // of the output: rows, columns, channels
  std::vector<Source> sources_;
  std::vector<std::array<int64_t, 4>> strides_;
  std::vector<Sink> sinks_;
  Tensor* line_ = nullptr;
};

}  // namespace

std::unique_ptr<Op> MakeSum(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  const float scale = node.kind == LayerKind::kAverage ? 1.0f / static_cast<float>(in.size()) : 1.0f;
  return std::make_unique<SumOp>(b, scale, in, out);
}

std::unique_ptr<Op> MakeMaximum(PlanBuilder& b, const Node&, const std::vector<Value*>& in, Value* out) {
  return std::make_unique<MaximumOp>(b, in, out);
}

std::unique_ptr<Op> MakeMultiply(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  const auto shape_of = [&](size_t k) -> const Shape& { return b.graph().nodes()[node.inputs[k]].output; };
  for (size_t k = 0; k < 2 && in.size() == 2 && node.output.size() == 3; ++k) {
    if (shape_of(k) != node.output || shape_of(1 - k) != Shape{1, 1, node.output[2]} || shape_of(k) == shape_of(1 - k))
      continue;
    return std::make_unique<ScaleChannelsOp>(b, in[k], in[1 - k], out);
  }
  for (int input : node.inputs) {
    if (b.graph().nodes()[input].output != node.output) return std::make_unique<BroadcastMultiplyOp>(b, node, in, out);
  }
  return std::make_unique<MultiplyOp>(b, in, out);
}

namespace {

constexpr Layer kLayers[] = {
    {LayerKind::kAdd, CompileAll<MakeSum>},
    {LayerKind::kAverage, CompileAll<MakeSum>},
    {LayerKind::kMaximum, CompileAll<MakeMaximum>},
    {LayerKind::kMultiply, CompileAll<MakeMultiply>},
    {LayerKind::kConcatenate, CompileAll<MakeConcatenate>},
};

}  // namespace

absl::Span<const Layer> MergingLayers() { return kLayers; }

}  // namespace cairn::onednn
