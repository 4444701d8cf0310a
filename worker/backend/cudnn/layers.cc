// The layers that have a launch of their own each.
#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {
namespace {

// {y} or, where it is added to, also read.
std::vector<Ref> With(std::vector<Ref> reads, bool add, const Ref& sum) {
  if (add) reads.push_back(sum);
  return reads;
}

const char* Adds(bool add) { return add ? " add" : ""; }

}  // namespace

// The batch's own numbers where they will do; else a copy, with the Rescaling behind it.
void Builder::LowerInput(const Node& node) {
  Value* const out = node_values_[node.id];
  const Ref inputs{Ref::kInputs};
  float scale = 1, offset = 0;
  const Node* next = consumers_[node.id].size() == 1 ? &graph_.nodes()[consumers_[node.id][0]] : nullptr;
  if (next != nullptr && next->kind == LayerKind::kRescaling && joined_[next->id]) {
    scale = next->layer.rescaling().scale();
    offset = next->layer.rescaling().offset();
  }
  const bool bytes = options_.inputs == Element::kByte;
  out->data = inputs;
  if (!bytes && scale == 1 && offset == 0 && out->type == DType::kFloat32) return;
  const Ref y = NewLike(*out);
  const int64_t n = out->numbers;
  const DType t = out->type;
  out->data = y;
  if (bytes) {
    return Emit(absl::StrCat("copy u8 ", Name(t), " * ", scale, " + ", offset), {inputs}, {y}, [=](const Run& r) {
      return kernels::AffineOfBytes(r.stream(), n, scale, offset, r.At<uint8_t>(inputs), r.At<>(y), t);
    });
  }
  Emit(absl::StrCat("copy f32 ", Name(t), " * ", scale, " + ", offset), {inputs}, {y}, [=](const Run& r) {
    return kernels::Affine(r.stream(), n, scale, offset, r.At<>(inputs), DType::kFloat32, r.At<>(y), t, false);
  });
}

void Builder::LowerRescaling(const Node& node, Value* in, Value* out) {
  const float scale = node.layer.rescaling().scale(), offset = node.layer.rescaling().offset();
  const DType t = out->type;
  const int64_t n = out->numbers;
  const Ref x = Read(*in, t), y = NewLike(*out);
  out->data = y;
  Emit(absl::StrCat("copy * ", scale, " + ", offset), {x}, {y},
       [=](const Run& r) { return kernels::Affine(r.stream(), n, scale, offset, r.At<>(x), t, r.At<>(y), t, false); });
  if (!in->needs_gradient) return;
  Backward([=, this] {
    const Ref dy = out->gradient;
    const Sink dx = GradientSink(in);
    Emit(absl::StrCat("copy * ", scale, Adds(dx.add)), With({dy}, dx.add, dx.ref), {dx.ref}, [=](const Run& r) {
      return kernels::Affine(r.stream(), n, scale, 0, r.At<>(dy), t, r.At<>(dx.ref), t, dx.add);
    });
  });
}

void Builder::LowerActivation(const Node& node, Value* in, Value* out) {
  const Activation f = ActivationOf(node);
  const DType t = out->type;
  const int64_t n = out->numbers, columns = node.output.back();
  const Ref x = Read(*in, t), y = NewLike(*out);
  out->data = y;
  if (f.softmax()) {
    Emit("softmax", {x}, {y},
         [=](const Run& r) { return kernels::Softmax(r.stream(), n / columns, columns, 0, r.At<>(x), r.At<>(y), t); });
  } else {
    Emit(v1::Activation_Name(f.kind), {x}, {y}, [=](const Run& r) {
      return kernels::BiasActivation(r.stream(), f.act(), f.alpha, 1, n, r.At<>(x), nullptr, r.At<>(y), t);
    });
  }
  if (!in->needs_gradient) return;
  Backward([=, this] {
    const Ref dy = out->gradient, before = f.needs_input() ? x : Ref{}, after = f.needs_input() ? Ref{} : y;
    const Sink dx = GradientSink(in);
    if (f.softmax()) {
      return Emit(absl::StrCat("softmax backward", Adds(dx.add)), With({y, dy}, dx.add, dx.ref), {dx.ref},
                  [=](const Run& r) {
                    return kernels::SoftmaxBackward(r.stream(), n / columns, columns, r.At<>(y), r.At<>(dy),
                                                    r.At<>(dx.ref), t, dx.add);
                  });
    }
    Emit(absl::StrCat(v1::Activation_Name(f.kind), " backward", Adds(dx.add)),
         With({before, after, dy}, dx.add, dx.ref), {dx.ref}, [=](const Run& r) {
           return kernels::ActivationBackward(r.stream(), f.act(), f.alpha, n, r.At<>(before), r.At<>(after),
                                              r.At<>(dy), r.At<>(dx.ref), t, dx.add);
         });
  });
}

