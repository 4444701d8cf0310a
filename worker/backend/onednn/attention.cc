// Scaled dot-product attention between its projections: softmax(q k / sqrt(key_dim)) v for each example and head, as
// matrix products on rows [example, step, head, number], which are not copied. The products of a head run on one
// thread, so that the bits do not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>

#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"
#include "worker/backend/onednn/weights_dropout.h"

namespace cairn::onednn {
namespace {

void Check(dnnl_status_t status) { dnnl::error::wrap_c_api(status, "could not multiply matrices"); }

// Where the matrices of each head are in the tensors. A row of queries, keys or values has all heads one after the
// other; the scores are one matrix for each head.
struct HeadLayout {
  int64_t examples = 0, heads = 0, key_dim = 0, value_dim = 0, queries = 0, keys = 0;

  int64_t key_row() const { return heads * key_dim; }
  int64_t value_row() const { return heads * value_dim; }
  float* Query(Tensor* t, int64_t e, int64_t h) const { return t->data() + (e * queries * heads + h) * key_dim; }
  float* Key(Tensor* t, int64_t e, int64_t h) const { return t->data() + (e * keys * heads + h) * key_dim; }
  float* Val(Tensor* t, int64_t e, int64_t h) const { return t->data() + (e * keys * heads + h) * value_dim; }
  float* Output(Tensor* t, int64_t e, int64_t h) const { return t->data() + (e * queries * heads + h) * value_dim; }
  float* Scores(Tensor* t, int64_t e, int64_t h) const { return t->data() + (e * heads + h) * queries * keys; }

  // Sets the scores that a causal mask hides: for query t those of the keys after t.
  void FillUnseen(float* scores, float value) const {
    for (int64_t t = 0; t < queries; ++t) {
      float* row = scores + t * keys;
      std::fill(row + std::min(t + 1, keys), row + keys, value);
    }
  }

  // Calls fn(example, head) in parallel. An exception must not leave a parallel loop: its status is thrown after the
  // loop.
  template <typename Fn>
  void ForEachHead(Fn fn) const {
    dnnl_status_t failed = dnnl_success;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < examples * heads; ++i) {
      try {
        fn(i / heads, i % heads);
      } catch (const dnnl::error& e) {
#pragma omp critical(cairn_attention)
        failed = e.status;
      }
    }
    Check(failed);
  }
};

HeadLayout LayoutOf(const PlanBuilder& b, const v1::MultiHeadAttention& mha, const Value& query, const Value& key) {
  HeadLayout layout;
  layout.examples = b.examples();
  layout.heads = mha.num_heads();
  layout.key_dim = mha.key_dim();
  layout.value_dim = mha.value_dim();
  layout.queries = query.data->desc.dims()[3];
  layout.keys = key.data->desc.dims()[3];
  return layout;
}

// The masks of steps of query, value and key, combined as in Keras.
class StepMasks {
 public:
  StepMasks(PlanBuilder& b, const Node& node) {
    const int inputs[] = {node.inputs[0], node.inputs[1], node.inputs.back()};
    for (size_t i = 0; i < std::size(inputs); ++i) {
      masks_[i] = b.StepMaskOf(inputs[i]);
      if (masks_[i] != nullptr) b.Use(masks_[i]);
      masked_ |= masks_[i] != nullptr;
    }
  }

  bool any() const { return masked_; }

  // Sets the masked scores of one example and head: those of masked queries and of masked keys and values.
  void FillMasked(const HeadLayout& l, int64_t e, float* scores, float value) const {
    for (int64_t t = 0; t < l.queries; ++t) {
      const bool asks = Counts(0, e * l.queries + t);
      for (int64_t s = 0; s < l.keys; ++s) {
        if (asks && Counts(1, e * l.keys + s) && Counts(2, e * l.keys + s)) continue;
        scores[t * l.keys + s] = value;
      }
    }
  }

 private:
  bool Counts(int input, int64_t step) const { return masks_[input] == nullptr || masks_[input]->data()[step] != 0; }

