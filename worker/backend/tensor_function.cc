#include "worker/backend/tensor_function.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/model/operation_operands.h"
#include "common/model/slice_range.h"
#include "worker/backend/broadcast.h"
#include "worker/backend/tensor_functors.h"
#include "worker/backend/tensor_moves.h"
#include "worker/backend/tensor_reductions.h"

namespace cairn {
namespace {

std::vector<int64_t> WithExamples(int64_t examples, const Shape& shape) {
  std::vector<int64_t> dims = {examples};
  dims.insert(dims.end(), shape.begin(), shape.end());
  return dims;
}

std::vector<Shape> InputShapes(const Graph& graph, const Node& node) {
  std::vector<Shape> shapes;
  for (const int input : node.inputs) shapes.push_back(graph.nodes()[static_cast<size_t>(input)].output);
  return shapes;
}

// A function of one input, number by number.
template <typename T>
class Unary : public TensorFunction<T> {
 public:
  Unary(const v1::Operation& operation, int64_t count)
      : kind_(operation.kind()), numbers_(UnaryNumbersOf<T>(operation)), count_(count) {}

  void Forward(absl::Span<const T* const> x, T* y) const override {
    WithUnary<T>(kind_, numbers_, [&](auto f, auto) {
      for (int64_t i = 0; i < count_; ++i) y[i] = f(x[0][i]);
    });
  }

  void Backward(absl::Span<const T* const> x, const T* y, const T* dy, size_t, double* dx) const override {
    WithUnary<T>(kind_, numbers_, [&](auto, auto slope) {
      for (int64_t i = 0; i < count_; ++i) dx[i] += dy[i] * slope(x[0][i], y[i]);
    });
  }

 private:
  const v1::Operation::Kind kind_;
  const UnaryNumbers<T> numbers_;
  const int64_t count_;
};

// A function of two inputs, or of one and a constant.
template <typename T>
class Binary : public TensorFunction<T> {
 public:
  Binary(v1::Operation::Kind kind, const v1::Operation& operation, const std::vector<Shape>& inputs,
         const Shape& output, int64_t examples)
      : kind_(kind),
        constant_(operation.constant().begin(), operation.constant().end()),
        constant_first_(operation.constant_first()),
        walk_(WithExamples(examples, output), Tensors(operation, inputs, output)) {}

  void Forward(absl::Span<const T* const> x, T* y) const override {
    const auto [a, b] = Operands(x);
    WithBinary<T>(kind_, [&, a = a, b = b](auto f, auto, auto) {
      const int64_t n = walk_.line(), sa = walk_.stride(0), sb = walk_.stride(1);
      walk_.ForEachLine([&](const std::vector<int64_t>& at) {
        const T *const p = a + at[0], *const q = b + at[1];
        T* const to = y + at[2];
        if (sa == 1 && sb == 1) {
          for (int64_t i = 0; i < n; ++i) to[i] = f(p[i], q[i]);
        } else if (sa == 1 && sb == 0) {
          const T second = *q;
          for (int64_t i = 0; i < n; ++i) to[i] = f(p[i], second);
        } else if (sa == 0 && sb == 1) {
          const T first = *p;
          for (int64_t i = 0; i < n; ++i) to[i] = f(first, q[i]);
        } else {
          for (int64_t i = 0; i < n; ++i) to[i] = f(p[i * sa], q[i * sb]);
        }
      });
    });
  }

  void Backward(absl::Span<const T* const> x, const T* y, const T* dy, size_t which, double* dx) const override {
    const auto [a, b] = Operands(x);
    const size_t operand = !constant_.empty() && constant_first_ ? 1 : which;
    WithBinary<T>(kind_, [&, a = a, b = b](auto, auto first, auto second) {
      const int64_t n = walk_.line(), sa = walk_.stride(0), sb = walk_.stride(1), sd = walk_.stride(operand);
      walk_.ForEachLine([&](const std::vector<int64_t>& at) {
        const T *const p = a + at[0], *const q = b + at[1], *const z = y + at[2], *const g = dy + at[2];
        double* const d = dx + at[operand];
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) {
          const T slope = operand == 0 ? first(p[i * sa], q[i * sb], z[i]) : second(p[i * sa], q[i * sb], z[i]);
          if (sd == 0) {
            sum += g[i] * slope;
          } else {
            d[i * sd] += g[i] * slope;
          }
        }
        if (sd == 0) *d += sum;
      });
    });
  }

