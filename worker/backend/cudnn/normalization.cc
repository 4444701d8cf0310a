// Batch, layer and group normalization.
#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {

kernels::Normalized Builder::Normalization::At(const Run& r) const {
  return {r.At<>(x), r.At<float>(mean), r.At<float>(variance), r.At<float>(scale), r.At<float>(offset), epsilon};
}

// Where they are the moving statistics, as in Keras, the gradients of those are not written.
Builder::Normalization Builder::EmitStatistics(const Node& node, Value* in, Value* out) {
  const DType t = out->type;
  const int64_t channels = node.output.back(), rows = out->numbers / channels;
  const Variable *moving_mean = Find(node, "moving_mean"), *moving_variance = Find(node, "moving_variance");
  Normalization n;
  n.in = in;
  n.x = Read(*in, t);
  n.mean = ValueOf(moving_mean);
  n.variance = ValueOf(moving_variance);
  n.scale = ValueOf(Find(node, "gamma"));
  n.offset = ValueOf(Find(node, "beta"));
  n.epsilon = node.layer.batch_normalization().epsilon();
  if (!TakesStatistics(node)) return n;
  const Ref x = n.x, mean = n.mean = NewNumbers(channels, DType::kFloat32),
            variance = n.variance = NewNumbers(channels, DType::kFloat32);
  const Ref scratch = Scratch(kernels::BatchStatisticsScratch(rows, channels));
  // The gradients of the moving averages do not come from behind.
  const Ref of_mean = GradientOf(moving_mean), of_variance = GradientOf(moving_variance);
  const Node& producer = graph_.nodes()[node.inputs[0]];
  const Ref bias = BiasGoesToNormalization(producer) ? ValueOf(Find(producer, "bias")) : Ref{};
  const auto count = static_cast<float>(examples());
  Emit(absl::StrCat("statistics ", rows, "x", channels), {x, bias}, {mean, variance, of_mean, of_variance, scratch},
       [=](const Run& r) {
         return kernels::BatchStatistics(
             r.stream(), rows, channels, r.At<>(x), r.At<float>(mean), r.At<float>(variance),
             {count, r.At<float>(bias), r.At<float>(of_mean), r.At<float>(of_variance)}, r.At<float>(scratch), t);
       });
  return n;
}

// With the Add and the relu behind it, where nothing else reads what stands between, and with the other batch
// normalization of the Add.
void Builder::LowerBatchNormalization(const Node& node, Value* in, Value* out) {
  const DType t = out->type;
  const int64_t channels = node.output.back(), rows = out->numbers / channels;
  const Normalization a = EmitStatistics(node, in, out);
  if (NormalizedByOther(node)) {
    postponed_[node.id] = a;
    return;
  }
  // What joined it.
  Normalization b;
  Value* residual = nullptr;
  const Node* last = &node;
  if (const Node* next = OnlyReader(*last); next != nullptr && next->kind == LayerKind::kAdd && joined_[next->id]) {
    const int other = next->inputs[0] == node.id ? next->inputs[1] : next->inputs[0];
    // The later of the Add's inputs computes it.
    if (other < node.id) {
      last = next;
      const auto postponed = postponed_.find(other);
      if (postponed != postponed_.end()) {
        b = postponed->second;
      } else {
        residual = node_values_[other];
      }
    }
  }
  const Node* next = OnlyReader(*last);
  const bool relu = next != nullptr && next->kind == LayerKind::kActivation && joined_[next->id] &&
                    ActivationOf(*next).kind == v1::RELU;

  const Ref added = residual != nullptr ? Read(*residual, t) : Ref{}, y = NewLike(*out);
  // Without something added backward computes from x what the relu let through.
  const bool joins = residual != nullptr || b.in != nullptr;
  const Ref passed = training() && relu && joins ? New(kernels::PassedBytes(rows, channels)) : Ref{};
  out->data = y;
  std::vector<Ref> reads = a.Reads();
  reads.push_back(added);
  if (b.in != nullptr) {
    for (const Ref& ref : b.Reads()) reads.push_back(ref);
  }
  Emit(absl::StrCat("normalize",
                    b.in != nullptr       ? " both"
                    : residual != nullptr ? " add"
                                          : "",
                    relu ? " relu" : ""),
       std::move(reads), {y, passed}, [=](const Run& r) {
         return kernels::BatchNormalization(r.stream(), rows, channels, a.At(r), b.At(r), r.At<>(added), relu,
                                            r.At<>(y), r.At<uint8_t>(passed), t);
       });
  if (!training()) return;
  const Node* const other =
      b.in != nullptr ? &graph_.nodes()[last->inputs[0] == node.id ? last->inputs[1] : last->inputs[0]] : nullptr;
  Backward([=, this, &node] { LowerNormalizationBackward(node, other, a, b, residual, relu, passed, out); });
}