  Tensor* masks_[3] = {};  // of the steps of query, value and key; null: all count
  bool masked_ = false;
};

// The softmax of each row of the scores, in place.
class RowSoftmax {
 public:
  RowSoftmax(PlanBuilder& b, const Desc& rows) : rows_(rows), weights_(b.New(rows)) {
    const dnnl::softmax_forward::desc desc(b.forward_kind(), rows_, 1);
    forward_desc_ = dnnl::softmax_forward::primitive_desc(desc, b.Attributes(), b.engine());
    forward_ = b.MakeCall(forward_desc_, dnnl::softmax_forward(forward_desc_),
                          {{DNNL_ARG_SRC, weights_->memory}, {DNNL_ARG_DST, weights_->memory}});
  }
  void CompileBackward(PlanBuilder& b) {
    b.Use(weights_);
    gradient_ = b.New(rows_);
    const dnnl::softmax_backward::desc desc(rows_, rows_, 1);
    const dnnl::softmax_backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_desc_);
    if (std::string_view(pd.impl_info_str()) == "ref:any") return;  // SoftmaxRowsBackward has its bits
    backward_ = b.MakeCall(pd, dnnl::softmax_backward(pd),
                           {{DNNL_ARG_DST, weights_->memory},
                            {DNNL_ARG_DIFF_DST, gradient_->memory},
                            {DNNL_ARG_DIFF_SRC, gradient_->memory}});
  }
  void Forward(const Run& run) { forward_(run); }
  void Backward(const Run& run) {
    if (backward_) return backward_(run);
    const dnnl::memory::dims sizes = rows_.dims();
    SoftmaxRowsBackward(weights_->data(), gradient_->data(), sizes[0], sizes[1], gradient_->data());
  }

  Tensor* weights() const { return weights_; }    // the scores before Forward; [examples, heads, queries, keys]
  Tensor* gradient() const { return gradient_; }  // that of the weights before Backward, of the scores after it

 private:
  const Desc rows_;
  Tensor* const weights_;
  Tensor* gradient_ = nullptr;
  dnnl::softmax_forward::primitive_desc forward_desc_;
  Call forward_, backward_;
};

class AttentionOp : public Op {
 public:
  AttentionOp(PlanBuilder& b, const Node& node, Value* query, Value* key, Value* value, Value* out)
      : query_(query),
        key_(key),
        value_(value),
        out_(out),
        layout_(LayoutOf(b, node.layer.multi_head_attention(), *query, *key)),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(layout_.key_dim)))),
        causal_(node.layer.multi_head_attention().use_causal_mask()),
        step_masks_(b, node),
        softmax_(UseInputs(b), RowsOf(layout_)),
        dropout_(b, node, b.groups().Trains(node) ? node.layer.multi_head_attention().dropout() : 0.0f,
                 node.layer.multi_head_attention().seed(), softmax_.weights()) {
    out->data = b.New(PlainDesc(layout_.examples, {layout_.queries, layout_.value_row()}));
  }

  void CompileBackward(PlanBuilder& b) override {
    UseInputs(b);
    dropout_.CompileBackward(b);
    b.Use(out_->gradient);
    softmax_.CompileBackward(b);
    query_sink_ = b.WriteGradient(query_, query_->data->desc);
    key_sink_ = b.WriteGradient(key_, key_->data->desc);
    value_sink_ = b.WriteGradient(value_, value_->data->desc);
  }

  void Forward(const Run& run) override {
    const HeadLayout& l = layout_;
    Tensor* const weights = softmax_.weights();
    l.ForEachHead([&](int64_t e, int64_t h) {
      Check(dnnl_sgemm('N', 'T', l.queries, l.keys, l.key_dim, scale_, l.Query(query_->data, e, h), l.key_row(),
                       l.Key(key_->data, e, h), l.key_row(), 0, l.Scores(weights, e, h), l.keys));
      if (causal_) l.FillUnseen(l.Scores(weights, e, h), -std::numeric_limits<float>::max());
      if (step_masks_.any()) step_masks_.FillMasked(l, e, l.Scores(weights, e, h), -std::numeric_limits<float>::max());
    });
    softmax_.Forward(run);
    if (causal_) l.ForEachHead([&](int64_t e, int64_t h) { l.FillUnseen(l.Scores(weights, e, h), 0.0f); });
    if (step_masks_.any())
      l.ForEachHead([&](int64_t e, int64_t h) { step_masks_.FillMasked(l, e, l.Scores(weights, e, h), 0.0f); });
    dropout_.Forward(run);
    l.ForEachHead([&](int64_t e, int64_t h) {
      Check(dnnl_sgemm('N', 'N', l.queries, l.value_dim, l.keys, 1, l.Scores(dropout_.dropped(), e, h), l.keys,
                       l.Val(value_->data, e, h), l.value_row(), 0, l.Output(out_->data, e, h), l.value_row()));
    });
  }

  void BackwardInputs(const Run& run) override {
    const HeadLayout& l = layout_;
    const int64_t key_row = l.key_row(), value_row = l.value_row();
    Tensor* const gradient = softmax_.gradient();
    l.ForEachHead([&](int64_t e, int64_t h) {
      const float* dy = l.Output(out_->gradient, e, h);
      Check(dnnl_sgemm('T', 'N', l.keys, l.value_dim, l.queries, 1, l.Scores(dropout_.dropped(), e, h), l.keys, dy,
                       value_row, 0, l.Val(value_sink_.tensor, e, h), value_row));
      Check(dnnl_sgemm('N', 'T', l.queries, l.keys, l.value_dim, 1, dy, value_row, l.Val(value_->data, e, h), value_row,
                       0, l.Scores(gradient, e, h), l.keys));
    });
    if (const Tensor* const factors = dropout_.factors()) {
      Multiply(gradient->data(), factors->data(), gradient->data(), factors->numbers());
    }
    softmax_.Backward(run);
    l.ForEachHead([&](int64_t e, int64_t h) {
      const float* ds = l.Scores(gradient, e, h);
      Check(dnnl_sgemm('N', 'N', l.queries, l.key_dim, l.keys, scale_, ds, l.keys, l.Key(key_->data, e, h), key_row, 0,
                       l.Query(query_sink_.tensor, e, h), key_row));
      Check(dnnl_sgemm('T', 'N', l.keys, l.key_dim, l.queries, scale_, ds, l.keys, l.Query(query_->data, e, h), key_row,
                       0, l.Key(key_sink_.tensor, e, h), key_row));
    });
    for (const Sink* sink : {&query_sink_, &key_sink_, &value_sink_}) sink->Finish(run);
  }

 private:
  static Desc RowsOf(const HeadLayout& l) { return MakeDesc({l.examples * l.heads * l.queries, l.keys}, Tag::nc); }
  PlanBuilder& UseInputs(PlanBuilder& b) const {
    for (const Value* in : {query_, key_, value_}) b.Use(in->data);
    return b;
  }

  Value* const query_;
  Value* const key_;
  Value* const value_;
  Value* const out_;
  const HeadLayout layout_;
  const float scale_;
  const bool causal_;
  const StepMasks step_masks_;
  RowSoftmax softmax_;
  WeightsDropout dropout_;
  Sink query_sink_, key_sink_, value_sink_;
};

}  // namespace

