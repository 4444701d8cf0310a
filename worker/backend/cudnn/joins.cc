// Layers with several inputs. A launch takes kernels::kJoinMax of them; longer ones are chained through values between.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {
namespace {

constexpr size_t kMax = kernels::kJoinMax;

kernels::Inputs InputsOf(const Run& r, const std::vector<Ref>& refs) {
  kernels::Inputs in;
  for (const Ref& ref : refs) in.x[in.count++] = r.At<>(ref);
  return in;
}

}  // namespace

void Builder::LowerSum(std::vector<Value*> in, float factor, Value* out) {
  const DType t = out->type;
  const int64_t n = out->numbers;
  if (in.size() > kMax) {
    Value* first = NewValue(n, out->needs_gradient, t);
    LowerSum({in.begin(), in.begin() + kMax}, 1, first);
    in.erase(in.begin(), in.begin() + kMax);
    in.insert(in.begin(), first);
    return LowerSum(std::move(in), factor, out);
  }
  std::vector<Ref> x;
  for (const Value* v : in) x.push_back(Read(*v, t));
  const Ref y = NewLike(*out);
  out->data = y;
  Emit(factor == 1 ? "sum" : absl::StrCat("sum * ", factor), x, {y},
       [=](const Run& r) { return kernels::Sum(r.stream(), n, InputsOf(r, x), factor, r.At<>(y), t); });
  if (!out->needs_gradient) return;
  Backward([=, this] {
    const Ref dy = out->gradient;
    for (Value* v : in) {
      if (!v->needs_gradient) continue;
      const Sink dx = GradientSink(v);
      std::vector<Ref> reads = {dy};
      if (dx.add) reads.push_back(dx.ref);
      Emit(absl::StrCat("copy * ", factor, dx.add ? " add" : ""), std::move(reads), {dx.ref}, [=](const Run& r) {
        return kernels::Affine(r.stream(), n, factor, 0, r.At<>(dy), t, r.At<>(dx.ref), t, dx.add);
      });
    }
  });
}

void Builder::LowerMaximum(std::vector<Value*> in, Value* out) {
  const DType t = out->type;
  const int64_t n = out->numbers;
  if (in.size() > kMax) {
    Value* first = NewValue(n, out->needs_gradient, t);
    LowerMaximum({in.begin(), in.begin() + kMax}, first);
    in.erase(in.begin(), in.begin() + kMax);
    in.insert(in.begin(), first);
    return LowerMaximum(std::move(in), out);
  }
  std::vector<Ref> x;
  for (const Value* v : in) x.push_back(Read(*v, t));
  const Ref y = NewLike(*out);
  out->data = y;
  Emit("maximum", x, {y}, [=](const Run& r) { return kernels::Maximum(r.stream(), n, InputsOf(r, x), r.At<>(y), t); });
  if (!out->needs_gradient) return;
  Backward([=, this] {
    const Ref dy = out->gradient;
    for (int which = 0; which < static_cast<int>(in.size()); ++which) {
      if (!in[which]->needs_gradient) continue;
      const Sink dx = GradientSink(in[which]);
      std::vector<Ref> reads = x;
      reads.push_back(dy);
      if (dx.add) reads.push_back(dx.ref);
      Emit(absl::StrCat("maximum backward ", which, dx.add ? " add" : ""), std::move(reads), {dx.ref},
           [=](const Run& r) {
             return kernels::MaximumBackward(r.stream(), n, InputsOf(r, x), which, r.At<>(dy), r.At<>(dx.ref), t,
                                             dx.add);
           });
    }
  });
}

// An axis of size 1 is repeated, as Keras broadcasts; shapes are aligned at their last axis.
void Builder::LowerMultiply(const Node& node, Value* out) {
  struct Factor {
    Value* value = nullptr;
    Shape shape;
  };
  const DType t = out->type;
  std::vector<Factor> all;
  for (int input : node.inputs) all.push_back({node_values_[input], graph_.nodes()[input].output});
  const Shape& shape = node.output;
  const int64_t images = examples();
  const auto lower = [&, this](std::vector<Factor> in, Value* to) {
    kernels::Broadcast b;
    b.dims[0] = images;
    for (size_t i = 0; i < shape.size(); ++i) b.dims[4 - shape.size() + i] = shape[i];
    std::vector<Ref> x;
    std::vector<Value*> values;
    for (size_t k = 0; k < in.size(); ++k) {
      int64_t stride = 1;
      for (size_t i = in[k].shape.size(), axis = 3; i-- > 0; --axis) {
        if (in[k].shape[i] != 1) b.strides[k][axis] = stride;
        stride *= in[k].shape[i];
      }
      b.strides[k][0] = stride;
      x.push_back(Read(*in[k].value, t));
      values.push_back(in[k].value);
    }
    const Ref y = NewLike(*to);
    to->data = y;
    Emit("multiply", x, {y},
         [=](const Run& r) { return kernels::Multiply(r.stream(), b, InputsOf(r, x), r.At<>(y), t); });
    if (!to->needs_gradient) return;
    Backward([=, this] {
      const Ref dy = to->gradient;
      for (int which = 0; which < static_cast<int>(values.size()); ++which) {
        if (!values[which]->needs_gradient) continue;
        const Sink dx = GradientSink(values[which]);
        std::vector<Ref> reads = x;
        reads.push_back(dy);
        if (dx.add) reads.push_back(dx.ref);
        Emit(absl::StrCat("multiply backward ", which, dx.add ? " add" : ""), std::move(reads), {dx.ref},
             [=](const Run& r) {
               return kernels::MultiplyBackward(r.stream(), b, InputsOf(r, x), which, r.At<>(dy), r.At<>(dx.ref), t,
                                                dx.add);
             });
      }
    });
  };
  while (all.size() > kMax) {
    Value* first = NewValue(out->numbers, out->needs_gradient, t);
    lower({all.begin(), all.begin() + kMax}, first);
    all.erase(all.begin(), all.begin() + kMax);
    all.insert(all.begin(), {first, shape});
  }
  lower(std::move(all), out);
}

void Builder::LowerConcatenate(const Node& node, Value* out) {
  const DType t = out->type;
  const int64_t width = node.output.back(), rows = out->numbers / width;
  struct Part {
    Value* value = nullptr;
    int64_t begin = 0, width = 0;
  };
  std::vector<Part> parts;
  const Ref y = NewLike(*out);
  int64_t begin = 0;
  for (int input : node.inputs) {
    const Part part{node_values_[input], begin, graph_.nodes()[input].output.back()};
    const Ref x = Read(*part.value, t);
    Emit(absl::StrCat("columns to ", begin), {x}, {y}, [=](const Run& r) {
      return kernels::CopyColumns(r.stream(), rows, part.width, r.At<>(x), part.width, 0, r.At<>(y), width, part.begin,
                                  t, false);
    });
    begin += part.width;
    parts.push_back(part);
  }
  out->data = y;
  if (!out->needs_gradient) return;
  Backward([=, this] {
    const Ref dy = out->gradient;
    for (const Part& part : parts) {
      if (!part.value->needs_gradient) continue;
      const Sink dx = GradientSink(part.value);
      std::vector<Ref> reads = {dy};
      if (dx.add) reads.push_back(dx.ref);
      Emit(absl::StrCat("columns from ", part.begin, dx.add ? " add" : ""), std::move(reads), {dx.ref},
           [=](const Run& r) {
             return kernels::CopyColumns(r.stream(), rows, part.width, r.At<>(dy), width, part.begin, r.At<>(dx.ref),
                                         part.width, 0, t, dx.add);
           });
    }
  });
}

}  // namespace cairn::cudnn
