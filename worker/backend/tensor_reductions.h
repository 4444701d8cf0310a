// The tensor functions that work along axes: Reduce, and softmax, normalization and running sums along one axis.
//
// Included by tensor_function.cc alone. Sums are float64, in the order of the numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/backend/tensor_function.h"

namespace cairn {

// The least length by which a vector is divided: the square root of tf.math.l2_normalize's epsilon.
inline constexpr double kNormalizedLengthMin = 1e-6;

template <typename T>
class Reduction : public TensorFunction<T> {
 public:
  // reduce: its axes count from 1 and ascend.
  Reduction(const v1::Reduce& reduce, const Shape& input, int64_t examples)
      : kind_(reduce.kind()), examples_(examples), example_(NumElements(input)) {
    std::vector<int64_t> kept = {0}, reduced = {0};
    int64_t stride = example_;
    for (size_t i = 0; i < input.size(); ++i) {
      stride /= input[i];
      const bool reduces = std::count(reduce.axis().begin(), reduce.axis().end(), static_cast<int>(i) + 1) > 0;
      std::vector<int64_t>& places = reduces ? reduced : kept;
      std::vector<int64_t> next;
      for (const int64_t place : places) {
        for (int64_t at = 0; at < input[i]; ++at) next.push_back(place + at * stride);
      }
      places = std::move(next);
    }
    kept_ = std::move(kept);
    reduced_ = std::move(reduced);
  }

  void Forward(absl::Span<const T* const> x, T* y) const override {
    ForEach([&](int64_t begin, int64_t to) { y[to] = static_cast<T>(Value(x[0] + begin)); });
  }

  void Backward(absl::Span<const T* const> x, const T* y, const T* dy, size_t, double* dx) const override {
    if (!HasGradient()) return;
    ForEach([&](int64_t begin, int64_t from) { AddGradient(x[0] + begin, y[from], dy[from], dx + begin); });
  }

 private:
  // Calls fn(index of the first number of those that are reduced to one, index of that one) for each output.
  template <typename Fn>
  void ForEach(Fn fn) const {
    int64_t to = 0;
    for (int64_t n = 0; n < examples_; ++n) {
      for (const int64_t place : kept_) fn(n * example_ + place, to++);
    }
  }

  bool HasGradient() const {
    return kind_ != v1::Reduce::ARGMAX && kind_ != v1::Reduce::ARGMIN && kind_ != v1::Reduce::ANY &&
           kind_ != v1::Reduce::ALL && kind_ != v1::Reduce::COUNT_NONZERO;
  }

  double Count() const { return static_cast<double>(reduced_.size()); }

  double Mean(const T* x) const {
    double sum = 0;
    for (const int64_t r : reduced_) sum += x[r];
    return sum / Count();
  }

  double Value(const T* x) const {
    double all = 0;
    switch (kind_) {
      case v1::Reduce::MEAN: return Mean(x);
      case v1::Reduce::SUM: return Mean(x) * Count();
      case v1::Reduce::MAX:
      case v1::Reduce::LOGSUMEXP: {
        double largest = x[reduced_[0]];
        for (const int64_t r : reduced_) largest = std::max<double>(largest, x[r]);
        if (kind_ == v1::Reduce::MAX) return largest;
        for (const int64_t r : reduced_) all += std::exp(x[r] - largest);
        return largest + std::log(all);
      }
      case v1::Reduce::MIN:
        all = x[reduced_[0]];
        for (const int64_t r : reduced_) all = std::min<double>(all, x[r]);
        return all;
      case v1::Reduce::VARIANCE:
      case v1::Reduce::STDDEV: {
        const double mean = Mean(x);
        for (const int64_t r : reduced_) all += (x[r] - mean) * (x[r] - mean);
        return kind_ == v1::Reduce::VARIANCE ? all / Count() : std::sqrt(all / Count());
      }
      case v1::Reduce::L2_NORM:
        for (const int64_t r : reduced_) all += double{x[r]} * x[r];
        return std::sqrt(all);
      case v1::Reduce::PROD:
        all = 1;
        for (const int64_t r : reduced_) all *= x[r];
        return all;
      case v1::Reduce::L1_NORM:
        for (const int64_t r : reduced_) all += std::abs(double{x[r]});
        return all;
      case v1::Reduce::ANY:
      case v1::Reduce::ALL:
      case v1::Reduce::COUNT_NONZERO:
        for (const int64_t r : reduced_) all += x[r] != 0;
        return kind_ == v1::Reduce::ANY ? all > 0 : kind_ == v1::Reduce::ALL ? all == Count() : all;
      default: return Place(x);
    }
  }

  // ARGMAX and ARGMIN: the first of equal numbers.
  double Place(const T* x) const {
    size_t found = 0;
    for (size_t i = 1; i < reduced_.size(); ++i) {
      const T number = x[reduced_[i]], other = x[reduced_[found]];
      if (kind_ == v1::Reduce::ARGMAX ? number > other : number < other) found = i;
    }
    return static_cast<double>(found);
  }

