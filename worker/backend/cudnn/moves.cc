// Layers that move numbers or choose among them: Stack, Pad, Tile, Take, OneHot, TopK.
#include "worker/backend/cudnn/kernels/moves.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/tensor_places.h"
#include "worker/backend/cudnn/axes.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"

namespace cairn::cudnn {
namespace {

const char* Adds(bool add) { return add ? " add" : ""; }

std::vector<Ref> With(std::vector<Ref> reads, const Builder::Sink& sink) {
  if (sink.add) reads.push_back(sink.ref);
  return reads;
}

void EmitZeros(Builder& b, const Ref& to, int64_t numbers, DType type) {
  b.Emit("zeros", {}, {to}, [=](const Run& r) { return kernels::Fill(r.stream(), numbers, 0, r.At<>(to), type); });
}

// ---- Stack ----

// What is joined are columns: all numbers behind a place of the axes before the new one.
void LowerStack(Builder& b, const Node& node) {
  Value* const out = b.Out(node);
  const DType t = out->type;
  int64_t column = 1;
  for (size_t i = static_cast<size_t>(node.layer.stack().axis()); i < node.output.size(); ++i) column *= node.output[i];
  const int64_t width = column * static_cast<int64_t>(node.inputs.size()), rows = out->numbers / width;
  const Ref y = b.NewLike(*out);
  std::vector<Value*> values;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    values.push_back(b.In(node, k));
    const Ref x = b.Read(*values.back(), t);
    b.Emit(absl::StrCat("stack ", k), {x}, {y}, [=, begin = static_cast<int64_t>(k) * column](const Run& r) {
      return kernels::CopyColumns(r.stream(), rows, column, r.At<>(x), column, 0, r.At<>(y), width, begin, t, false);
    });
  }
  out->data = y;
  if (!out->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    for (size_t k = 0; k < values.size(); ++k) {
      if (!values[k]->needs_gradient) continue;
      const Builder::Sink dx = b.GradientSink(values[k]);
      b.Emit(absl::StrCat("stack backward ", k, Adds(dx.add)), With({dy}, dx), {dx.ref},
             [=, begin = static_cast<int64_t>(k) * column](const Run& r) {
               return kernels::CopyColumns(r.stream(), rows, column, r.At<>(dy), width, begin, r.At<>(dx.ref), column,
                                           0, t, dx.add);
             });
    }
  });
}

// ---- Pad, Tile, Take ----

// Whole numbers among the constants, which are bits of 32 each.
Ref ConstantOf(Builder& b, const std::vector<int32_t>& numbers) {
  static_assert(sizeof(float) == sizeof(int32_t));
  std::vector<float> bits(numbers.size());
  std::memcpy(bits.data(), numbers.data(), numbers.size() * sizeof(float));
  return b.Constant(bits);
}

// The tables of kernels::Moves and kernels::Readers.
struct MoveTables {
  kernels::Moves moves;
  kernels::Readers readers;
  std::vector<int32_t> places, read_by;

  MoveTables(const Node& node, const Shape& input, int64_t examples) {
    const std::vector<std::vector<int64_t>> all = PlacesOf(node, input);
    moves.from = moves.to = DimsOf(examples, input);
    for (size_t axis = 0; axis < input.size(); ++axis) {
      const std::vector<int64_t>& own = all[axis];
      const size_t d = AxisPlace(input.size(), axis);
      moves.to.of[d] = static_cast<int64_t>(own.size());
      bool same = moves.to.of[d] == moves.from.of[d];
      for (size_t i = 0; i < own.size() && same; ++i) same = own[i] == static_cast<int64_t>(i);
      if (!same) AddAxis(own, d);
    }
  }

 private:
  void AddAxis(const std::vector<int64_t>& own, size_t d) {
    const auto size = static_cast<size_t>(moves.from.of[d]);
    moves.begin[d] = static_cast<int64_t>(places.size());
    places.insert(places.end(), own.begin(), own.end());
    const size_t first = read_by.size();
    readers.begin[d] = static_cast<int64_t>(first);
    std::vector<std::vector<int32_t>> by_place(size);
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i] >= 0) by_place[static_cast<size_t>(own[i])].push_back(static_cast<int32_t>(i));
    }
    read_by.resize(first + size + 1);
    for (size_t place = 0; place < size; ++place) {
      read_by[first + place] = static_cast<int32_t>(read_by.size());
      read_by.insert(read_by.end(), by_place[place].begin(), by_place[place].end());
    }
    read_by[first + size] = static_cast<int32_t>(read_by.size());
  }
};