std::unique_ptr<Op> MakeAttention(PlanBuilder& b, const Node& node, Value* query, Value* key, Value* value,
                                  Value* out) {
  return std::make_unique<AttentionOp>(b, node, query, key, value, out);
}

namespace {

// Three projections, attention between them, and the projection of its output.
void CompileAttention(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  const v1::MultiHeadAttention& mha = node.layer.multi_head_attention();
  const int64_t steps = node.output[0], keys = b.graph().nodes()[node.inputs.back()].output[0];
  const int each = mha.use_bias() ? 2 : 1;  // variables of a projection
  const auto project = [&](int number, Shape output, Value* from, Value* to) {
    std::vector<int> ids(node.variables.begin() + number * each, node.variables.begin() + (number + 1) * each);
    const Projection projection{&b.graph().variables()[ids[0]], each == 2 ? &b.graph().variables()[ids[1]] : nullptr,
                                output[1], output};
    b.AddOp(std::move(ids), to, MakeDense(b, projection, {}, from, to));
    return to;
  };
  const int64_t key_width = int64_t{mha.num_heads()} * mha.key_dim();
  const int64_t value_width = int64_t{mha.num_heads()} * mha.value_dim();
  const auto inner = [&] { return b.NewInnerValue(out->needs_gradient); };
  Value* query = project(0, {steps, key_width}, in[0], inner());
  Value* key = project(1, {keys, key_width}, in.back(), inner());
  Value* value = project(2, {keys, value_width}, in[1], inner());
  Value* heads = inner();
  b.AddOp({}, heads, MakeAttention(b, node, query, key, value, heads));
  project(3, {steps, node.output[1]}, heads, out);
}

constexpr Layer kLayers[] = {
    {LayerKind::kMultiHeadAttention, CompileAttention},
};

}  // namespace

absl::Span<const Layer> AttentionLayers() { return kLayers; }

}  // namespace cairn::onednn
