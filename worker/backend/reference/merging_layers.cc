// Layers that join several inputs.
#include <algorithm>
#include <cmath>

#include "common/model/limits.h"
#include "worker/backend/reference/reference_layer.h"

namespace cairn::reference {
namespace {

absl::Status Add(const Pass& p) {
  for (size_t k = 0; k < p.inputs(); ++k) {
    for (size_t i = 0; i < p.y().size(); ++i) p.y()[i] += p.x(k)[i];
  }
  return absl::OkStatus();
}

void AddBackward(const Pass& p) {
  for (size_t k = 0; k < p.inputs(); ++k) {
    for (size_t i = 0; i < p.dy().size(); ++i) p.dx(k)[i] += p.dy()[i];
  }
}

absl::Status Average(const Pass& p) {
  for (size_t k = 0; k < p.inputs(); ++k) {
    for (size_t i = 0; i < p.y().size(); ++i) p.y()[i] += p.x(k)[i] / static_cast<double>(p.inputs());
  }
  return absl::OkStatus();
}

void AverageBackward(const Pass& p) {
  for (size_t k = 0; k < p.inputs(); ++k) {
    for (size_t i = 0; i < p.dy().size(); ++i) p.dx(k)[i] += p.dy()[i] / static_cast<double>(p.inputs());
  }
}

absl::Status Maximum(const Pass& p) {
  for (size_t k = 0; k < p.inputs(); ++k) {
    for (size_t i = 0; i < p.y().size(); ++i) p.y()[i] = k == 0 ? p.x(k)[i] : std::max(p.y()[i], p.x(k)[i]);
  }
  return absl::OkStatus();
}

// Of equal numbers the first input's gets the gradient.
void MaximumBackward(const Pass& p) {
  for (size_t i = 0; i < p.dy().size(); ++i) {
    size_t first = 0;
    while (p.x(first)[i] != p.y()[i]) ++first;
    p.dx(first)[i] += p.dy()[i];
  }
}

absl::Status Multiply(const Pass& p) {
  for (size_t k = 0; k < p.inputs(); ++k) {
    const std::vector<int64_t> places = BroadcastPlaces(p.examples(), p.shape(k), p.node().output);
    for (size_t i = 0; i < p.y().size(); ++i) p.y()[i] = k == 0 ? p.x(k)[places[i]] : p.y()[i] * p.x(k)[places[i]];
  }
  return absl::OkStatus();
}

void MultiplyBackward(const Pass& p) {
  for (size_t k = 0; k < p.inputs(); ++k) {
    std::vector<double> product(p.dy().begin(), p.dy().end());  // with all the others
    for (size_t other = 0; other < p.inputs(); ++other) {
      if (other == k) continue;
      const std::vector<int64_t> places = BroadcastPlaces(p.examples(), p.shape(other), p.node().output);
      for (size_t i = 0; i < product.size(); ++i) product[i] *= p.x(other)[places[i]];
    }
    const std::vector<int64_t> places = BroadcastPlaces(p.examples(), p.shape(k), p.node().output);
    for (size_t i = 0; i < product.size(); ++i) p.dx(k)[places[i]] += product[i];
  }
}

// How many numbers of an input's example stay together: those along the axis and after it.
int64_t Together(const Pass& p, const Shape& shape) {
  const v1::Concatenate& join = p.node().layer.concatenate();
  const size_t first = join.has_axis() ? static_cast<size_t>(join.axis()) - 1 : shape.size() - 1;
  int64_t numbers = 1;
  for (size_t i = first; i < shape.size(); ++i) numbers *= shape[i];
  return numbers;
}

// fn(input, its number i, the output's number).
template <typename Fn>
void ForEachColumn(const Pass& p, Fn fn) {
  const int64_t all = Together(p, p.node().output);
  int64_t place = 0;  // of the input's first number
  for (size_t k = 0; k < p.inputs(); ++k) {
    const int64_t own = Together(p, p.shape(k));
    for (size_t i = 0; i < p.x(k).size(); ++i) fn(k, i, i / own * all + place + i % own);
    place += own;
  }
}

absl::Status Concatenate(const Pass& p) {
  ForEachColumn(p, [&](size_t k, size_t from, size_t to) { p.y()[to] = p.x(k)[from]; });
  return absl::OkStatus();
}

void ConcatenateBackward(const Pass& p) {
  ForEachColumn(p, [&](size_t k, size_t from, size_t to) { p.dx(k)[from] += p.dy()[to]; });
}

// An input of Dot as rows of what is summed: [examples, rows, size].
struct Rows {
  int64_t rows = 0, size = 0;
  std::vector<int64_t> places;  // in the input
  std::vector<double> lengths;  // of each row, where it is normalized; else 1
  std::vector<double> values;   // divided by it
};

Rows RowsOf(const Pass& p, size_t k) {
  const Shape& shape = p.shape(k);
  const int32_t axis = p.node().layer.dot().axes(static_cast<int>(k));
  std::vector<int32_t> order;
  for (int32_t other = 1; other <= static_cast<int32_t>(shape.size()); ++other) {
    if (other != axis) order.push_back(other);
  }
  order.push_back(axis);
  Rows r;
  r.size = shape[axis - 1];
  r.rows = NumElements(shape) / r.size;
  r.places = PermutedPlaces(p.examples(), shape, order);
  r.lengths.assign(p.examples() * r.rows, 1.0);
  for (const int64_t place : r.places) r.values.push_back(p.x(k)[place]);
  if (!p.node().layer.dot().normalize()) return r;
  for (size_t row = 0; row < r.lengths.size(); ++row) {
    double squares = 0;
    for (int64_t i = 0; i < r.size; ++i) squares += r.values[row * r.size + i] * r.values[row * r.size + i];
    r.lengths[row] = std::max(std::sqrt(squares), double{kVectorLengthMin});
    for (int64_t i = 0; i < r.size; ++i) r.values[row * r.size + i] /= r.lengths[row];
  }
  return r;
}

// fn(row of the first input, row of the second, place in the output), of all examples.
template <typename Fn>
void ForEachProduct(const Pass& p, const Rows& a, const Rows& b, Fn fn) {
  for (int64_t n = 0, to = 0; n < p.examples(); ++n) {
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t j = 0; j < b.rows; ++j) fn(n * a.rows + i, n * b.rows + j, to++);
    }
  }
}