void Builder::LowerPooling(const Node& node, Value* in, Value* out) {
  const kernels::Window w = WindowOf(node);
  const bool max = node.kind == LayerKind::kMaxPooling2D || node.kind == LayerKind::kMaxPooling1D;
  const bool small = w.kernel[0] * w.kernel[1] <= kMaxPoolingPlaces;
  const Node& producer = graph_.nodes()[node.inputs[0]];
  const bool zeros = producer.kind == LayerKind::kZeroPadding2D && joined_[producer.id];
  const DType t = out->type;
  const Ref x = Read(*in, t), y = NewLike(*out);
  const Ref argmax = max && small && in->needs_gradient ? New(out->numbers) : Ref{};
  const std::string text = ToString(Convolution{Convolution::kForward, w});
  out->data = y;
  Emit(absl::StrCat(max ? "max pooling " : "average pooling ", text), {x}, {y, argmax}, [=](const Run& r) {
    return max ? kernels::MaxPooling(r.stream(), w, zeros, r.At<>(x), r.At<>(y), r.At<uint8_t>(argmax), t)
               : kernels::AveragePooling(r.stream(), w, r.At<>(x), r.At<>(y), t);
  });
  if (!in->needs_gradient) return;
  Backward([=, this] {
    const Ref dy = out->gradient, searched = max && !small ? x : Ref{};
    const Sink dx = GradientSink(in);
    Emit(absl::StrCat(max ? "max pooling backward " : "average pooling backward ", text, Adds(dx.add)),
         With({dy, argmax, searched}, dx.add, dx.ref), {dx.ref}, [=](const Run& r) {
           if (!max) return kernels::AveragePoolingBackward(r.stream(), w, r.At<>(dy), r.At<>(dx.ref), t, dx.add);
           if (searched)
             return kernels::MaxPoolingBackwardSearch(r.stream(), w, r.At<>(x), r.At<>(dy), r.At<>(dx.ref), t, dx.add);
           return kernels::MaxPoolingBackward(r.stream(), w, r.At<uint8_t>(argmax), r.At<>(dy), r.At<>(dx.ref), t,
                                              dx.add);
         });
  });
}

void Builder::LowerGlobalAverage(const Node& node, Value* in, Value* out) {
  const DType t = out->type;
  const int64_t channels = node.output.back(), n = examples(), positions = in->numbers / channels / n;
  const Ref x = Read(*in, t), y = NewLike(*out);
  out->data = y;
  Emit(absl::StrCat("global average ", n, "x", positions, "x", channels), {x}, {y}, [=](const Run& r) {
    return kernels::GlobalAverage(r.stream(), n, positions, channels, r.At<>(x), r.At<>(y), t);
  });
  if (!in->needs_gradient) return;
  Backward([=, this] {
    const Ref dy = out->gradient;
    const Sink dx = GradientSink(in);
    Emit(absl::StrCat("global average backward", Adds(dx.add)), With({dy}, dx.add, dx.ref), {dx.ref},
         [=](const Run& r) {
           return kernels::GlobalAverageBackward(r.stream(), n, positions, channels, r.At<>(dy), r.At<>(dx.ref), t,
                                                 dx.add);
         });
  });
}

void Builder::LowerZeroPadding(const Node& node, Value* in, Value* out) {
  const kernels::Window w = WindowOf(node);
  const DType t = out->type;
  const Ref x = Read(*in, t), y = NewLike(*out);
  out->data = y;
  Emit("pad", {x}, {y}, [=](const Run& r) { return kernels::Pad(r.stream(), w, r.At<>(x), r.At<>(y), t); });
  if (!in->needs_gradient) return;
  Backward([=, this] {
    const Ref dy = out->gradient;
    const Sink dx = GradientSink(in);
    Emit(absl::StrCat("crop", Adds(dx.add)), With({dy}, dx.add, dx.ref), {dx.ref},
         [=](const Run& r) { return kernels::Crop(r.stream(), w, r.At<>(dy), r.At<>(dx.ref), t, dx.add); });
  });
}

void Builder::LowerUpSampling(const Node& node, Value* in, Value* out) {
  const kernels::Window w = WindowOf(node);
  const bool bilinear = node.layer.up_sampling2d().interpolation() == v1::UpSampling2D::BILINEAR;
  const DType t = out->type;
  const Ref x = Read(*in, t), y = NewLike(*out);
  const char* text = bilinear ? "up-sampling bilinear" : "up-sampling nearest";
  out->data = y;
  Emit(text, {x}, {y},
       [=](const Run& r) { return kernels::UpSampling(r.stream(), w, bilinear, r.At<>(x), r.At<>(y), t); });
  if (!in->needs_gradient) return;
  Backward([=, this] {
    const Ref dy = out->gradient;
    const Sink dx = GradientSink(in);
    Emit(absl::StrCat(text, " backward", Adds(dx.add)), With({dy}, dx.add, dx.ref), {dx.ref}, [=](const Run& r) {
      return kernels::UpSamplingBackward(r.stream(), w, bilinear, r.At<>(dy), r.At<>(dx.ref), t, dx.add);
    });
  });
}

