// Attention and AdditiveAttention (worker/backend/score_attention.h).
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/kernels/tensors.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"
#include "worker/backend/score_attention.h"

namespace cairn::cudnn {
namespace {

class ScoreLowering {
 public:
  ScoreLowering(Builder& b, const Node& node)
      : b_(b),
        node_(node),
        a_(ScoreAttentionOf(node, b.ShapeOf(node, 0), b.ShapeOf(node, 1))),
        q_(b.In(node, 0)),
        v_(b.In(node, 1)),
        k_(b.In(node, node.inputs.size() - 1)),
        out_(b.Out(node)),
        scale_(b.Find(node, "scale")),
        weight_(b.Find(node, "concat_score_weight")),
        t_(b.type()),
        n_(b.examples()),
        rate_(b.groups().Trains(node) ? a_.dropout : 0.0f) {}

  void Lower() {
    p_.x = b_.Read(*q_, t_), p_.y = b_.Read(*k_, t_), p_.z = b_.Read(*v_, t_);
    const Ref scores = Score(), weights = p_.weights = b_.NewNumbers(count(), t_);
    b_.Emit(a_.causal ? "causal softmax" : "softmax", {scores}, {weights},
            [=, rows = n_ * a_.queries, keys = a_.keys, causal = a_.causal ? a_.queries : 0, t = t_](const Run& r) {
              return kernels::Softmax(r.stream(), rows, keys, causal, r.At<>(scores), r.At<>(weights), t);
            });
    p_.dropped = rate_ > 0 ? b_.NewNumbers(count(), t_) : weights;
    if (rate_ > 0) Drop(weights, p_.dropped);
    out_->data = b_.NewLike(*out_);
    Multiply({.m = a_.queries, .n = a_.values, .k = a_.keys}, p_.dropped, p_.z, {out_->data});
    if (out_->needs_gradient) b_.Backward([self = *this] { self.LowerBackward(); });
  }

 private:
  int64_t count() const { return n_ * a_.queries * a_.keys; }
  bool bent() const { return a_.score != ScoreAttention::kDot; }

  void Multiply(Product product, const Ref& a, const Ref& b, const Builder::Sink& c) const {
    product.batch = n_;
    product.out = t_;
    EmitProduct(b_, product, a, b, c.ref, c.add);
  }
  // Backward draws the same mask again.
  void Drop(const Ref& from, const Ref& to) const {
    const Ref key = KeyOf(b_);
    b_.Emit(absl::StrCat("dropout ", rate_), {from, key}, {to},
            [=, n = count(), draw = kernels::Draw{node_.id, rate_, a_.seed}, t = t_](const Run& r) {
              return kernels::Dropout(r.stream(), n, r.At<kernels::StepKey>(key), draw, r.At<>(from), r.At<>(to), t,
                                      false);
            });
  }
  // to = from * b, with one number b for all (shared), or one for each.
  void Times(const Ref& from, const Ref& b, bool shared, const Ref& to, DType to_type) const {
    kernels::Operation o;
    o.op = kernels::Op::kMultiply;
    o.dims.of[kernels::kAxesMax - 1] = count();
    o.count = 2;
    o.of[0] = {nullptr, t_, {}};
    o.of[1] = {nullptr, shared ? DType::kFloat32 : t_, {}};
    o.of[0].strides.of[kernels::kAxesMax - 1] = 1;
    o.of[1].strides.of[kernels::kAxesMax - 1] = shared ? 0 : 1;
    b_.Emit("multiply", {from, b}, {to}, [=](const Run& r) {
      kernels::Operation with = o;
      with.of[0].x = r.At<>(from);
      with.of[1].x = r.At<>(b);
      return kernels::Operate(r.stream(), with, r.At<>(to), to_type);
    });
  }

  kernels::BentScores BentOf() const {
    kernels::BentScores s;
    s.additive = a_.score == ScoreAttention::kAdditive;
    s.examples = n_;
    s.queries = a_.queries;
    s.keys = a_.keys;
    s.features = a_.features;
    return s;
  }
  // Emits launch(run, scores with their variables); its launches read what they name and the variables.
  template <typename Launch>
  void EmitBent(const char* what, std::vector<Ref> reads, std::vector<Ref> writes, const Launch& launch) const {
    const Ref scale = b_.ValueOf(scale_), weight = b_.ValueOf(weight_);
    reads.insert(reads.end(), {p_.x, p_.y, scale, weight});
    b_.Emit(what, std::move(reads), std::move(writes), [=, s = BentOf()](const Run& r) {
      kernels::BentScores with = s;
      with.scale = r.At<float>(scale);
      with.weight = r.At<float>(weight);
      return launch(r, with);
    });
  }

  Ref Score() {
    const Ref scores = b_.NewNumbers(count(), t_);
    if (bent()) {
      EmitBent("scores", {}, {scores}, [=, x = p_.x, y = p_.y, t = t_](const Run& r, const kernels::BentScores& s) {
        return kernels::ScoreBent(r.stream(), s, r.At<>(x), r.At<>(y), r.At<>(scores), t);
      });
      return scores;
    }
    Multiply({.m = a_.queries, .n = a_.keys, .k = a_.features, .transpose_b = true}, p_.x, p_.y, {scores});
    if (scale_ == nullptr) return scores;
    p_.products = scores;
    const Ref scaled = b_.NewNumbers(count(), t_);
    Times(scores, b_.ValueOf(scale_), /*shared=*/true, scaled, t_);
    return scaled;
  }