absl::Status Dot(const Pass& p) {
  const Rows a = RowsOf(p, 0), b = RowsOf(p, 1);
  ForEachProduct(p, a, b, [&](int64_t i, int64_t j, int64_t to) {
    for (int64_t s = 0; s < a.size; ++s) p.y()[to] += a.values[i * a.size + s] * b.values[j * a.size + s];
  });
  return absl::OkStatus();
}

// Adds what a gradient to the rows' values is to the input. A row that was too short was divided by a constant.
void AddToInput(const Pass& p, size_t k, const Rows& r, const std::vector<double>& gradient) {
  const bool normalized = p.node().layer.dot().normalize();
  for (size_t row = 0; row < r.lengths.size(); ++row) {
    double along = 0;
    for (int64_t s = 0; normalized && r.lengths[row] > kVectorLengthMin && s < r.size; ++s) {
      along += gradient[row * r.size + s] * r.values[row * r.size + s];
    }
    for (int64_t s = 0; s < r.size; ++s) {
      const size_t i = row * r.size + s;
      p.dx(k)[r.places[i]] += (gradient[i] - along * r.values[i]) / r.lengths[row];
    }
  }
}

void DotBackward(const Pass& p) {
  const Rows a = RowsOf(p, 0), b = RowsOf(p, 1);
  std::vector<double> da(a.values.size(), 0.0), db(b.values.size(), 0.0);
  ForEachProduct(p, a, b, [&](int64_t i, int64_t j, int64_t from) {
    for (int64_t s = 0; s < a.size; ++s) {
      da[i * a.size + s] += p.dy()[from] * b.values[j * a.size + s];
      db[j * a.size + s] += p.dy()[from] * a.values[i * a.size + s];
    }
  });
  AddToInput(p, 0, a, da);
  AddToInput(p, 1, b, db);
}

constexpr Layer kLayers[] = {
    {LayerKind::kAdd, Add, AddBackward},
    {LayerKind::kAverage, Average, AverageBackward},
    {LayerKind::kMaximum, Maximum, MaximumBackward},
    {LayerKind::kMultiply, Multiply, MultiplyBackward},
    {LayerKind::kDot, Dot, DotBackward},
    {LayerKind::kConcatenate, Concatenate, ConcatenateBackward},
};

}  // namespace

absl::Span<const Layer> MergingLayers() { return kLayers; }

}  // namespace cairn::reference
