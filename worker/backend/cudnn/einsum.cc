// EinsumDense and Einsum as matrix products (worker/backend/einsum.h): the numbers of their operands are put into the
// order of the products before them, and results back into their own, where these differ.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/einsum_equation.h"
#include "worker/backend/cudnn/axes.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"

namespace cairn::cudnn {
namespace {

// The axes of an operand, by their letters; '.' stands for the examples.
struct Operand {
  std::string letters;
  std::vector<int64_t> sizes;

  int64_t SizeOf(char letter) const { return sizes[letters.find(letter)]; }
  int64_t StrideOf(char letter) const {
    int64_t stride = 1;
    for (size_t i = letters.find(letter) + 1; i < sizes.size(); ++i) stride *= sizes[i];
    return stride;
  }
  int64_t Count(const std::string& of) const {
    int64_t count = 1;
    for (const char letter : of) count *= SizeOf(letter);
    return count;
  }
};

// An operand whose axes are read in another order.
struct Order {
  kernels::Dims dims;
  kernels::Strides from, to;  // `to`: of the dense tensor in that order
  int64_t numbers = 1;
  bool same = false;  // it is the operand's own order
  bool fits = true;   // false: more axes than a launch takes

  Order(const Operand& operand, const std::string& letters) {
    std::vector<std::pair<int64_t, int64_t>> axes;  // sizes and strides; neighbours that stay neighbours are one
    for (const char letter : letters) {
      const int64_t size = operand.SizeOf(letter), stride = operand.StrideOf(letter);
      numbers *= size;
      if (size == 1) continue;
      if (!axes.empty() && axes.back().second == stride * size) {
        axes.back() = {axes.back().first * size, stride};
      } else {
        axes.emplace_back(size, stride);
      }
    }
    same = axes.empty() || (axes.size() == 1 && axes[0].second == 1);
    fits = axes.size() <= static_cast<size_t>(kernels::kAxesMax);
    int64_t dense = 1;
    for (size_t i = axes.size(); i-- > 0 && fits;) {
      const size_t place = static_cast<size_t>(kernels::kAxesMax) - axes.size() + i;
      dims.of[place] = axes[i].first;
      from.of[place] = axes[i].second;
      to.of[place] = dense;
      dense *= axes[i].first;
    }
  }
};

void EmitOrdered(Builder& b, const Order& order, bool back, const Ref& from, const Builder::Sink& to, DType type) {
  std::vector<Ref> reads = {from};
  if (to.add) reads.push_back(to.ref);
  const std::string what = absl::StrCat("reorder", back ? " back" : "", to.add ? " add" : "");
  b.Emit(what, std::move(reads), {to.ref}, [=](const Run& r) {
    return kernels::CopyPart(r.stream(), order.dims, back ? order.to : order.from, r.At<>(from),
                             back ? order.from : order.to, r.At<>(to.ref), type, to.add);
  });
}

// The operand in the order; itself if that is its own.
Ref Ordered(Builder& b, const Order& order, const Ref& operand, DType type) {
  if (order.same) return operand;
  const Ref to = b.NewNumbers(order.numbers, type);
  EmitOrdered(b, order, false, operand, {to}, type);
  return to;
}

// y[g][r][c] = sum over i of x[g][r][i] * kernel[g][i][c]: g are the letters that all three share, r those of x and y
// and the examples, c those of the kernel and y.
class Einsum {
 public:
  Einsum(Builder& b, const Node& node)
      : b_(b),
        node_(node),
        kernel_(b.Find(node, "kernel")),
        bias_(b.Find(node, "bias")),
        f_(b.groups().ActivationOf(node)),
        in_(b.In(node)),
        out_(b.Out(node)),
        t_(b.type()) {
    const v1::EinsumDense& dense = node.layer.einsum_dense();
    const absl::StatusOr<EinsumEquation> e = ParseEinsum(dense.equation(), b.ShapeOf(node).size());
    CAIRN_CHECK(e.ok(), "checked when the graph was built");
    x_ = OperandOf("." + e->x, b.ShapeOf(node));
    y_ = OperandOf("." + e->y, node.output);
    w_.letters = e->kernel;
    for (const char c : e->kernel) w_.sizes.push_back(absl::StrContains(e->x, c) ? x_.SizeOf(c) : y_.SizeOf(c));
    for (const char c : x_.letters) {
      const bool in_kernel = absl::StrContains(e->kernel, c), in_y = absl::StrContains(y_.letters, c);
      (in_kernel && in_y ? l_.shared : in_kernel ? l_.summed : l_.rows).push_back(c);
    }
    for (const char c : e->kernel) {
      if (!absl::StrContains(e->x, c)) l_.columns.push_back(c);
    }
    for (const char c : y_.letters) (absl::StrContains(dense.bias_axes(), c) ? l_.biased : l_.unbiased).push_back(c);
  }

