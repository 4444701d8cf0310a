// Scaled dot-product attention between its projections: softmax(q k / sqrt(key_dim)) v for each example and head, as
// matrix products on the rows where they lie ([example, step, head, number]). Each head's products run on one thread,
// so that the bits do not depend on how many there are.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

void Check(dnnl_status_t status) { dnnl::error::wrap_c_api(status, "could not multiply matrices"); }

class AttentionOp : public Op {
 public:
  AttentionOp(PlanBuilder& b, const Node& node, Value* query, Value* key, Value* value, Value* out)
      : node_(node), query_(query), key_(key), value_(value), out_(out), examples_(b.examples()) {
    const v1::MultiHeadAttention& mha = node.layer.multi_head_attention();
    heads_ = mha.num_heads();
    key_dim_ = mha.key_dim();
    value_dim_ = mha.value_dim();
    queries_ = query->data->desc.dims()[3];
    keys_ = key->data->desc.dims()[3];
    causal_ = mha.use_causal_mask();
    rate_ = b.Trains(node) ? mha.dropout() : 0.0f;
    scale_ = static_cast<float>(1 / std::sqrt(static_cast<double>(key_dim_)));
    for (Value* in : {query, key, value}) b.Use(in->data);
    // Of query, value and key, as Keras joins them.
    const int inputs[] = {node.inputs[0], node.inputs[1], node.inputs.back()};
    for (size_t i = 0; i < std::size(inputs); ++i) {
      masks_[i] = b.StepMaskOf(inputs[i]);
      if (masks_[i] != nullptr) b.Use(masks_[i]);
      masked_ |= masks_[i] != nullptr;
    }
    rows_ = MakeDesc({examples_ * heads_ * queries_, keys_}, Tag::nc);
    weights_ = dropped_ = b.New(rows_);
    const dnnl::softmax_forward::desc desc(b.forward_kind(), rows_, 1);
    softmax_desc_ = dnnl::softmax_forward::primitive_desc(desc, b.Attributes(), b.engine());
    softmax_ = b.MakeCall(softmax_desc_, dnnl::softmax_forward(softmax_desc_),
                          {{DNNL_ARG_SRC, weights_->memory}, {DNNL_ARG_DST, weights_->memory}});
    if (rate_ > 0) {
      mask_ = b.New(rows_);
      dropped_ = b.New(rows_);
    }
    out->data = b.New(PlainDesc(examples_, {queries_, heads_ * value_dim_}));
  }

  void CompileBackward(PlanBuilder& b) override {
    for (Value* in : {query_, key_, value_}) b.Use(in->data);
    for (Tensor* tensor : {weights_, dropped_, out_->gradient}) b.Use(tensor);
    if (mask_ != nullptr) b.Use(mask_);
    scores_gradient_ = b.New(rows_);
    const dnnl::softmax_backward::desc desc(rows_, rows_, 1);
    const dnnl::softmax_backward::primitive_desc pd(desc, b.Attributes(), b.engine(), softmax_desc_);
    softmax_backward_ = b.MakeCall(pd, dnnl::softmax_backward(pd),
                                   {{DNNL_ARG_DST, weights_->memory},
                                    {DNNL_ARG_DIFF_DST, scores_gradient_->memory},
                                    {DNNL_ARG_DIFF_SRC, scores_gradient_->memory}});
    query_sink_ = b.WriteGradient(query_, query_->data->desc);
    key_sink_ = b.WriteGradient(key_, key_->data->desc);
    value_sink_ = b.WriteGradient(value_, value_->data->desc);
  }

  void Forward(const Run& run) override {
    ForEachHead([&](int64_t e, int64_t h) {
      Check(dnnl_sgemm('N', 'T', queries_, keys_, key_dim_, scale_, Query(query_->data, e, h), heads_ * key_dim_,
                       Key(key_->data, e, h), heads_ * key_dim_, 0, Scores(weights_, e, h), keys_));
      if (causal_) FillUnseen(Scores(weights_, e, h), -std::numeric_limits<float>::max());
      if (masked_) FillMasked(e, Scores(weights_, e, h), -std::numeric_limits<float>::max());
    });
    softmax_(run);
    if (causal_) ForEachHead([&](int64_t e, int64_t h) { FillUnseen(Scores(weights_, e, h), 0.0f); });
    if (masked_) ForEachHead([&](int64_t e, int64_t h) { FillMasked(e, Scores(weights_, e, h), 0.0f); });
    if (mask_ != nullptr) {
      DropoutFactors(run.info, node_.id, rate_, mask_->numbers(), mask_->data());
      Multiply(weights_->data(), mask_->data(), dropped_->data(), mask_->numbers());
    }
    ForEachHead([&](int64_t e, int64_t h) {
      Check(dnnl_sgemm('N', 'N', queries_, value_dim_, keys_, 1, Scores(dropped_, e, h), keys_, Val(value_->data, e, h),
                       heads_ * value_dim_, 0, Output(out_->data, e, h), heads_ * value_dim_));
    });
  }

