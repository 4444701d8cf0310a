// The tensor functions that move numbers (Pad, Tile, Take, Stack, OneHot, TopK), and Einsum.
//
// Included by tensor_function.cc alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/model/tensor_places.h"
#include "worker/backend/einsum.h"
#include "worker/backend/tensor_function.h"

namespace cairn {

// Pad, Tile, Take: each number of the output is one of the input, or a constant.
template <typename T>
class Moved : public TensorFunction<T> {
 public:
  Moved(const Node& node, const Shape& input, int64_t examples)
      : constant_(static_cast<T>(node.layer.pad().constant_value())),
        examples_(examples),
        example_(NumElements(input)),
        from_({0}) {
    const std::vector<std::vector<int64_t>> places = PlacesOf(node, input);
    int64_t stride = example_;
    for (size_t axis = 0; axis < input.size(); ++axis) {
      stride /= input[axis];
      std::vector<int64_t> next;
      next.reserve(from_.size() * places[axis].size());
      for (const int64_t from : from_) {
        for (const int64_t place : places[axis]) next.push_back(from < 0 || place < 0 ? -1 : from + place * stride);
      }
      from_ = std::move(next);
    }
  }

  void Forward(absl::Span<const T* const> x, T* y) const override {
    for (int64_t n = 0; n < examples_; ++n) {
      for (const int64_t from : from_) *y++ = from < 0 ? constant_ : x[0][n * example_ + from];
    }
  }

  void Backward(absl::Span<const T* const>, const T*, const T* dy, size_t, double* dx) const override {
    for (int64_t n = 0; n < examples_; ++n) {
      for (const int64_t from : from_) {
        if (from >= 0) dx[n * example_ + from] += *dy;
        ++dy;
      }
    }
  }

 private:
  const T constant_;
  const int64_t examples_, example_;
  std::vector<int64_t> from_;  // by number of an example of the output: the input's, or -1
};

// Joins tensors along a new axis.
template <typename T>
class Stacked : public TensorFunction<T> {
 public:
  // axis: from 1.
  Stacked(const Shape& input, size_t inputs, int axis, int64_t examples) : inputs_(static_cast<int64_t>(inputs)) {
    for (size_t i = static_cast<size_t>(axis) - 1; i < input.size(); ++i) row_ *= input[i];
    rows_ = examples * NumElements(input) / row_;
  }

  void Forward(absl::Span<const T* const> x, T* y) const override {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t k = 0; k < inputs_; ++k) std::copy_n(x[static_cast<size_t>(k)] + r * row_, row_, y + Begin(r, k));
    }
  }

  void Backward(absl::Span<const T* const>, const T*, const T* dy, size_t which, double* dx) const override {
    for (int64_t r = 0; r < rows_; ++r) {
      const T* const from = dy + Begin(r, static_cast<int64_t>(which));
      for (int64_t i = 0; i < row_; ++i) dx[r * row_ + i] += from[i];
    }
  }

 private:
  int64_t Begin(int64_t row, int64_t input) const { return (row * inputs_ + input) * row_; }

  const int64_t inputs_;
  int64_t row_ = 1, rows_ = 0;
};

// 1 at the place of each number, which is cut to a whole one; 0 elsewhere.
template <typename T>
class OneHotted : public TensorFunction<T> {
 public:
  OneHotted(const v1::OneHot& one_hot, const Shape& input, int64_t examples)
      : classes_(one_hot.num_classes()), numbers_(examples * NumElements(input)) {
    for (size_t i = static_cast<size_t>(one_hot.axis()) - 1; i < input.size(); ++i) step_ *= input[i];
  }

  void Forward(absl::Span<const T* const> x, T* y) const override {
    std::fill_n(y, numbers_ * classes_, T(0));
    for (int64_t i = 0; i < numbers_; ++i) {
      const T number = std::trunc(x[0][i]);
      if (!(number >= 0 && number < static_cast<T>(classes_))) continue;
      y[(i / step_ * classes_ + static_cast<int64_t>(number)) * step_ + i % step_] = 1;
    }
  }

  void Backward(absl::Span<const T* const>, const T*, const T*, size_t, double*) const override {}

 private:
  const int64_t classes_, numbers_;
  int64_t step_ = 1;
};

// The k largest numbers of each row, or their places.
template <typename T>
class Largest : public TensorFunction<T> {
 public:
  Largest(const v1::TopK& top_k, const Shape& input, int64_t examples)
      : k_(top_k.k()),
        indices_(top_k.indices()),
        size_(input.back()),
        rows_(examples * NumElements(input) / input.back()) {}