void LowerMove(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType t = out->type;
  const MoveTables tables(node, b.ShapeOf(node), b.examples());
  const float constant = node.layer.pad().constant_value();
  const std::string name = LayerTypeName(node.kind);
  const kernels::Moves moves = tables.moves;
  const Ref x = b.Read(*in, t), y = b.NewLike(*out), places = ConstantOf(b, tables.places);
  out->data = y;
  b.Emit(name, {x, places}, {y}, [=](const Run& r) {
    kernels::Moves m = moves;
    m.places = r.At<int32_t>(places);
    return kernels::Move(r.stream(), m, constant, r.At<>(x), r.At<>(y), t);
  });
  if (!in->needs_gradient) return;
  const Ref read_by = ConstantOf(b, tables.read_by);
  b.Backward([=, &b, readers = tables.readers] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    b.Emit(absl::StrCat(name, " backward", Adds(dx.add)), With({dy, read_by}, dx), {dx.ref}, [=](const Run& r) {
      kernels::Readers with = readers;
      with.readers = r.At<int32_t>(read_by);
      return kernels::MoveBackward(r.stream(), moves, with, r.At<>(dy), r.At<>(dx.ref), t, dx.add);
    });
  });
}

// ---- choices ----

void LowerOneHot(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType t = out->type, x_type = in->type;
  const auto axis = static_cast<size_t>(node.layer.one_hot().axis()) - 1;
  kernels::Classes classes;
  classes.classes = node.output[axis];
  for (size_t i = axis + 1; i < node.output.size(); ++i) classes.inner *= node.output[i];
  classes.outer = out->numbers / (classes.classes * classes.inner);
  const Ref x = in->data, y = b.NewLike(*out);
  out->data = y;
  b.Emit(absl::StrCat("one hot ", classes.classes), {x}, {y},
         [=](const Run& r) { return kernels::OneHot(r.stream(), classes, r.At<>(x), x_type, r.At<>(y), t); });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {  // classes have no gradient
    const Builder::Sink dx = b.GradientSink(in);
    if (!dx.add) EmitZeros(b, dx.ref, in->numbers, in->type);
  });
}

void LowerTopK(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType t = out->type, x_type = in->type;
  kernels::Largest largest;
  largest.size = b.ShapeOf(node).back();
  largest.rows = in->numbers / largest.size;
  largest.k = node.layer.top_k().k();
  largest.indices = node.layer.top_k().indices();
  const Ref x = in->data, y = b.NewLike(*out), places = b.New(out->numbers * static_cast<int64_t>(sizeof(int32_t)));
  out->data = y;
  b.Emit(absl::StrCat("top ", largest.k), {x}, {y, places}, [=](const Run& r) {
    return kernels::TopK(r.stream(), largest, r.At<>(x), x_type, r.At<>(y), t, r.At<int32_t>(places));
  });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    if (!dx.add) EmitZeros(b, dx.ref, in->numbers, x_type);
    if (largest.indices) return;
    b.Emit("top backward add", {dy, places, dx.ref}, {dx.ref}, [=](const Run& r) {
      return kernels::TopKBackward(r.stream(), largest, r.At<int32_t>(places), r.At<>(dy), t, r.At<>(dx.ref), x_type);
    });
  });
}

constexpr Layer kLayers[] = {
    {LayerKind::kStack, LowerStack}, {LayerKind::kPad, LowerMove},      {LayerKind::kTile, LowerMove},
    {LayerKind::kTake, LowerMove},   {LayerKind::kOneHot, LowerOneHot}, {LayerKind::kTopK, LowerTopK},
};

}  // namespace

absl::Span<const Layer> MoveLayers() { return kLayers; }

}  // namespace cairn::cudnn