  void AddGradient(const T* x, double y, double dy, double* dx) const {
    switch (kind_) {
      case v1::Reduce::MEAN:
      case v1::Reduce::SUM:
        for (const int64_t r : reduced_) dx[r] += kind_ == v1::Reduce::SUM ? dy : dy / Count();
        return;
      case v1::Reduce::MAX:
      case v1::Reduce::MIN: {  // equal numbers share it
        double equal = 0;
        for (const int64_t r : reduced_) equal += x[r] == static_cast<T>(y);
        for (const int64_t r : reduced_) dx[r] += x[r] == static_cast<T>(y) ? dy / equal : 0;
        return;
      }
      case v1::Reduce::LOGSUMEXP:
        for (const int64_t r : reduced_) dx[r] += dy * std::exp(x[r] - y);
        return;
      case v1::Reduce::VARIANCE:
      case v1::Reduce::STDDEV: {
        const double mean = Mean(x);
        const double factor = kind_ == v1::Reduce::VARIANCE ? 2 * dy : y > 0 ? dy / y : 0;
        for (const int64_t r : reduced_) dx[r] += factor * (x[r] - mean) / Count();
        return;
      }
      case v1::Reduce::L2_NORM:
        for (const int64_t r : reduced_) dx[r] += y > 0 ? dy * x[r] / y : 0;
        return;
      case v1::Reduce::L1_NORM:
        for (const int64_t r : reduced_) dx[r] += x[r] > 0 ? dy : x[r] < 0 ? -dy : 0;
        return;
      default: {  // PROD: of each the product of the others
        std::vector<double> before;
        double product = 1;
        for (const int64_t r : reduced_) {
          before.push_back(product);
          product *= x[r];
        }
        product = 1;
        for (size_t i = reduced_.size(); i-- > 0;) {
          dx[reduced_[i]] += dy * before[i] * product;
          product *= x[reduced_[i]];
        }
      }
    }
  }

  const v1::Reduce::Kind kind_;
  const int64_t examples_, example_;
  std::vector<int64_t> kept_, reduced_;  // places within an example
};

template <typename T>
class AlongAxis : public TensorFunction<T> {
 public:
  // axis: counts from 1.
  AlongAxis(v1::Operation::Kind kind, const Shape& input, int axis, int64_t examples)
      : kind_(kind), size_(input[static_cast<size_t>(axis) - 1]) {
    for (size_t i = static_cast<size_t>(axis); i < input.size(); ++i) step_ *= input[i];
    lines_ = examples * NumElements(input) / size_;
  }

  void Forward(absl::Span<const T* const> in, T* out) const override {
    ForEach([&](int64_t begin) {
      const T* x = in[0] + begin;
      T* y = out + begin;
      if (kind_ == v1::Operation::CUMSUM) {
        double sum = 0;
        for (int64_t i = 0; i < size_; ++i) y[i * step_] = static_cast<T>(sum += x[i * step_]);
      } else if (kind_ == v1::Operation::CUMPROD) {
        double product = 1;
        for (int64_t i = 0; i < size_; ++i) y[i * step_] = static_cast<T>(product *= x[i * step_]);
      } else if (kind_ == v1::Operation::SOFTMAX) {
        double largest = x[0], sum = 0;
        for (int64_t i = 0; i < size_; ++i) largest = std::max<double>(largest, x[i * step_]);
        for (int64_t i = 0; i < size_; ++i) sum += std::exp(x[i * step_] - largest);
        for (int64_t i = 0; i < size_; ++i) y[i * step_] = static_cast<T>(std::exp(x[i * step_] - largest) / sum);
      } else {
        const double length = std::max(Length(x), kNormalizedLengthMin);
        for (int64_t i = 0; i < size_; ++i) y[i * step_] = static_cast<T>(x[i * step_] / length);
      }
    });
  }

  void Backward(absl::Span<const T* const> in, const T* out, const T* d_out, size_t, double* d_in) const override {
    ForEach([&](int64_t begin) {
      const T *y = out + begin, *dy = d_out + begin;
      double* dx = d_in + begin;
      double sum = 0;
      if (kind_ == v1::Operation::CUMSUM) {
        for (int64_t i = size_; i-- > 0;) dx[i * step_] += sum += dy[i * step_];
        return;
      }
      if (kind_ == v1::Operation::CUMPROD) return AddOfProducts(in[0] + begin, dy, dx);
      const double length = kind_ == v1::Operation::SOFTMAX ? 1 : Length(in[0] + begin);
      const bool constant = length <= kNormalizedLengthMin;  // it was divided by a constant
      for (int64_t i = 0; !constant && i < size_; ++i) sum += double{y[i * step_]} * dy[i * step_];
      for (int64_t i = 0; i < size_; ++i) {
        const double of_y = y[i * step_], of_dy = dy[i * step_];
        dx[i * step_] += kind_ == v1::Operation::SOFTMAX
                             ? of_y * (of_dy - sum)
                             : (of_dy - of_y * sum) / std::max(length, kNormalizedLengthMin);
      }
    });
  }

 private:
  // Calls fn(index of the first number) for each line.
  template <typename Fn>
  void ForEach(Fn fn) const {
    for (int64_t line = 0; line < lines_; ++line) fn(line / step_ * step_ * size_ + line % step_);
  }
  // Of x[i]: the product of those before it, times the sum over k >= i of dy[k] * the product of those in i+1 .. k.
  void AddOfProducts(const T* x, const T* dy, double* dx) const {
    std::vector<double> before(static_cast<size_t>(size_), 1);
    for (int64_t i = 1; i < size_; ++i) {
      before[static_cast<size_t>(i)] = before[static_cast<size_t>(i) - 1] * x[(i - 1) * step_];
    }
    double sum = 0;
    for (int64_t i = size_; i-- > 0;) {
      sum = dy[i * step_] + (i + 1 < size_ ? x[(i + 1) * step_] * sum : 0);
      dx[i * step_] += before[static_cast<size_t>(i)] * sum;
    }
  }
  double Length(const T* x) const {
    double squares = 0;
    for (int64_t i = 0; i < size_; ++i) squares += double{x[i * step_]} * x[i * step_];
    return std::sqrt(squares);
  }

  const v1::Operation::Kind kind_;
  const int64_t size_;
  int64_t step_ = 1, lines_ = 0;
};

}  // namespace cairn
