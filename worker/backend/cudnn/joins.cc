// Layers with several inputs. A launch takes kernels::kJoinMax of them; longer ones are chained through values between.
#include <algorithm>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"

namespace cairn::cudnn {
namespace {

constexpr size_t kJoined = kernels::kJoinMax;

kernels::Inputs InputsOf(const Run& r, const std::vector<Ref>& refs) {
  kernels::Inputs in;
  for (const Ref& ref : refs) in.x[in.count++] = r.At<>(ref);
  return in;
}

void LowerSum(Builder& builder, std::vector<Value*> in, float factor, Value* out) {
  const DType t = out->type;
  const int64_t n = out->numbers;
  if (in.size() > kJoined) {
    Value* first = builder.NewValue(n, out->needs_gradient, t);
    LowerSum(builder, {in.begin(), in.begin() + kJoined}, 1, first);
    in.erase(in.begin(), in.begin() + kJoined);
    in.insert(in.begin(), first);
    return LowerSum(builder, std::move(in), factor, out);
  }
  std::vector<Ref> x;
  for (const Value* v : in) x.push_back(builder.Read(*v, t));
  const Ref y = builder.NewLike(*out);
  out->data = y;
  builder.Emit(factor == 1 ? "sum" : absl::StrCat("sum * ", factor), x, {y},
               [=](const Run& r) { return kernels::Sum(r.stream(), n, InputsOf(r, x), factor, r.At<>(y), t); });
  if (!out->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Ref dy = out->gradient;
    for (Value* v : in) {
      if (!v->needs_gradient) continue;
      const Builder::Sink dx = builder.GradientSink(v);
      std::vector<Ref> reads = {dy};
      if (dx.add) reads.push_back(dx.ref);
      builder.Emit(absl::StrCat("copy * ", factor, dx.add ? " add" : ""), std::move(reads), {dx.ref},
                   [=](const Run& r) {
                     return kernels::Affine(r.stream(), n, factor, 0, r.At<>(dy), t, r.At<>(dx.ref), t, dx.add);
                   });
    }
  });
}

// least: the minimum.
void LowerExtreme(Builder& builder, std::vector<Value*> in, bool least, Value* out) {
  const DType t = out->type;
  const int64_t n = out->numbers;
  if (in.size() > kJoined) {
    Value* first = builder.NewValue(n, out->needs_gradient, t);
    LowerExtreme(builder, {in.begin(), in.begin() + kJoined}, least, first);
    in.erase(in.begin(), in.begin() + kJoined);
    in.insert(in.begin(), first);
    return LowerExtreme(builder, std::move(in), least, out);
  }
  std::vector<Ref> x;
  for (const Value* v : in) x.push_back(builder.Read(*v, t));
  const Ref y = builder.NewLike(*out);
  out->data = y;
  const char* const name = least ? "minimum" : "maximum";
  builder.Emit(name, x, {y}, [=](const Run& r) {
    return (least ? kernels::Minimum : kernels::Maximum)(r.stream(), n, InputsOf(r, x), r.At<>(y), t);
  });
  if (!out->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Ref dy = out->gradient;
    for (int which = 0; which < static_cast<int>(in.size()); ++which) {
      if (!in[which]->needs_gradient) continue;
      const Builder::Sink dx = builder.GradientSink(in[which]);
      std::vector<Ref> reads = x;
      reads.push_back(dy);
      if (dx.add) reads.push_back(dx.ref);
      builder.Emit(absl::StrCat(name, " backward ", which, dx.add ? " add" : ""), std::move(reads), {dx.ref},
                   [=](const Run& r) {
                     const auto launch = least ? kernels::MinimumBackward : kernels::MaximumBackward;
                     return launch(r.stream(), n, InputsOf(r, x), which, r.At<>(dy), r.At<>(dx.ref), t, dx.add);
                   });
    }
  });
}