  void Lower() const {
    const Order x(x_, l_.shared + l_.rows + l_.summed), w(w_, l_.shared + l_.summed + l_.columns),
        y(y_, l_.shared + l_.rows + l_.columns), bias(y_, l_.unbiased + l_.biased);
    for (const Order* order : {&x, &w, &y, &bias}) {
      if (order->fits) continue;
      return b_.Fail(absl::UnimplementedError(
          absl::StrCat("on a GPU an equation as ", node_.layer.einsum_dense().equation(), ", which mixes more than ",
                       kernels::kAxesMax, " axes, is not computed; use --device=cpu")));
    }
    if (x.same && w.same && y.same && l_.shared.empty() && (bias_ == nullptr || bias.same) &&
        (bias_ == nullptr || bias_->size == w_.Count(l_.columns)) &&
        (!f_.of_rows() || w_.Count(l_.columns) == node_.output.back())) {
      return LowerProjection(b_, {kernel_, bias_, x_.Count(l_.summed), w_.Count(l_.columns), f_}, in_, out_);
    }
    LowerProduct(x, w, y, bias);
  }

 private:
  struct Letters {
    std::string shared, rows, summed, columns;
    std::string biased, unbiased;  // of y
  };

  Operand OperandOf(const std::string& letters, const Shape& shape) const {
    Operand operand{letters, {b_.examples()}};
    operand.sizes.insert(operand.sizes.end(), shape.begin(), shape.end());
    return operand;
  }

  void LowerProduct(const Order& x_order, const Order& w_order, const Order& y_order, const Order& bias_order) const {
    const int64_t m = x_.Count(l_.rows), n = w_.Count(l_.columns), k = x_.Count(l_.summed), batch = x_.Count(l_.shared);
    const Ref x = Ordered(b_, x_order, b_.Read(*in_, t_), t_);
    Ref w = Ordered(b_, w_order, b_.ValueOf(kernel_), DType::kFloat32);
    if (t_ != DType::kFloat32) {
      const Ref copy = b_.NewNumbers(kernel_->size, t_);
      EmitConvert(b_, {w, DType::kFloat32}, {copy, t_}, kernel_->size);
      w = copy;
    }
    const Ref product = b_.NewNumbers(out_->numbers, t_);
    EmitProduct(b_, {.m = m, .n = n, .k = k, .batch = batch, .out = t_}, x, w, product);
    Ref y = product;
    if (!y_order.same) {
      y = b_.NewNumbers(out_->numbers, t_);
      EmitOrdered(b_, y_order, true, product, {y}, t_);
    }
    const bool trailing = bias_ != nullptr && bias_order.same && (!f_.of_rows() || bias_->size == node_.output.back());
    if (bias_ != nullptr && !trailing) y = AddBias(y);
    const int64_t columns = trailing ? bias_->size : node_.output.back();
    const Ref before = EmitActivation(b_, f_, y, trailing ? b_.ValueOf(bias_) : Ref{}, columns, out_);
    if (!b_.training()) return;
    b_.Backward([=, self = *this] {
      EmitActivationBackward(self.b_, self.f_, before, self.node_.output.back(), self.out_);
      self.LowerBackward(x_order, w_order, y_order, bias_order, x, w);
    });
  }