 private:
  static std::vector<WalkedTensor> Tensors(const v1::Operation& operation, const std::vector<Shape>& inputs,
                                           const Shape& output) {
    std::vector<WalkedTensor> tensors;
    for (const Shape& input : inputs) tensors.push_back(BroadcastTo(input, output, false));
    if (!operation.constant().empty()) {
      const Shape shape(operation.constant_shape().begin(), operation.constant_shape().end());
      tensors.insert(operation.constant_first() ? tensors.begin() : tensors.end(), BroadcastTo(shape, output, true));
    }
    tensors.push_back(BroadcastTo(output, output, false));
    return tensors;
  }

  std::pair<const T*, const T*> Operands(absl::Span<const T* const> x) const {
    if (constant_.empty()) return {x[0], x[1]};
    return constant_first_ ? std::pair(constant_.data(), x[0]) : std::pair(x[0], constant_.data());
  }

  const v1::Operation::Kind kind_;
  const std::vector<T> constant_;
  const bool constant_first_;
  const Walk walk_;
};

// Of equal numbers the first input's gets the gradient.
template <typename T>
class Smallest : public TensorFunction<T> {
 public:
  explicit Smallest(int64_t count) : count_(count) {}

  void Forward(absl::Span<const T* const> x, T* y) const override {
    std::copy_n(x[0], count_, y);
    for (size_t k = 1; k < x.size(); ++k) {
      for (int64_t i = 0; i < count_; ++i) y[i] = std::min(y[i], x[k][i]);
    }
  }

  void Backward(absl::Span<const T* const> x, const T* y, const T* dy, size_t which, double* dx) const override {
    for (int64_t i = 0; i < count_; ++i) {
      bool first = x[which][i] == y[i];
      for (size_t k = 0; k < which; ++k) first = first && x[k][i] != y[i];
      if (first) dx[i] += dy[i];
    }
  }

 private:
  const int64_t count_;
};

// The second operand where the first is not 0, else the third.
template <typename T>
class Where : public TensorFunction<T> {
 public:
  Where(const v1::Operation& operation, const std::vector<Shape>& inputs, const Shape& output, int64_t examples)
      : walk_(WithExamples(examples, output), Tensors(operation, inputs, output)) {
    for (const OperationOperand& operand : OperandsOf(operation, inputs.size())) {
      inputs_.push_back(operand.input);
      constants_.emplace_back(operand.numbers.begin(), operand.numbers.end());
    }
  }

  void Forward(absl::Span<const T* const> x, T* y) const override {
    const std::vector<const T*> of = Operands(x);
    walk_.ForEachLine([&](const std::vector<int64_t>& at) {
      for (int64_t i = 0; i < walk_.line(); ++i) {
        const size_t from = of[0][at[0] + i * walk_.stride(0)] != 0 ? 1 : 2;
        y[at[3] + i] = of[from][at[from] + i * walk_.stride(from)];
      }
    });
  }

  void Backward(absl::Span<const T* const> x, const T*, const T* dy, size_t which, double* dx) const override {
    const T* const condition = x[0];
    for (size_t from = 1; from < inputs_.size(); ++from) {
      if (inputs_[from] != static_cast<int>(which)) continue;
      walk_.ForEachLine([&](const std::vector<int64_t>& at) {
        for (int64_t i = 0; i < walk_.line(); ++i) {
          const bool first = condition[at[0] + i * walk_.stride(0)] != 0;
          if (first == (from == 1)) dx[at[from] + i * walk_.stride(from)] += dy[at[3] + i];
        }
      });
    }
  }

 private:
  static std::vector<WalkedTensor> Tensors(const v1::Operation& operation, const std::vector<Shape>& inputs,
                                           const Shape& output) {
    std::vector<WalkedTensor> tensors;
    for (const OperationOperand& operand : OperandsOf(operation, inputs.size())) {
      const bool constant = operand.input < 0;
      tensors.push_back(
          BroadcastTo(constant ? operand.shape : inputs[static_cast<size_t>(operand.input)], output, constant));
    }
    tensors.push_back(BroadcastTo(output, output, false));
    return tensors;
  }