// An axis of size 1 is repeated, as Keras broadcasts; shapes are aligned at their last axis.
void LowerMultiply(Builder& builder, const Node& node) {
  Value* const out = builder.Out(node);
  struct Factor {
    Value* value = nullptr;
    Shape shape;
  };
  const DType t = out->type;
  std::vector<Factor> all;
  for (int input : node.inputs) all.push_back({builder.ValueAt(input), builder.NodeAt(input).output});
  const Shape& shape = node.output;
  const int64_t images = builder.examples();
  const auto lower = [&](std::vector<Factor> in, Value* to) {
    kernels::Broadcast b;
    b.dims[0] = images;
    for (size_t i = 0; i < shape.size(); ++i) b.dims[kernels::kAxesMax - shape.size() + i] = shape[i];
    std::vector<Ref> x;
    std::vector<Value*> values;
    for (size_t k = 0; k < in.size(); ++k) {
      int64_t stride = 1;
      for (size_t i = in[k].shape.size(), axis = kernels::kAxesMax - 1; i-- > 0; --axis) {
        if (in[k].shape[i] != 1) b.strides[k][axis] = stride;
        stride *= in[k].shape[i];
      }
      b.strides[k][0] = stride;
      x.push_back(builder.Read(*in[k].value, t));
      values.push_back(in[k].value);
    }
    const Ref y = builder.NewLike(*to);
    to->data = y;
    builder.Emit("multiply", x, {y},
                 [=](const Run& r) { return kernels::Multiply(r.stream(), b, InputsOf(r, x), r.At<>(y), t); });
    if (!to->needs_gradient) return;
    builder.Backward([=, &builder] {
      const Ref dy = to->gradient;
      for (int which = 0; which < static_cast<int>(values.size()); ++which) {
        if (!values[which]->needs_gradient) continue;
        const Builder::Sink dx = builder.GradientSink(values[which]);
        std::vector<Ref> reads = x;
        reads.push_back(dy);
        if (dx.add) reads.push_back(dx.ref);
        builder.Emit(absl::StrCat("multiply backward ", which, dx.add ? " add" : ""), std::move(reads), {dx.ref},
                     [=](const Run& r) {
                       return kernels::MultiplyBackward(r.stream(), b, InputsOf(r, x), which, r.At<>(dy),
                                                        r.At<>(dx.ref), t, dx.add);
                     });
      }
    });
  };
  while (all.size() > kJoined) {
    Value* first = builder.NewValue(out->numbers, out->needs_gradient, t);
    lower({all.begin(), all.begin() + kJoined}, first);
    all.erase(all.begin(), all.begin() + kJoined);
    all.insert(all.begin(), {first, shape});
  }
  lower(std::move(all), out);
}

// What is joined are columns: all numbers behind a place of the axes before the one that joins.
void LowerConcatenate(Builder& builder, const Node& node) {
  Value* const out = builder.Out(node);
  const DType t = out->type;
  const v1::Concatenate& layer = node.layer.concatenate();
  const auto axis = layer.has_axis() ? static_cast<size_t>(layer.axis()) - 1 : node.output.size() - 1;
  const auto columns_of = [axis](const Shape& shape) {
    return std::accumulate(shape.begin() + static_cast<int64_t>(axis), shape.end(), int64_t{1}, std::multiplies<>());
  };
  const int64_t width = columns_of(node.output), rows = out->numbers / width;
  struct Part {
    Value* value = nullptr;
    int64_t begin = 0, width = 0;
  };
  std::vector<Part> parts;
  const Ref y = builder.NewLike(*out);
  int64_t begin = 0;
  for (int input : node.inputs) {
    const Part part{builder.ValueAt(input), begin, columns_of(builder.NodeAt(input).output)};
    const Ref x = builder.Read(*part.value, t);
    builder.Emit(absl::StrCat("columns to ", begin), {x}, {y}, [=](const Run& r) {
      return kernels::CopyColumns(r.stream(), rows, part.width, r.At<>(x), part.width, 0, r.At<>(y), width, part.begin,
                                  t, false);
    });
    begin += part.width;
    parts.push_back(part);
  }
  out->data = y;
  if (!out->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Ref dy = out->gradient;
    for (const Part& part : parts) {
      if (!part.value->needs_gradient) continue;
      const Builder::Sink dx = builder.GradientSink(part.value);
      std::vector<Ref> reads = {dy};
      if (dx.add) reads.push_back(dx.ref);
      builder.Emit(absl::StrCat("columns from ", part.begin, dx.add ? " add" : ""), std::move(reads), {dx.ref},
                   [=](const Run& r) {
                     return kernels::CopyColumns(r.stream(), rows, part.width, r.At<>(dy), width, part.begin,
                                                 r.At<>(dx.ref), part.width, 0, t, dx.add);
                   });
    }
  });
}

