// Dot: products of the rows of two inputs.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/model/limits.h"
#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

// One input as rows along the summed axis: [examples, rows, size], each row divided by its length if it is normalized.
class Rows {
 public:
  Rows(PlanBuilder& b, const Shape& shape, int axis, bool normalize, Value* in)
      : in_(in), examples_(b.examples()), normalize_(normalize) {
    size_ = shape[axis - 1];
    rows_ = NumElements(shape) / size_;
    std::array<int64_t, 3> dims = {1, 1, 1}, strides = {0, 0, 0};  // of the other axes, then that one
    int64_t stride = NumElements(shape);
    for (size_t i = 0, other = 3 - shape.size(); i < shape.size(); ++i) {
      stride /= shape[i];
      const size_t to = static_cast<int>(i) == axis - 1 ? 2 : other++;
      dims[to] = shape[i];
      strides[to] = stride;
    }
    for (int64_t i = 0; i < dims[0]; ++i) {
      for (int64_t j = 0; j < dims[1]; ++j) starts_.push_back(i * strides[0] + j * strides[1]);
    }
    step_ = strides[2];
    source_ = b.Read(in->data, PlainDesc(examples_, shape));
    packed_ = b.New(desc());
    if (normalize_) lengths_ = b.New(MakeDesc({examples_ * rows_}, Tag::x));
  }

  Desc desc() const { return MakeDesc({examples_, rows_, size_}, Tag::abc); }
  Desc transposed() const {
    return Desc({examples_, size_, rows_}, dnnl::memory::data_type::f32, {rows_ * size_, 1, size_});
  }
  int64_t rows() const { return rows_; }
  Tensor* packed() const { return packed_; }
  bool needs_gradient() const { return in_->needs_gradient; }
  Tensor* gradient() const { return gradient_; }  // of packed

  void CompileBackward(PlanBuilder& b) {
    b.Use(packed_);
    if (lengths_ != nullptr) b.Use(lengths_);
    if (!in_->needs_gradient) return;
    gradient_ = b.New(desc());
    sink_ = b.WriteGradient(in_, source_.tensor->desc);
  }

  void Pack(const Run& run) {
    source_.Prepare(run);
    ForEachRow([&](int64_t row, int64_t place) {
      const float* x = source_.tensor->data() + place;
      float* to = packed_->data() + row * size_;
      double squares = 0;
      for (int64_t s = 0; s < size_; ++s) {
        to[s] = x[s * step_];
        squares += double{to[s]} * to[s];
      }
      if (!normalize_) return;
      const float length = std::max(static_cast<float>(std::sqrt(squares)), kVectorLengthMin);
      lengths_->data()[row] = length;
      for (int64_t s = 0; s < size_; ++s) to[s] /= length;
    });
  }

  // Writes the gradient of the rows to the input. A row that was too short was divided by a constant.
  void Unpack(const Run& run) {
    ForEachRow([&](int64_t row, int64_t place) {
      float* dx = sink_.tensor->data() + place;
      const float *dy = gradient_->data() + row * size_, *y = packed_->data() + row * size_;
      const float length = normalize_ ? lengths_->data()[row] : 1.0f;
      double along = 0;
      for (int64_t s = 0; normalize_ && length > kVectorLengthMin && s < size_; ++s) along += double{dy[s]} * y[s];
      for (int64_t s = 0; s < size_; ++s) dx[s * step_] = (dy[s] - static_cast<float>(along) * y[s]) / length;
    });
    sink_.Finish(run);
  }

 private:
  // Calls fn(row, index of its first number in the input).
  template <typename Fn>
  void ForEachRow(Fn fn) const {
    for (int64_t n = 0; n < examples_; ++n) {
      for (int64_t r = 0; r < rows_; ++r) fn(n * rows_ + r, n * rows_ * size_ + starts_[r]);
    }
  }

  Value* const in_;
  const int64_t examples_;
  const bool normalize_;
  int64_t rows_ = 0, size_ = 0, step_ = 0;
  std::vector<int64_t> starts_;
  Source source_;
  Tensor *packed_ = nullptr, *lengths_ = nullptr, *gradient_ = nullptr;
  Sink sink_;
};

class DotOp : public Op {
 public:
  DotOp(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out)
      : out_(out), left_(Side(b, node, in, 0)), right_(Side(b, node, in, 1)) {
    product_ = MakeDesc({b.examples(), left_.rows(), right_.rows()}, Tag::abc);
    out->data = b.New(PlainDesc(b.examples(), node.output));
    forward_ = Multiply(b, b.Use(left_.packed(), left_.desc()), b.Use(right_.packed(), right_.transposed()),
                        b.Use(out->data, product_));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!out_->needs_gradient) return;
    left_.CompileBackward(b);
    right_.CompileBackward(b);
    const Desc turned({product_.dims()[0], right_.rows(), left_.rows()}, dnnl::memory::data_type::f32,
                      {left_.rows() * right_.rows(), 1, right_.rows()});
    if (left_.needs_gradient()) {
      to_left_ = Multiply(b, b.Use(out_->gradient, product_), b.Use(right_.packed(), right_.desc()),
                          b.Use(left_.gradient(), left_.desc()));
    }
    if (right_.needs_gradient()) {
      to_right_ = Multiply(b, b.Use(out_->gradient, turned), b.Use(left_.packed(), left_.desc()),
                           b.Use(right_.gradient(), right_.desc()));
    }
  }

  void Forward(const Run& run) override {
    left_.Pack(run);
    right_.Pack(run);
    forward_(run);
  }

  void BackwardInputs(const Run& run) override {
    if (to_left_) {
      to_left_(run);
      left_.Unpack(run);
    }
    if (to_right_) {
      to_right_(run);
      right_.Unpack(run);
    }
  }

 private:
  static Rows Side(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, int side) {
    const v1::Dot& dot = node.layer.dot();
    return Rows(b, b.graph().nodes()[node.inputs[side]].output, dot.axes(side), dot.normalize(), in[side]);
  }

  static Call Multiply(PlanBuilder& b, const dnnl::memory& x, const dnnl::memory& y, const dnnl::memory& to) {
    const dnnl::matmul::desc desc(x.get_desc(), y.get_desc(), to.get_desc());
    const dnnl::matmul::primitive_desc pd(desc, b.Attributes(), b.engine());
    return b.MakeCall(pd, dnnl::matmul(pd), {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, y}, {DNNL_ARG_DST, to}});
  }

  Value* const out_;
  Rows left_, right_;
  Desc product_;
  Call forward_, to_left_, to_right_;
};

std::unique_ptr<Op> MakeDot(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  return std::make_unique<DotOp>(b, node, in, out);
}

constexpr Layer kLayers[] = {
    {LayerKind::kDot, CompileAll<MakeDot>},
};

}  // namespace

absl::Span<const Layer> DotLayers() { return kLayers; }

}  // namespace cairn::onednn