  void BackwardInputs(const Run& run) override {
    const int64_t key_row = heads_ * key_dim_, value_row = heads_ * value_dim_;
    ForEachHead([&](int64_t e, int64_t h) {
      const float* dy = Output(out_->gradient, e, h);
      Check(dnnl_sgemm('T', 'N', keys_, value_dim_, queries_, 1, Scores(dropped_, e, h), keys_, dy, value_row, 0,
                       Val(value_sink_.tensor, e, h), value_row));
      Check(dnnl_sgemm('N', 'T', queries_, keys_, value_dim_, 1, dy, value_row, Val(value_->data, e, h), value_row, 0,
                       Scores(scores_gradient_, e, h), keys_));
    });
    if (mask_ != nullptr) {
      Multiply(scores_gradient_->data(), mask_->data(), scores_gradient_->data(), mask_->numbers());
    }
    softmax_backward_(run);
    ForEachHead([&](int64_t e, int64_t h) {
      const float* ds = Scores(scores_gradient_, e, h);
      Check(dnnl_sgemm('N', 'N', queries_, key_dim_, keys_, scale_, ds, keys_, Key(key_->data, e, h), key_row, 0,
                       Query(query_sink_.tensor, e, h), key_row));
      Check(dnnl_sgemm('T', 'N', keys_, key_dim_, queries_, scale_, ds, keys_, Query(query_->data, e, h), key_row, 0,
                       Key(key_sink_.tensor, e, h), key_row));
    });
    for (const Sink* sink : {&query_sink_, &key_sink_, &value_sink_}) sink->Finish(run);
  }

 private:
  float* Query(Tensor* t, int64_t e, int64_t h) const { return t->data() + (e * queries_ * heads_ + h) * key_dim_; }
  float* Key(Tensor* t, int64_t e, int64_t h) const { return t->data() + (e * keys_ * heads_ + h) * key_dim_; }
  float* Val(Tensor* t, int64_t e, int64_t h) const { return t->data() + (e * keys_ * heads_ + h) * value_dim_; }
  float* Output(Tensor* t, int64_t e, int64_t h) const { return t->data() + (e * queries_ * heads_ + h) * value_dim_; }
  float* Scores(Tensor* t, int64_t e, int64_t h) const { return t->data() + (e * heads_ + h) * queries_ * keys_; }

  void FillUnseen(float* scores, float value) const {
    for (int64_t t = 0; t < queries_; ++t) {
      float* row = scores + t * keys_;
      std::fill(row + std::min(t + 1, keys_), row + keys_, value);
    }
  }

  // What a masked query sees, and what is seen of masked keys.
  void FillMasked(int64_t e, float* scores, float value) const {
    const auto counts = [e](const Tensor* mask, int64_t steps, int64_t step) {
      return mask == nullptr || mask->data()[e * steps + step] != 0;
    };
    for (int64_t t = 0; t < queries_; ++t) {
      const bool asks = counts(masks_[0], queries_, t);
      for (int64_t s = 0; s < keys_; ++s) {
        if (asks && counts(masks_[1], keys_, s) && counts(masks_[2], keys_, s)) continue;
        scores[t * keys_ + s] = value;
      }
    }
  }

  // In parallel. An exception may not leave a parallel loop: the first one's status is kept and thrown after it.
  template <typename Fn>
  void ForEachHead(Fn fn) const {
    dnnl_status_t failed = dnnl_success;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < examples_ * heads_; ++i) {
      try {
        fn(i / heads_, i % heads_);
      } catch (const dnnl::error& e) {
#pragma omp critical(cairn_attention)
        failed = e.status;
      }
    }
    Check(failed);
  }

  const Node& node_;
  Value* const query_;
  Value* const key_;
  Value* const value_;
  Value* const out_;
  const int64_t examples_;
  int64_t heads_ = 0, key_dim_ = 0, value_dim_ = 0, queries_ = 0, keys_ = 0;
  bool causal_ = false, masked_ = false;
  Tensor* masks_[3] = {};  // of the steps of query, value and key; null: all count
  float rate_ = 0, scale_ = 0;
  Desc rows_;
  dnnl::softmax_forward::primitive_desc softmax_desc_;
  Tensor* weights_ = nullptr;  // the softmax: [examples, heads, queries, keys]
  Tensor* dropped_ = nullptr;  // weights_ times mask_, or weights_ itself
  Tensor* mask_ = nullptr;     // null: no dropout
  Tensor* scores_gradient_ = nullptr;
  Call softmax_, softmax_backward_;
  Sink query_sink_, key_sink_, value_sink_;
};

}  // namespace

std::unique_ptr<Op> MakeAttention(PlanBuilder& b, const Node& node, Value* query, Value* key, Value* value,
                                  Value* out) {
  return std::make_unique<AttentionOp>(b, node, query, key, value, out);
}

namespace {

// Three projections, what mixes them, and the projection of that.
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