  void Forward(absl::Span<const T* const> x, T* y) const override {
    ForEachRow(x[0], [&](const T* row, const std::vector<int64_t>& places, int64_t begin) {
      for (int64_t i = 0; i < k_; ++i) {
        const int64_t place = places[static_cast<size_t>(i)];
        y[begin + i] = indices_ ? static_cast<T>(place) : row[place];
      }
    });
  }

  void Backward(absl::Span<const T* const> x, const T*, const T* dy, size_t, double* dx) const override {
    if (indices_) return;
    ForEachRow(x[0], [&](const T* row, const std::vector<int64_t>& places, int64_t begin) {
      double* const to = dx + (row - x[0]);
      for (int64_t i = 0; i < k_; ++i) to[places[static_cast<size_t>(i)]] += dy[begin + i];
    });
  }

 private:
  // Calls fn(row, the places of the row's k largest numbers at the front of a list, the first of k places in y).
  template <typename Fn>
  void ForEachRow(const T* x, Fn fn) const {
    std::vector<int64_t> places(static_cast<size_t>(size_));
    for (int64_t r = 0; r < rows_; ++r) {
      const T* const row = x + r * size_;
      std::iota(places.begin(), places.end(), 0);
      // A strict order whatever the numbers are.
      const auto before = [row](int64_t a, int64_t b) {
        const bool no_number = std::isnan(row[a]);
        if (no_number != std::isnan(row[b])) return no_number;
        if (!no_number && row[a] != row[b]) return row[a] > row[b];
        return a < b;
      };
      std::partial_sort(places.begin(), places.begin() + k_, places.end(), before);
      fn(row, places, r * k_);
    }
  }

  const int64_t k_;
  const bool indices_;
  const int64_t size_, rows_;
};

// y[g][r][c] = sum over i of x[g][r][i] * kernel[g][i][c], of each example.
template <typename T>
class SumOfProducts : public TensorFunction<T> {
 public:
  SumOfProducts(const Node& node, const std::vector<Shape>& inputs, int64_t examples)
      : places_(EinsumPlacesOfTwo(node, inputs[0], inputs[1])),
        examples_(examples),
        x_(NumElements(inputs[0])),
        kernel_(NumElements(inputs[1])),
        y_(NumElements(node.output)) {}

  void Forward(absl::Span<const T* const> x, T* y) const override {
    ForEachRow([&](const Row& row) {
      for (int64_t c = 0; c < places_.columns; ++c) {
        double sum = 0;
        for (int64_t i = 0; i < places_.summed; ++i) sum += double{x[0][row.X(i)]} * x[1][row.Kernel(i, c)];
        y[row.Y(c)] = static_cast<T>(sum);
      }
    });
  }

  void Backward(absl::Span<const T* const> x, const T*, const T* dy, size_t which, double* dx) const override {
    ForEachRow([&](const Row& row) {
      for (int64_t i = 0; i < places_.summed; ++i) {
        for (int64_t c = 0; c < places_.columns; ++c) {
          const double gradient = dy[row.Y(c)];
          if (which == 0) {
            dx[row.X(i)] += gradient * x[1][row.Kernel(i, c)];
          } else {
            dx[row.Kernel(i, c)] += gradient * x[0][row.X(i)];
          }
        }
      }
    });
  }

 private:
  // A row of the result: where its numbers, and those that they are made of, are in the tensors.
  struct Row {
    const EinsumPlaces& p;
    int64_t shared, row, x_begin, kernel_begin, y_begin;

    int64_t X(int64_t i) const { return x_begin + p.x[At((shared * p.rows + row) * p.summed + i)]; }
    int64_t Kernel(int64_t i, int64_t c) const {
      return kernel_begin + p.kernel[At((shared * p.summed + i) * p.columns + c)];
    }
    int64_t Y(int64_t c) const { return y_begin + p.y[At((shared * p.rows + row) * p.columns + c)]; }
    static size_t At(int64_t place) { return static_cast<size_t>(place); }
  };

  template <typename Fn>
  void ForEachRow(Fn fn) const {
    for (int64_t n = 0; n < examples_; ++n) {
      for (int64_t shared = 0; shared < places_.shared; ++shared) {
        for (int64_t row = 0; row < places_.rows; ++row) {
          fn(Row{places_, shared, row, n * x_, n * kernel_, n * y_});
        }
      }
    }
  }

  const EinsumPlaces places_;
  const int64_t examples_, x_, kernel_, y_;
};

}  // namespace cairn