void Builder::LowerNormalizationBackward(const Node& node, const Node* other, Normalization a, Normalization b,
                                         Value* residual, bool relu, const Ref& passed, Value* out) {
  const DType t = out->type;
  const int64_t channels = node.output.back(), rows = out->numbers / channels;
  const bool constant = !TakesStatistics(node);
  const Ref dy = out->gradient;
  std::vector<Ref> reads = a.Reads();
  reads.insert(reads.end(), {passed, dy});
  const char* const both = other != nullptr ? " both" : "";
  if (other != nullptr) {
    for (const Ref& ref : b.Reads()) reads.push_back(ref);
  }
  if (!Frozen(node)) {
    // Written to the parameter space where the layer has such variables, else to a buffer: dx needs the sums.
    const auto sum = [&](const Node& of, const char* name) {
      const Variable* v = Find(of, name);
      return v != nullptr ? GradientOf(v) : NewNumbers(channels, DType::kFloat32);
    };
    a.dgamma = sum(node, "gamma");
    a.dbeta = sum(node, "beta");
    if (other != nullptr) {
      b.dgamma = sum(*other, "gamma");
      b.dbeta = sum(*other, "beta");
    }
    const Ref scratch = Scratch(kernels::BatchStatisticsScratch(rows, channels));
    Emit(absl::StrCat("normalize sums", both, relu ? " relu" : ""), reads,
         {a.dgamma, a.dbeta, b.dgamma, b.dbeta, scratch}, [=](const Run& r) {
           return kernels::BatchNormalizationSums(
               r.stream(), rows, channels, a.At(r), b.At(r), relu, r.At<uint8_t>(passed), r.At<>(dy),
               {r.At<float>(a.dgamma), r.At<float>(a.dbeta)}, {r.At<float>(b.dgamma), r.At<float>(b.dbeta)},
               r.At<float>(scratch), t);
         });
  }
  const auto sink = [&](Value* v) { return v != nullptr && v->needs_gradient ? GradientSink(v) : Sink{}; };
  const Sink da = sink(a.in), db = sink(b.in), dr = sink(residual);
  if (!da.ref && !db.ref && !dr.ref) return;
  reads.insert(reads.end(), {a.dgamma, a.dbeta, b.dgamma, b.dbeta});
  for (const Sink& s : {da, db, dr}) {
    if (s.add) reads.push_back(s.ref);
  }
  Emit(absl::StrCat("normalize backward", both, relu ? " relu" : "", da.add ? " add" : "", db.add ? " add" : "",
                    dr.add ? " add" : ""),
       std::move(reads), {da.ref, db.ref, dr.ref}, [=](const Run& r) {
         return kernels::BatchNormalizationBackward(
             r.stream(), rows, channels, a.At(r), b.At(r), relu, r.At<uint8_t>(passed), r.At<>(dy),
             {r.At<float>(a.dgamma), r.At<float>(a.dbeta), r.At<>(da.ref), da.add},
             {r.At<float>(b.dgamma), r.At<float>(b.dbeta), r.At<>(db.ref), db.add}, constant, r.At<>(dr.ref), dr.add,
             t);
       });
}

void Builder::LowerGroupNormalization(const Node& node, Value* in, Value* out) {
  const DType t = out->type;
  const int64_t channels = node.output.back();
  const bool layer = node.kind == LayerKind::kLayerNormalization;
  // A layer normalization is that of one group, each row an example.
  const int64_t outer = layer ? out->numbers / channels : examples();
  const int64_t positions = out->numbers / channels / outer;
  const int64_t groups = layer ? 1 : node.layer.group_normalization().groups();
  const float epsilon = layer ? node.layer.layer_normalization().epsilon() : node.layer.group_normalization().epsilon();
  const Variable* gamma = Find(node, "gamma");
  const Variable* beta = Find(node, "beta");
  const bool frozen = Frozen(node);
  const Ref x = Read(*in, t), y = NewLike(*out), scale = ValueOf(gamma), offset = ValueOf(beta);
  const Ref mean = NewNumbers(outer * groups, DType::kFloat32), factor = NewNumbers(outer * groups, DType::kFloat32);
  const std::string text = absl::StrCat(outer, "x", positions, "x", channels, " groups ", groups);
  out->data = y;
  Emit(absl::StrCat("group normalize ", text), {x, scale, offset}, {y, mean, factor}, [=](const Run& r) {
    return kernels::GroupNormalization(r.stream(), outer, positions, channels, groups, epsilon, r.At<>(x),
                                       r.At<float>(scale), r.At<float>(offset), r.At<>(y), r.At<float>(mean),
                                       r.At<float>(factor), t);
  });
  if (!training()) return;
  Backward([=, this] {
    const Ref dy = out->gradient, scratch = Scratch(kernels::GroupNormalizationScratch(outer, positions, channels));
    const Ref dgamma = frozen ? Ref{} : GradientOf(gamma), dbeta = frozen ? Ref{} : GradientOf(beta);
    const Sink dx = in->needs_gradient ? GradientSink(in) : Sink{};
    std::vector<Ref> reads = {x, scale, mean, factor, dy};
    if (dx.add) reads.push_back(dx.ref);
    Emit(absl::StrCat("group normalize backward ", text, dx.add ? " add" : ""), std::move(reads),
         {dx.ref, dgamma, dbeta, scratch}, [=](const Run& r) {
           return kernels::GroupNormalizationBackward(r.stream(), outer, positions, channels, groups, r.At<>(x),
                                                      r.At<float>(scale), r.At<float>(mean), r.At<float>(factor),
                                                      r.At<>(dy), r.At<>(dx.ref), r.At<float>(dgamma),
                                                      r.At<float>(dbeta), r.At<float>(scratch), t, dx.add);
         });
  });
}

}  // namespace cairn::cudnn