  void LowerBackward() const {
    const Ref dy = out_->gradient, d = b_.NewNumbers(count(), t_);
    Multiply({.m = a_.queries, .n = a_.keys, .k = a_.values, .transpose_b = true}, dy, p_.z, {d});
    if (v_->needs_gradient) {
      Multiply({.m = a_.keys, .n = a_.values, .k = a_.queries, .transpose_a = true}, p_.dropped, dy,
               b_.GradientSink(v_));
    }
    if (rate_ > 0) Drop(d, d);
    b_.Emit("softmax backward", {p_.weights, d}, {d},
            [weights = p_.weights, d, rows = n_ * a_.queries, keys = a_.keys, t = t_](const Run& r) {
              return kernels::SoftmaxBackward(r.stream(), rows, keys, r.At<>(weights), r.At<>(d), r.At<>(d), t, false);
            });
    bent() ? BentBackward(d) : DotBackward(d);
  }

  void DotBackward(const Ref& d) const {
    Ref scaled = d;
    if (scale_ != nullptr) {
      scaled = b_.NewNumbers(count(), t_);
      Times(d, b_.ValueOf(scale_), /*shared=*/true, scaled, t_);
      if (!b_.Frozen(b_.current())) {
        const Ref terms = b_.NewNumbers(count(), DType::kFloat32);
        Times(d, p_.products, /*shared=*/false, terms, DType::kFloat32);
        EmitColumnSums(b_, terms, count(), 1, b_.GradientOf(scale_), DType::kFloat32);
      }
    }
    if (q_->needs_gradient)
      Multiply({.m = a_.queries, .n = a_.features, .k = a_.keys}, scaled, p_.y, b_.GradientSink(q_));
    if (!k_->needs_gradient) return;
    Multiply({.m = a_.keys, .n = a_.features, .k = a_.queries, .transpose_a = true}, scaled, p_.x, b_.GradientSink(k_));
  }

  void BentBackward(const Ref& d) const {
    for (const bool of_queries : {true, false}) {
      Value* const of = of_queries ? q_ : k_;
      if (!of->needs_gradient) continue;
      const Builder::Sink dx = b_.GradientSink(of);
      std::vector<Ref> reads = {d};
      if (dx.add) reads.push_back(dx.ref);
      EmitBent("scores backward", std::move(reads), {dx.ref},
               [=, x = p_.x, y = p_.y, t = t_](const Run& r, const kernels::BentScores& s) {
                 return kernels::ScoreBentBackward(r.stream(), s, of_queries, r.At<>(x), r.At<>(y), r.At<>(d),
                                                   r.At<>(dx.ref), t, dx.add);
               });
    }
    if (b_.Frozen(b_.current()) || (scale_ == nullptr && weight_ == nullptr)) return;
    const int64_t rows = n_ * a_.queries, numbers = rows * a_.features;
    const bool additive = a_.score == ScoreAttention::kAdditive;
    const Ref bent = b_.NewNumbers(numbers, DType::kFloat32),
              slopes = !additive && scale_ != nullptr ? b_.NewNumbers(numbers, DType::kFloat32) : Ref{};
    EmitBent("sums of scores", {d}, {bent, slopes},
             [=, x = p_.x, y = p_.y, t = t_](const Run& r, const kernels::BentScores& s) {
               return kernels::ScoreBentSums(r.stream(), s, r.At<>(x), r.At<>(y), r.At<>(d), r.At<float>(bent),
                                             r.At<float>(slopes), t);
             });
    if (additive) return EmitColumnSums(b_, bent, rows, a_.features, b_.GradientOf(scale_), DType::kFloat32);
    if (scale_ != nullptr) EmitColumnSums(b_, slopes, numbers, 1, b_.GradientOf(scale_), DType::kFloat32);
    if (weight_ != nullptr) EmitColumnSums(b_, bent, numbers, 1, b_.GradientOf(weight_), DType::kFloat32);
  }

  Builder& b_;
  const Node& node_;
  const ScoreAttention a_;
  Value *const q_, *const v_, *const k_, *const out_;
  const Variable *const scale_, *const weight_;
  const DType t_;
  const int64_t n_;
  const float rate_;
  struct Parts {
    Ref x, y, z;   // query, key and value
    Ref products;  // a DOT's scores before they are scaled
    Ref weights, dropped;
  };
  Parts p_;
};

constexpr Layer kLayers[] = {
    {LayerKind::kAttention, [](Builder& b, const Node& node) { ScoreLowering(b, node).Lower(); }},
    {LayerKind::kAdditiveAttention, [](Builder& b, const Node& node) { ScoreLowering(b, node).Lower(); }},
};

}  // namespace

absl::Span<const Layer> AttentionLayers() { return kLayers; }

}  // namespace cairn::cudnn