  // A bias along axes that are not the last ones.
  Ref AddBias(const Ref& y) const {
    const Ref sum = b_.NewNumbers(out_->numbers, t_), bias = b_.ValueOf(bias_);
    kernels::Operation o;
    o.op = kernels::Op::kAdd;
    o.dims = DimsOf(b_.examples(), node_.output);
    o.count = 2;
    o.of[0] = {nullptr, t_, StridesAlong(node_.output, node_.output, /*shared=*/false)};
    o.of[1] = {nullptr, DType::kFloat32, {}};
    int64_t stride = 1;
    for (size_t i = node_.output.size(); i-- > 0;) {
      if (!absl::StrContains(l_.biased, y_.letters[i + 1])) continue;
      o.of[1].strides.of[AxisPlace(node_.output.size(), i)] = stride;
      stride *= node_.output[i];
    }
    b_.Emit("bias by place", {y, bias}, {sum}, [=, t = t_](const Run& r) {
      kernels::Operation with = o;
      with.of[0].x = r.At<>(y);
      with.of[1].x = r.At<>(bias);
      return kernels::Operate(r.stream(), with, r.At<>(sum), t);
    });
    return sum;
  }

  void LowerBackward(const Order& x_order, const Order& w_order, const Order& y_order, const Order& bias_order,
                     const Ref& x, const Ref& w) const {
    const int64_t m = x_.Count(l_.rows), n = w_.Count(l_.columns), k = x_.Count(l_.summed), batch = x_.Count(l_.shared);
    const Ref dy = Ordered(b_, y_order, out_->gradient, t_);
    if (!b_.Frozen(b_.current())) {
      if (bias_ != nullptr) {
        EmitColumnSums(b_, Ordered(b_, bias_order, out_->gradient, t_), out_->numbers / bias_->size, bias_->size,
                       b_.GradientOf(bias_), t_);
      }
      const Ref gradient = b_.GradientOf(kernel_),
                ordered = w_order.same ? gradient : b_.NewNumbers(kernel_->size, DType::kFloat32);
      EmitProduct(b_, {.m = k, .n = n, .k = m, .transpose_a = true, .batch = batch, .out = DType::kFloat32}, x, dy,
                  ordered);
      if (!w_order.same) EmitOrdered(b_, w_order, true, ordered, {gradient}, DType::kFloat32);
    }
    if (!in_->needs_gradient) return;
    const Product product{.m = m, .n = k, .k = n, .transpose_b = true, .batch = batch, .out = t_};
    if (x_order.same) {
      const Builder::Sink dx = b_.GradientSink(in_);
      return EmitProduct(b_, product, dy, w, dx.ref, dx.add);
    }
    const Ref ordered = b_.NewNumbers(in_->numbers, t_);
    EmitProduct(b_, product, dy, w, ordered);
    EmitOrdered(b_, x_order, true, ordered, b_.GradientSink(in_), t_);
  }

  Builder& b_;
  const Node& node_;
  const Variable *const kernel_, *const bias_;
  const Activation f_;
  Value *const in_, *const out_;
  const DType t_;
  Operand x_, w_, y_;
  Letters l_;
};

// An Einsum of two tensors of examples, the second of which is the kernel. The examples are shared by all three.
class EinsumOfTwo {
 public:
  EinsumOfTwo(Builder& b, const Node& node)
      : b_(b), left_(b.In(node, 0)), right_(b.In(node, 1)), out_(b.Out(node)), t_(b.type()) {
    Shape output;
    const absl::StatusOr<EinsumEquation> e =
        ParseEinsumOfTwo(node.layer.einsum().equation(), b.ShapeOf(node, 0), b.ShapeOf(node, 1), &output);
    CAIRN_CHECK(e.ok(), "checked when the graph was built");
    const Operand x = OperandOf(e->x, b.ShapeOf(node, 0)), w = OperandOf(e->kernel, b.ShapeOf(node, 1)),
                  y = OperandOf(e->y, output);
    std::string shared, rows, summed, columns;
    for (const char c : x.letters) {
      const bool in_kernel = absl::StrContains(w.letters, c), in_y = absl::StrContains(y.letters, c);
      (in_kernel && in_y ? shared : in_kernel ? summed : rows).push_back(c);
    }
    for (const char c : w.letters) {
      if (!absl::StrContains(x.letters, c)) columns.push_back(c);
    }
    m_ = x.Count(rows), n_ = w.Count(columns), k_ = x.Count(summed), batch_ = x.Count(shared);
    orders_ = {Order(x, shared + rows + summed), Order(w, shared + summed + columns),
               Order(y, shared + rows + columns)};
  }