  std::vector<const T*> Operands(absl::Span<const T* const> x) const {
    std::vector<const T*> operands;
    for (size_t k = 0; k < inputs_.size(); ++k) {
      operands.push_back(inputs_[k] < 0 ? constants_[k].data() : x[static_cast<size_t>(inputs_[k])]);
    }
    return operands;
  }

  std::vector<int> inputs_;                // by operand: the number of the input; -1: a constant
  std::vector<std::vector<T>> constants_;  // by operand
  const Walk walk_;
};

// Products of matrices, along the last two axes: [m, k] by [k, n].
template <typename T>
class Product : public TensorFunction<T> {
 public:
  Product(const std::vector<Shape>& inputs, int64_t examples)
      : m_(inputs[0][inputs[0].size() - 2]),
        k_(inputs[0].back()),
        n_(inputs[1].back()),
        matrices_(examples * NumElements(inputs[0]) / (m_ * k_)) {}

  void Forward(absl::Span<const T* const> x, T* y) const override {
    std::fill_n(y, matrices_ * m_ * n_, T(0));
    ForEachRow([&](int64_t a, int64_t b, int64_t to) {
      const T factor = x[0][a];
      for (int64_t j = 0; j < n_; ++j) y[to + j] += factor * x[1][b + j];
    });
  }

  void Backward(absl::Span<const T* const> x, const T*, const T* dy, size_t which, double* dx) const override {
    ForEachRow([&](int64_t a, int64_t b, int64_t from) {
      if (which == 0) {
        double sum = 0;
        for (int64_t j = 0; j < n_; ++j) sum += double{dy[from + j]} * x[1][b + j];
        dx[a] += sum;
      } else {
        for (int64_t j = 0; j < n_; ++j) dx[b + j] += double{dy[from + j]} * x[0][a];
      }
    });
  }

 private:
  // Calls fn(index in the first input, index of a row of the second, index of a row of the product).
  template <typename Fn>
  void ForEachRow(Fn fn) const {
    for (int64_t matrix = 0; matrix < matrices_; ++matrix) {
      for (int64_t i = 0; i < m_; ++i) {
        for (int64_t k = 0; k < k_; ++k) fn((matrix * m_ + i) * k_ + k, (matrix * k_ + k) * n_, (matrix * m_ + i) * n_);
      }
    }
  }

  const int64_t m_, k_, n_, matrices_;
};

// A part of a tensor.
template <typename T>
class Part : public TensorFunction<T> {
 public:
  Part(const v1::Slice& slice, const Shape& input, int64_t examples) : walk_(MakeWalk(slice, input, examples)) {}

  void Forward(absl::Span<const T* const> x, T* y) const override {
    walk_.ForEachLine([&](const std::vector<int64_t>& at) {
      for (int64_t i = 0; i < walk_.line(); ++i) y[at[1] + i] = x[0][at[0] + i * walk_.stride(0)];
    });
  }

  void Backward(absl::Span<const T* const>, const T*, const T* dy, size_t, double* dx) const override {
    walk_.ForEachLine([&](const std::vector<int64_t>& at) {
      for (int64_t i = 0; i < walk_.line(); ++i) dx[at[0] + i * walk_.stride(0)] += dy[at[1] + i];
    });
  }

 private:
  static Walk MakeWalk(const v1::Slice& slice, const Shape& input, int64_t examples) {
    WalkedTensor from, to;
    std::vector<int64_t> dims = {examples};
    from.strides.push_back(NumElements(input));
    int64_t stride = NumElements(input);
    for (size_t i = 0; i < input.size(); ++i) {
      const SliceRange range = RangeOf(slice.axes(static_cast<int>(i)), input[i]);
      stride /= input[i];
      dims.push_back(range.count);
      from.strides.push_back(stride * range.step);
      from.begin += stride * range.begin;
    }
    to.strides.assign(dims.size(), 1);
    for (size_t i = dims.size() - 1; i-- > 0;) to.strides[i] = to.strides[i + 1] * dims[i + 1];
    return Walk(std::move(dims), {std::move(from), std::move(to)});
  }