std::vector<Value*> AllOf(Builder& b, const Node& node) {
  std::vector<Value*> all;
  for (size_t k = 0; k < node.inputs.size(); ++k) all.push_back(b.In(node, k));
  return all;
}

// y = p - alpha * n with p = relu(x), n = relu(-x), as Keras has it. The gradient of alpha is summed in float32.
struct PRelu {
  Builder& b;
  Value *const in, *const out;
  const Variable* const variable;
  const Shape shape;
  const DType t;
  const int64_t n;
  kernels::Broadcast shapes;  // of n and alpha
  Ref positive, negative, alpha;

  PRelu(Builder& builder, const Node& node)
      : b(builder),
        in(b.In(node)),
        out(b.Out(node)),
        variable(b.Find(node, "alpha")),
        shape(node.output),
        t(out->type),
        n(out->numbers),
        positive(b.NewLike(*out)),
        negative(b.NewLike(*out)),
        alpha(t == DType::kFloat32 ? b.ValueOf(variable) : b.NewNumbers(variable->size, t)) {
    shapes.dims[0] = b.examples();
    shapes.strides[0][0] = NumElements(node.output);
    int64_t strides[2] = {1, 1};
    for (size_t i = node.output.size(), axis = kernels::kAxesMax - 1; i-- > 0; --axis) {
      shapes.dims[axis] = node.output[i];
      shapes.strides[0][axis] = strides[0];
      if (variable->shape[i] != 1) shapes.strides[1][axis] = strides[1];
      strides[0] *= node.output[i];
      strides[1] *= variable->shape[i];
    }
  }

  void EmitAffine(float scale, const Ref& from, const Ref& to, bool add) const {
    std::vector<Ref> reads = {from};
    if (add) reads.push_back(to);
    b.Emit(absl::StrCat("copy * ", scale, add ? " add" : ""), std::move(reads), {to}, [=, t = t, n = n](const Run& r) {
      return kernels::Affine(r.stream(), n, scale, 0, r.At<>(from), t, r.At<>(to), t, add);
    });
  }

  // The gradient of factor `which` of x[0] * x[1].
  void EmitMultiplyBackward(const std::vector<Ref>& x, const Ref& g, int which, const Ref& to, DType type) const {
    b.Emit(absl::StrCat("multiply backward ", which), {x[0], x[1], g}, {to}, [=, shapes = shapes](const Run& r) {
      return kernels::MultiplyBackward(r.stream(), shapes, InputsOf(r, x), which, r.At<>(g), r.At<>(to), type, false);
    });
  }

  // The sum of n * g over the numbers that share an alpha: by columns if the shared axes are the first ones, else alpha
  // by alpha.
  void EmitAlphaGradient(const Ref& wide, const Ref& g) const {
    const Ref gradient = b.GradientOf(variable);
    size_t shared = 0;
    while (shared < variable->shape.size() && variable->shape[shared] == 1) ++shared;
    int64_t columns = 1;
    for (size_t axis = shared; axis < variable->shape.size(); ++axis) columns *= shape[axis];
    if (columns != variable->size) {
      return EmitMultiplyBackward({wide, b.ValueOf(variable)}, g, 1, gradient, DType::kFloat32);
    }
    kernels::Broadcast full = shapes;
    std::copy(full.strides[0], full.strides[0] + kernels::kAxesMax, full.strides[1]);
    const std::vector<Ref> factors = {wide, g};
    const Ref product = b.NewNumbers(n, DType::kFloat32);
    b.Emit("multiply", factors, {product}, [=](const Run& r) {
      return kernels::Multiply(r.stream(), full, InputsOf(r, factors), r.At<>(product), DType::kFloat32);
    });
    EmitColumnSums(b, product, n / columns, columns, gradient, DType::kFloat32);
  }