void Builder::LowerPermute(const Node& node, Value* in, Value* out) {
  // The examples, then up to three axes; missing ones stand first with the size 1.
  struct Axes {
    int64_t dims[4] = {1, 1, 1, 1};
    int64_t strides[4] = {0, 0, 0, 0};  // in the other tensor
  };
  const Shape& from = graph_.nodes()[node.inputs[0]].output;
  const size_t rank = from.size(), lead = 4 - rank;
  Axes forward, backward;
  forward.dims[0] = backward.dims[0] = examples();
  forward.strides[0] = backward.strides[0] = NumElements(from);
  const auto stride_of = [&](const Shape& shape, size_t axis) {
    int64_t stride = 1;
    for (size_t i = axis + 1; i < rank; ++i) stride *= shape[i];
    return stride;
  };
  for (size_t axis = 0; axis < rank; ++axis) {
    const size_t other = static_cast<size_t>(node.layer.permute().dims(static_cast<int>(axis))) - 1;
    forward.dims[lead + axis] = node.output[axis];
    forward.strides[lead + axis] = stride_of(from, other);
    backward.dims[lead + other] = from[other];
    backward.strides[lead + other] = stride_of(node.output, axis);
  }
  const DType t = out->type;
  const Ref x = Read(*in, t), y = NewLike(*out);
  out->data = y;
  Emit("permute", {x}, {y}, [=](const Run& r) {
    return kernels::Permute(r.stream(), forward.dims, forward.strides, r.At<>(x), r.At<>(y), t, false);
  });
  if (!in->needs_gradient) return;
  Backward([=, this] {
    const Ref dy = out->gradient;
    const Sink dx = GradientSink(in);
    Emit(absl::StrCat("permute backward", Adds(dx.add)), With({dy}, dx.add, dx.ref), {dx.ref}, [=](const Run& r) {
      return kernels::Permute(r.stream(), backward.dims, backward.strides, r.At<>(dy), r.At<>(dx.ref), t, dx.add);
    });
  });
}

// Backward draws the same mask again.
void Builder::LowerDropout(const Node& node, Value* in, Value* out) {
  const bool spatial = node.kind == LayerKind::kSpatialDropout2D;
  const float rate = spatial ? node.layer.spatial_dropout2d().rate() : node.layer.dropout().rate();
  const DType t = out->type;
  const int id = node.id;
  const int64_t n = out->numbers, channels = node.output.back(), images = examples(), positions = n / channels / images;
  const Ref key{Ref::kKey};
  const auto emit = [=, this](const char* text, const Ref& from, const Ref& to, bool add) {
    Emit(absl::StrCat(spatial ? "spatial dropout " : "dropout ", rate, text, Adds(add)), With({from, key}, add, to),
         {to}, [=](const Run& r) {
           const kernels::StepKey* step = r.At<kernels::StepKey>(key);
           return spatial ? kernels::SpatialDropout(r.stream(), images, positions, channels, step, id, rate,
                                                    r.At<>(from), r.At<>(to), t, add)
                          : kernels::Dropout(r.stream(), n, step, id, rate, r.At<>(from), r.At<>(to), t, add);
         });
  };
  const Ref x = Read(*in, t), y = NewLike(*out);
  out->data = y;
  emit("", x, y, false);
  if (!in->needs_gradient) return;
  Backward([=, this] {
    const Sink dx = GradientSink(in);
    emit(" backward", out->gradient, dx.ref, dx.add);
  });
}

void Builder::LowerEmbedding(const Node& node, Value* in, Value* out) {
  const DType t = out->type;
  const bool frozen = Frozen(node);
  const int64_t count = in->numbers, rows = node.layer.embedding().input_dim(), width = node.output.back();
  const Variable* embeddings = Find(node, "embeddings");
  if (in->data.place != Ref::kInputs) {
    return Fail(
        absl::UnimplementedError("on a GPU an Embedding takes the model's inputs themselves, which are checked on the "
                                 "host before; use --device=cpu"));
  }
  const Ref ids = in->data, table = ValueOf(embeddings), y = NewLike(*out);
  out->data = y;
  Emit(absl::StrCat("embedding ", rows, "x", width), {ids, table}, {y}, [=](const Run& r) {
    return kernels::Embedding(r.stream(), count, width, r.At<float>(ids), r.At<float>(table), r.At<>(y), t);
  });
  if (!training() || frozen) return;
  Backward([=, this] {
    const Ref dy = out->gradient, scratch = Scratch(kernels::EmbeddingScratch(count, rows)),
              gradient = GradientOf(embeddings);
    Emit(absl::StrCat("embedding backward ", rows, "x", width), {ids, dy}, {gradient, scratch}, [=](const Run& r) {
      return kernels::EmbeddingBackward(r.stream(), count, rows, width, r.At<float>(ids), r.At<>(dy),
                                        r.At<float>(gradient), r.At<float>(scratch), t);
    });
  });
}

}  // namespace cairn::cudnn