  const Walk walk_;
};

// a * sigmoid(b) of the halves a, b of each row.
template <typename T>
class Gated : public TensorFunction<T> {
 public:
  Gated(const Shape& output, int64_t examples)
      : half_(output.back()), rows_(examples * NumElements(output) / output.back()) {}

  void Forward(absl::Span<const T* const> x, T* y) const override {
    ForEach([&](int64_t a, int64_t b, int64_t to) { y[to] = x[0][a] * Gate(x[0][b]); });
  }

  void Backward(absl::Span<const T* const> x, const T* y, const T* dy, size_t, double* dx) const override {
    ForEach([&](int64_t a, int64_t b, int64_t to) {
      const T gate = Gate(x[0][b]);
      dx[a] += dy[to] * gate;
      dx[b] += dy[to] * y[to] * (1 - gate);
    });
  }

 private:
  static T Gate(T x) { return 1 / (1 + std::exp(-x)); }

  template <typename Fn>
  void ForEach(Fn fn) const {
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t i = 0; i < half_; ++i) fn(2 * row * half_ + i, (2 * row + 1) * half_ + i, row * half_ + i);
    }
  }

  const int64_t half_, rows_;
};

template <typename T>
std::unique_ptr<TensorFunction<T>> MakeOperation(const v1::Operation& operation, const std::vector<Shape>& inputs,
                                                 const Shape& output, int64_t examples) {
  switch (operation.kind()) {
    case v1::Operation::MATMUL: return std::make_unique<Product<T>>(inputs, examples);
    case v1::Operation::WHERE: return std::make_unique<Where<T>>(operation, inputs, output, examples);
    case v1::Operation::SOFTMAX:
    case v1::Operation::L2_NORMALIZE:
    case v1::Operation::CUMSUM:
    case v1::Operation::CUMPROD:
      return std::make_unique<AlongAxis<T>>(operation.kind(), inputs[0], operation.axis(0), examples);
    default: break;
  }
  if (inputs.size() + (operation.constant().empty() ? 0 : 1) == 2) {
    return std::make_unique<Binary<T>>(operation.kind(), operation, inputs, output, examples);
  }
  return std::make_unique<Unary<T>>(operation, examples * NumElements(output));
}

}  // namespace

template <typename T>
std::unique_ptr<TensorFunction<T>> MakeTensorFunction(const Graph& graph, const Node& node, int64_t examples) {
  const std::vector<Shape> inputs = InputShapes(graph, node);
  switch (node.kind) {
    case LayerKind::kOperation: return MakeOperation<T>(node.layer.operation(), inputs, node.output, examples);
    case LayerKind::kSubtract:
      return std::make_unique<Binary<T>>(v1::Operation::SUBTRACT, v1::Operation(), inputs, node.output, examples);
    case LayerKind::kMinimum: return std::make_unique<Smallest<T>>(examples * NumElements(node.output));
    case LayerKind::kReduce: return std::make_unique<Reduction<T>>(node.layer.reduce(), inputs[0], examples);
    case LayerKind::kSlice: return std::make_unique<Part<T>>(node.layer.slice(), inputs[0], examples);
    case LayerKind::kStack:
      return std::make_unique<Stacked<T>>(inputs[0], inputs.size(), node.layer.stack().axis(), examples);
    case LayerKind::kPad:
    case LayerKind::kTile:
    case LayerKind::kTake: return std::make_unique<Moved<T>>(node, inputs[0], examples);
    case LayerKind::kOneHot: return std::make_unique<OneHotted<T>>(node.layer.one_hot(), inputs[0], examples);
    case LayerKind::kTopK: return std::make_unique<Largest<T>>(node.layer.top_k(), inputs[0], examples);
    case LayerKind::kActivation:
      if (node.activation != v1::GLU) return nullptr;
      return std::make_unique<Gated<T>>(node.output, examples);
    case LayerKind::kEinsum: return std::make_unique<SumOfProducts<T>>(node, inputs, examples);
    default: return nullptr;
  }
}

template std::unique_ptr<TensorFunction<float>> MakeTensorFunction(const Graph&, const Node&, int64_t);
template std::unique_ptr<TensorFunction<double>> MakeTensorFunction(const Graph&, const Node&, int64_t);

}  // namespace cairn