  // `after`: the relu's output.
  void EmitReluBackward(const Ref& after, const Ref& from, const Ref& to, bool add) const {
    std::vector<Ref> reads = {after, from};
    if (add) reads.push_back(to);
    b.Emit(absl::StrCat("RELU backward", add ? " add" : ""), std::move(reads), {to}, [=, t = t, n = n](const Run& r) {
      return kernels::ActivationBackward(r.stream(), kernels::Act::kRelu, 0, n, nullptr, r.At<>(after), r.At<>(from),
                                         r.At<>(to), t, add);
    });
  }

  void LowerForward() const {
    const Ref x = b.Read(*in, t), y = b.NewLike(*out), to = positive;
    if (t != DType::kFloat32) EmitConvert(b, {b.ValueOf(variable), DType::kFloat32}, {alpha, t}, variable->size);
    b.Emit("RELU", {x}, {to}, [=, t = t, n = n](const Run& r) {
      return kernels::BiasActivation(r.stream(), kernels::Act::kRelu, 0, 1, n, r.At<>(x), nullptr, r.At<>(to), t);
    });
    EmitAffine(-1, x, negative, false);
    const Ref below = negative;
    b.Emit("RELU", {below}, {below}, [=, t = t, n = n](const Run& r) {
      return kernels::BiasActivation(r.stream(), kernels::Act::kRelu, 0, 1, n, r.At<>(below), nullptr, r.At<>(below),
                                     t);
    });
    const std::vector<Ref> factors = {negative, alpha};
    b.Emit("multiply", factors, {y}, [=, t = t, shapes = shapes](const Run& r) {
      return kernels::Multiply(r.stream(), shapes, InputsOf(r, factors), r.At<>(y), t);
    });
    EmitAffine(-1, y, y, false);
    EmitAffine(1, positive, y, true);
    out->data = y;
  }

  void LowerBackward(bool trains) const {
    const Ref dy = out->gradient, g = b.NewLike(*out);  // g: of alpha * n
    EmitAffine(-1, dy, g, false);
    if (trains) {
      Ref wide = negative, wide_g = g;
      if (t != DType::kFloat32) {
        wide = b.NewNumbers(n, DType::kFloat32);
        wide_g = b.NewNumbers(n, DType::kFloat32);
        EmitConvert(b, {negative, t}, {wide, DType::kFloat32}, n);
        EmitConvert(b, {g, t}, {wide_g, DType::kFloat32}, n);
      }
      EmitAlphaGradient(wide, wide_g);
    }
    if (!in->needs_gradient) return;
    const Ref dn = b.NewLike(*out);
    EmitMultiplyBackward({negative, alpha}, g, 0, dn, t);
    const Builder::Sink dx = b.GradientSink(in);
    EmitReluBackward(positive, dy, dx.ref, dx.add);
    EmitReluBackward(negative, dn, dn, false);
    EmitAffine(-1, dn, dx.ref, true);
  }
};

void LowerPRelu(Builder& b, const Node& node) {
  const PRelu prelu(b, node);
  prelu.LowerForward();
  const bool trains = b.training() && !b.Frozen(node);
  if (prelu.in->needs_gradient || trains) b.Backward([=] { prelu.LowerBackward(trains); });
}

constexpr Layer kLayers[] = {
    {LayerKind::kAdd, [](Builder& b, const Node& node) { LowerSum(b, AllOf(b, node), 1, b.Out(node)); }},
    {LayerKind::kAverage,
     [](Builder& b, const Node& node) {
       LowerSum(b, AllOf(b, node), 1.0f / static_cast<float>(node.inputs.size()), b.Out(node));
     }},
    {LayerKind::kMaximum, [](Builder& b, const Node& node) { LowerExtreme(b, AllOf(b, node), false, b.Out(node)); }},
    {LayerKind::kMinimum, [](Builder& b, const Node& node) { LowerExtreme(b, AllOf(b, node), true, b.Out(node)); }},
    {LayerKind::kMultiply, LowerMultiply},
    {LayerKind::kPReLU, LowerPRelu},
    {LayerKind::kConcatenate, LowerConcatenate},
};

}  // namespace

absl::Span<const Layer> MergingLayers() { return kLayers; }

}  // namespace cairn::cudnn