  void Lower() {
    for (const Order& order : orders_) CAIRN_CHECK(order.fits, "an operand has no more axes than a launch takes");
    if (out_->type != t_) {  // products take numbers of the job's type
      return b_.Fail(absl::UnimplementedError(
          "on a GPU an Einsum that gives ids to an Embedding is computed in FLOAT32 alone; use that, or "
          "--device=cpu"));
    }
    x_ = Ordered(b_, orders_[0], b_.Read(*left_, t_), t_);
    w_ = Ordered(b_, orders_[1], b_.Read(*right_, t_), t_);
    const Ref product = b_.NewNumbers(out_->numbers, t_);
    EmitProduct(b_, {.m = m_, .n = n_, .k = k_, .batch = batch_, .out = t_}, x_, w_, product);
    out_->data = product;
    if (!orders_[2].same) {
      out_->data = b_.NewLike(*out_);
      EmitOrdered(b_, orders_[2], true, product, {out_->data}, t_);
    }
    if (out_->needs_gradient) b_.Backward([self = *this] { self.LowerBackward(); });
  }

 private:
  Operand OperandOf(const std::string& letters, const Shape& shape) const {
    Operand operand{"." + letters, {b_.examples()}};
    operand.sizes.insert(operand.sizes.end(), shape.begin(), shape.end());
    return operand;
  }

  void LowerBackward() const {
    const Ref dy = Ordered(b_, orders_[2], out_->gradient, t_);
    if (left_->needs_gradient) {
      EmitGradient({.m = m_, .n = k_, .k = n_, .transpose_b = true}, dy, w_, {left_, orders_[0]});
    }
    if (right_->needs_gradient) {
      EmitGradient({.m = k_, .n = n_, .k = m_, .transpose_a = true}, x_, dy, {right_, orders_[1]});
    }
  }

  // Of one operand.
  struct Sought {
    Value* value;
    const Order& order;
  };
  void EmitGradient(Product product, const Ref& a, const Ref& b, const Sought& of) const {
    product.batch = batch_;
    product.out = t_;
    if (of.order.same) {
      const Builder::Sink dx = b_.GradientSink(of.value);
      return EmitProduct(b_, product, a, b, dx.ref, dx.add);
    }
    const Ref ordered = b_.NewNumbers(of.value->numbers, t_);
    EmitProduct(b_, product, a, b, ordered);
    EmitOrdered(b_, of.order, true, ordered, b_.GradientSink(of.value), t_);
  }

  Builder& b_;
  Value *const left_, *const right_, *const out_;
  const DType t_;
  int64_t m_ = 1, n_ = 1, k_ = 1, batch_ = 1;
  std::vector<Order> orders_;  // of x, of the kernel, of y
  Ref x_, w_;
};

constexpr Layer kLayers[] = {
    {LayerKind::kEinsumDense, [](Builder& b, const Node& node) { Einsum(b, node).Lower(); }},
    {LayerKind::kEinsum, [](Builder& b, const Node& node) { EinsumOfTwo(b, node).Lower(); }},
};

}  // namespace

absl::Span<const Layer> EinsumLayers() { return kLayers; }

}  // namespace cairn::cudnn
