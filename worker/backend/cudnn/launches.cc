#include "worker/backend/cudnn/launches.h"

#include "absl/strings/str_cat.h"

namespace cairn::cudnn {

Ref KeyOf(Builder& builder) {
  Builder::Outside* const outside = builder.outside();
  if (outside == nullptr) return Ref{Ref::kKey};
  if (outside->key) return outside->key;
  const Ref from = KeyOf(*outside->builder), to = builder.New(sizeof(kernels::StepKey));
  builder.Emit("key within", {from}, {to}, [=, node = outside->node->id](const Run& r) {
    return kernels::KeyWithin(r.stream(), r.At<kernels::StepKey>(from), node, r.At<kernels::StepKey>(to));
  });
  return outside->key = to;
}

int64_t BatchExamples(Builder& builder) {
  Builder::Outside* const outside = builder.outside();
  return outside == nullptr ? builder.examples() : BatchExamples(*outside->builder);
}

void EmitConvert(Builder& builder, const TypedRef& from, const TypedRef& to, int64_t n, bool add) {
  std::vector<Ref> reads = {from.ref};
  if (add) reads.push_back(to.ref);
  builder.Emit(absl::StrCat(add ? "add " : "copy ", Name(from.type), " ", Name(to.type)), std::move(reads), {to.ref},
               [=](const Run& r) {
                 return kernels::Affine(r.stream(), n, 1, 0, r.At<>(from.ref), from.type, r.At<>(to.ref), to.type, add);
               });
}

namespace {

struct ProductOperands {
  Ref a, b, bias;
};

void EmitProductOf(Builder& builder, Product p, const ProductOperands& in, const Ref& c, bool add) {
  const Ref a = in.a, b = in.b, bias = in.bias;
  p.beta = add ? 1.0f : 0.0f;
  p.bias = static_cast<bool>(bias);
  absl::StatusOr<int64_t> bytes = builder.machine().Prepare(p);
  if (!bytes.ok()) return builder.Fail(bytes.status());
  const Ref workspace = *bytes > 0 ? builder.New(*bytes) : Ref{};
  std::vector<Ref> reads = {a, b, bias};
  if (add) reads.push_back(c);
  builder.EmitChecked(
      absl::StrCat("product ", ToString(p)), std::move(reads), {c, workspace},
      [=](const Run& r) {
        return r.machine.Multiply(p, r.At<>(a), r.At<>(b), r.At<>(bias), r.At<>(c), r.At<>(workspace));
      },
      2.0 * static_cast<double>(p.batch * p.m) * static_cast<double>(p.n * p.k));
}

}  // namespace

void EmitProduct(Builder& builder, const Product& p, const Ref& a, const Ref& b, const Ref& c, bool add) {
  EmitProductOf(builder, p, {.a = a, .b = b, .bias = {}}, c, add);
}

void EmitBiasedProduct(Builder& builder, const Product& p, const Ref& a, const Ref& b, const Ref& bias, const Ref& c) {
  EmitProductOf(builder, p, {.a = a, .b = b, .bias = bias}, c, /*add=*/false);
}

// ---- activations ----

namespace {

const char* RowsName(const Activation& f) {
  return f.kind == v1::LOG_SOFTMAX ? "log softmax" : f.kind == v1::SPARSEMAX ? "sparsemax" : "softmax";
}

}  // namespace

void EmitRows(Builder& builder, const Activation& f, const RowShape& shape, const Ref& x, const Ref& to) {
  builder.Emit(RowsName(f), {x}, {to}, [=](const Run& r) {
    switch (f.kind) {
      case v1::LOG_SOFTMAX:
        return kernels::LogSoftmax(r.stream(), shape.rows, shape.columns, r.At<>(x), r.At<>(to), shape.type);
      case v1::SPARSEMAX:
        return kernels::Sparsemax(r.stream(), shape.rows, shape.columns, r.At<>(x), r.At<>(to), shape.type);
      default: return kernels::Softmax(r.stream(), shape.rows, shape.columns, 0, r.At<>(x), r.At<>(to), shape.type);
    }
  });
}

void EmitRowsBackward(Builder& builder, const Activation& f, const RowShape& shape, const Ref& y, const Ref& dy,
                      const Builder::Sink& to) {
  std::vector<Ref> reads = {y, dy};
  if (to.add) reads.push_back(to.ref);
  builder.Emit(
      absl::StrCat(RowsName(f), " backward", to.add ? " add" : ""), std::move(reads), {to.ref}, [=](const Run& r) {
        const auto launch = f.kind == v1::LOG_SOFTMAX ? kernels::LogSoftmaxBackward
                            : f.kind == v1::SPARSEMAX ? kernels::SparsemaxBackward
                                                      : kernels::SoftmaxBackward;
        return launch(r.stream(), shape.rows, shape.columns, r.At<>(y), r.At<>(dy), r.At<>(to.ref), shape.type, to.add);
      });
}

Ref EmitActivation(Builder& builder, const Activation& f, const Ref& y, const Ref& bias, int64_t columns, Value* out) {
  const int64_t rows = out->numbers / columns;
  const DType type = out->type;
  const auto emit = [&](const Activation& g, const Ref& from, const Ref& with, const Ref& to) {
    if (g.linear() && !with) return;
    builder.Emit(absl::StrCat(with ? "bias " : "", v1::Activation_Name(g.kind)), {from, with}, {to}, [=](const Run& r) {
      // One long row where there is no bias.
      return with ? kernels::BiasActivation(r.stream(), g.act(), g.alpha, rows, columns, r.At<>(from),
                                            r.At<float>(with), r.At<>(to), type)
                  : kernels::BiasActivation(r.stream(), g.act(), g.alpha, 1, rows * columns, r.At<>(from), nullptr,
                                            r.At<>(to), type);
    });
  };
  out->data = y;
  if (f.of_rows()) {
    emit({}, y, bias, y);
    EmitRows(builder, f, {rows, columns, type}, y, y);
    return {};
  }
  if (!builder.training() || !f.needs_input()) {
    emit(f, y, bias, y);
    return {};
  }
  emit({}, y, bias, y);
  out->data = builder.NewLike(*out);
  emit(f, y, {}, out->data);
  return y;
}

void EmitActivationBackward(Builder& builder, const Activation& f, const Ref& before, int64_t columns, Value* out) {
  if (f.linear()) return;
  const Ref g = out->gradient, y = before ? Ref{} : out->data;
  const int64_t n = out->numbers;
  const DType type = out->type;
  if (f.of_rows()) return EmitRowsBackward(builder, f, {n / columns, columns, type}, y, g, {g});
  builder.Emit(absl::StrCat(v1::Activation_Name(f.kind), " backward"), {before, y, g}, {g}, [=](const Run& r) {
    return kernels::ActivationBackward(r.stream(), f.act(), f.alpha, n, r.At<>(before), r.At<>(y), r.At<>(g), r.At<>(g),
                                       type, false);
  });
}

Permutation PermutationOf(int64_t examples, const Shape& from, absl::Span<const int32_t> order) {
  const size_t rank = from.size(), lead = kernels::kAxesMax - rank;
  Permutation p;
  p.forward.dims[0] = p.backward.dims[0] = examples;
  p.forward.strides[0] = p.backward.strides[0] = NumElements(from);
  Shape to;
  for (const int32_t axis : order) to.push_back(from[static_cast<size_t>(axis) - 1]);
  const auto stride_of = [&](const Shape& shape, size_t axis) {
    int64_t stride = 1;
    for (size_t i = axis + 1; i < rank; ++i) stride *= shape[i];
    return stride;
  };
  for (size_t axis = 0; axis < rank; ++axis) {
    const size_t other = static_cast<size_t>(order[axis]) - 1;
    p.forward.dims[lead + axis] = to[axis];
    p.forward.strides[lead + axis] = stride_of(from, other);
    p.backward.dims[lead + other] = from[other];
    p.backward.strides[lead + other] = stride_of(to, axis);
  }
  return p;
}

void EmitPermute(Builder& builder, const Permutation::Axes& axes, const Ref& from, const Ref& to, DType t, bool add) {
  std::vector<Ref> reads = {from};
  if (add) reads.push_back(to);
  builder.Emit(add ? "permute add" : "permute", std::move(reads), {to}, [=](const Run& r) {
    return kernels::Permute(r.stream(), axes.dims, axes.strides, r.At<>(from), r.At<>(to), t, add);
  });
}

kernels::Window WithinPlanes(const kernels::Window& w) {
  kernels::Window planes = w;
  planes.examples = w.examples * w.depth.in;
  planes.depth = {};
  return planes;
}

kernels::Window OfPlanes(const kernels::Window& w) {
  const kernels::Depth& d = w.depth;
  const int64_t plane = w.out[1] * w.out[2];
  kernels::Window planes;
  planes.examples = w.examples;
  planes.in[0] = d.in;
  planes.out[0] = d.out;
  planes.in[1] = planes.out[1] = w.out[0];
  planes.in[2] = planes.out[2] = plane;
  planes.kernel[0] = d.kernel;
  planes.strides[0] = d.stride;
  planes.dilation[0] = d.dilation;
  planes.pad[0] = d.pad;
  return planes;
}

void EmitPad(Builder& builder, const kernels::Window& w, const Ref& from, const Ref& to, DType type) {
  const auto emit = [&](const kernels::Window& window, const Ref& x, const Ref& y) {
    builder.Emit("pad", {x}, {y},
                 [=](const Run& r) { return kernels::Pad(r.stream(), window, r.At<>(x), r.At<>(y), type); });
  };
  if (w.depth.out == 1) return emit(w, from, to);
  const kernels::Window within = WithinPlanes(w);
  const Ref planes = builder.NewNumbers(within.examples * w.out[0] * w.out[1] * w.out[2], type);
  emit(within, from, planes);
  emit(OfPlanes(w), planes, to);
}

void EmitCrop(Builder& builder, const kernels::Window& w, const Ref& from, const Ref& to, DType type, bool add) {
  const auto emit = [&](const kernels::Window& window, const Ref& x, const Ref& y, bool adds) {
    std::vector<Ref> reads = {x};
    if (adds) reads.push_back(y);
    builder.Emit(adds ? "crop add" : "crop", std::move(reads), {y},
                 [=](const Run& r) { return kernels::Crop(r.stream(), window, r.At<>(x), r.At<>(y), type, adds); });
  };
  if (w.depth.out == 1) return emit(w, from, to, add);
  const kernels::Window within = WithinPlanes(w);
  const Ref planes = builder.NewNumbers(within.examples * w.out[0] * w.out[1] * w.out[2], type);
  emit(OfPlanes(w), from, planes, false);
  emit(within, planes, to, add);
}

void EmitColumnSums(Builder& builder, const Ref& x, int64_t rows, int64_t columns, const Ref& sums, DType type) {
  const Ref scratch = builder.Scratch(kernels::ColumnSumsScratch(rows, columns));
  builder.Emit(absl::StrCat("column sums ", rows, "x", columns), {x}, {sums, scratch}, [=](const Run& r) {
    return kernels::ColumnSums(r.stream(), rows, columns, r.At<>(x), r.At<float>(sums), r.At<float>(scratch), type);
  });
}

}  // namespace cairn::cudnn
