// Batch, layer and group normalization.
#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"

namespace cairn::cudnn {

kernels::Normalized Normalization::At(const Run& r) const {
  return {r.At<>(x), r.At<float>(mean), r.At<float>(variance), r.At<float>(scale), r.At<float>(offset), epsilon};
}

namespace {

// Emits the statistics of the batch and the gradients of the moving ones. If the layer uses the moving statistics, it
// emits nothing, and as in Keras they have no gradients.
Normalization EmitStatistics(Builder& builder, const Node& node, Value* in, Value* out) {
  const DType t = out->type;
  const int64_t channels = node.output.back(), rows = out->numbers / channels;
  const Variable *moving_mean = builder.Find(node, "moving_mean"),
                 *moving_variance = builder.Find(node, "moving_variance");
  Normalization n;
  n.in = in;
  n.x = builder.Read(*in, t);
  n.mean = builder.ValueOf(moving_mean);
  n.variance = builder.ValueOf(moving_variance);
  n.scale = builder.ValueOf(builder.Find(node, "gamma"));
  n.offset = builder.ValueOf(builder.Find(node, "beta"));
  n.epsilon = node.layer.batch_normalization().epsilon();
  if (!builder.groups().TakesStatistics(node)) return n;
  const Ref x = n.x, mean = n.mean = builder.NewNumbers(channels, DType::kFloat32),
            variance = n.variance = builder.NewNumbers(channels, DType::kFloat32);
  const Ref scratch = builder.Scratch(kernels::BatchStatisticsScratch(rows, channels));
  // The gradients of the moving averages are computed in the forward pass.
  const Ref of_mean = builder.GradientOf(moving_mean), of_variance = builder.GradientOf(moving_variance);
  const Node& producer = builder.NodeAt(node.inputs[0]);
  const Ref bias =
      builder.groups().BiasGoesToNormalization(producer) ? builder.ValueOf(builder.Find(producer, "bias")) : Ref{};
  const auto count = static_cast<float>(builder.examples());
  builder.Emit(absl::StrCat("statistics ", rows, "x", channels), {x, bias},
               {mean, variance, of_mean, of_variance, scratch}, [=](const Run& r) {
                 return kernels::BatchStatistics(
                     r.stream(), rows, channels, r.At<>(x), r.At<float>(mean), r.At<float>(variance),
                     {count, r.At<float>(bias), r.At<float>(of_mean), r.At<float>(of_variance)}, r.At<float>(scratch),
                     t);
               });
  return n;
}

// The normalizations that one launch computed.
struct Normalized {
  const Node *node, *other;  // other: the node of b; null: none
  Normalization a, b;
  Value* residual;  // what was added; null: nothing
  bool relu;
  Ref passed;
  Value* out;
};

void LowerNormalizationBackward(Builder& builder, const Normalized& normalized) {
  const Node& node = *normalized.node;
  const Node* const other = normalized.other;
  Normalization a = normalized.a, b = normalized.b;
  Value *const residual = normalized.residual, *const out = normalized.out;
  const bool relu = normalized.relu;
  const Ref passed = normalized.passed;
  const DType t = out->type;
  const int64_t channels = node.output.back(), rows = out->numbers / channels;
  const bool constant = !builder.groups().TakesStatistics(node);
  const Ref dy = out->gradient;
  std::vector<Ref> reads = a.Reads();
  reads.insert(reads.end(), {passed, dy});
  const char* const both = other != nullptr ? " both" : "";
  if (other != nullptr) {
    for (const Ref& ref : b.Reads()) reads.push_back(ref);
  }
  if (!builder.Frozen(node)) {
    // In the parameter space if the layer has such variables, else in a buffer: dx needs the sums.
    const auto sum = [&](const Node& of, const char* name) {
      const Variable* v = builder.Find(of, name);
      return v != nullptr ? builder.GradientOf(v) : builder.NewNumbers(channels, DType::kFloat32);
    };
    a.dgamma = sum(node, "gamma");
    a.dbeta = sum(node, "beta");
    if (other != nullptr) {
      b.dgamma = sum(*other, "gamma");
      b.dbeta = sum(*other, "beta");
    }
    const Ref scratch = builder.Scratch(kernels::BatchStatisticsScratch(rows, channels));
    builder.Emit(absl::StrCat("normalize sums", both, relu ? " relu" : ""), reads,
                 {a.dgamma, a.dbeta, b.dgamma, b.dbeta, scratch}, [=](const Run& r) {
                   return kernels::BatchNormalizationSums(
                       r.stream(), rows, channels, a.At(r), b.At(r), relu, r.At<uint8_t>(passed), r.At<>(dy),
                       {r.At<float>(a.dgamma), r.At<float>(a.dbeta)}, {r.At<float>(b.dgamma), r.At<float>(b.dbeta)},
                       r.At<float>(scratch), t);
                 });
  }
  const auto sink = [&](Value* v) {
    return v != nullptr && v->needs_gradient ? builder.GradientSink(v) : Builder::Sink{};
  };
  const Builder::Sink da = sink(a.in), db = sink(b.in), dr = sink(residual);
  if (!da.ref && !db.ref && !dr.ref) return;
  reads.insert(reads.end(), {a.dgamma, a.dbeta, b.dgamma, b.dbeta});
  for (const Builder::Sink& s : {da, db, dr}) {
    if (s.add) reads.push_back(s.ref);
  }
  builder.Emit(absl::StrCat("normalize backward", both, relu ? " relu" : "", da.add ? " add" : "", db.add ? " add" : "",
                            dr.add ? " add" : ""),
               std::move(reads), {da.ref, db.ref, dr.ref}, [=](const Run& r) {
                 return kernels::BatchNormalizationBackward(
                     r.stream(), rows, channels, a.At(r), b.At(r), relu, r.At<uint8_t>(passed), r.At<>(dy),
                     {r.At<float>(a.dgamma), r.At<float>(a.dbeta), r.At<>(da.ref), da.add},
                     {r.At<float>(b.dgamma), r.At<float>(b.dbeta), r.At<>(db.ref), db.add}, constant, r.At<>(dr.ref),
                     dr.add, t);
               });
}

// Lowers a batch normalization with the nodes that joined it: the Add, the relu, and the other batch normalization of
// the Add.
void LowerBatchNormalization(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const DType t = out->type;
  const int64_t channels = node.output.back(), rows = out->numbers / channels;
  const Normalization a = EmitStatistics(builder, node, in, out);
  if (builder.groups().NormalizedByOther(node)) {
    builder.handover().Postpone(node, a);
    return;
  }
  // The nodes that joined it.
  Normalization b;
  Value* residual = nullptr;
  const Node* last = &node;
  if (const Node* next = builder.groups().OnlyReader(*last);
      next != nullptr && next->kind == LayerKind::kAdd && builder.groups().Joined(*next)) {
    const int other = next->inputs[0] == node.id ? next->inputs[1] : next->inputs[0];
    // The later of the Add's inputs computes it.
    if (other < node.id) {
      last = next;
      if (const Normalization* const postponed = builder.handover().FindPostponed(other)) {
        b = *postponed;
      } else {
        residual = builder.ValueAt(other);
      }
    }
  }
  const Node* next = builder.groups().OnlyReader(*last);
  const bool relu = next != nullptr && next->kind == LayerKind::kActivation && builder.groups().Joined(*next) &&
                    builder.groups().ActivationOf(*next).kind == v1::RELU;

  const Ref added = residual != nullptr ? builder.Read(*residual, t) : Ref{}, y = builder.NewLike(*out);
  // If nothing is added, backward computes from x which numbers the relu passed.
  const bool joins = residual != nullptr || b.in != nullptr;
  const Ref passed = builder.training() && relu && joins ? builder.New(kernels::PassedBytes(rows, channels)) : Ref{};
  out->data = y;
  std::vector<Ref> reads = a.Reads();
  reads.push_back(added);
  if (b.in != nullptr) {
    for (const Ref& ref : b.Reads()) reads.push_back(ref);
  }
  builder.Emit(absl::StrCat("normalize",
                            b.in != nullptr       ? " both"
                            : residual != nullptr ? " add"
                                                  : "",
                            relu ? " relu" : ""),
               std::move(reads), {y, passed}, [=](const Run& r) {
                 return kernels::BatchNormalization(r.stream(), rows, channels, a.At(r), b.At(r), r.At<>(added), relu,
                                                    r.At<>(y), r.At<uint8_t>(passed), t);
               });
  if (!builder.training()) return;
  const Node* const other =
      b.in != nullptr ? &builder.NodeAt(last->inputs[0] == node.id ? last->inputs[1] : last->inputs[0]) : nullptr;
  const Normalized normalized{&node, other, a, b, residual, relu, passed, out};
  builder.Backward([=, &builder] { LowerNormalizationBackward(builder, normalized); });
}

void LowerGroupNormalization(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const DType t = out->type;
  const int64_t channels = node.output.back();
  const bool layer = node.kind == LayerKind::kLayerNormalization;
  // Layer normalization is group normalization with one group, and each row as an example.
  const int64_t outer = layer ? out->numbers / channels : builder.examples();
  const int64_t positions = out->numbers / channels / outer;
  const int64_t groups = layer ? 1 : node.layer.group_normalization().groups();
  const float epsilon = layer ? node.layer.layer_normalization().epsilon() : node.layer.group_normalization().epsilon();
  const Variable* gamma = builder.Find(node, "gamma");
  const Variable* beta = builder.Find(node, "beta");
  const bool frozen = builder.Frozen(node);
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*out), scale = builder.ValueOf(gamma),
            offset = builder.ValueOf(beta);
  const Ref mean = builder.NewNumbers(outer * groups, DType::kFloat32),
            factor = builder.NewNumbers(outer * groups, DType::kFloat32);
  const std::string text = absl::StrCat(outer, "x", positions, "x", channels, " groups ", groups);
  out->data = y;
  builder.Emit(absl::StrCat("group normalize ", text), {x, scale, offset}, {y, mean, factor}, [=](const Run& r) {
    return kernels::GroupNormalization(r.stream(), outer, positions, channels, groups, epsilon, r.At<>(x),
                                       r.At<float>(scale), r.At<float>(offset), r.At<>(y), r.At<float>(mean),
                                       r.At<float>(factor), t);
  });
  if (!builder.training()) return;
  builder.Backward([=, &builder] {
    const Ref dy = out->gradient,
              scratch = builder.Scratch(kernels::GroupNormalizationScratch(outer, positions, channels));
    const Ref dgamma = frozen ? Ref{} : builder.GradientOf(gamma), dbeta = frozen ? Ref{} : builder.GradientOf(beta);
    const Builder::Sink dx = in->needs_gradient ? builder.GradientSink(in) : Builder::Sink{};
    std::vector<Ref> reads = {x, scale, mean, factor, dy};
    if (dx.add) reads.push_back(dx.ref);
    builder.Emit(absl::StrCat("group normalize backward ", text, dx.add ? " add" : ""), std::move(reads),
                 {dx.ref, dgamma, dbeta, scratch}, [=](const Run& r) {
                   return kernels::GroupNormalizationBackward(
                       r.stream(), outer, positions, channels, groups, r.At<>(x), r.At<float>(scale), r.At<float>(mean),
                       r.At<float>(factor), r.At<>(dy), r.At<>(dx.ref), r.At<float>(dgamma), r.At<float>(dbeta),
                       r.At<float>(scratch), t, dx.add);
                 });
  });
}

constexpr Layer kLayers[] = {
    {LayerKind::kBatchNormalization, LowerBatchNormalization},
    {LayerKind::kLayerNormalization, LowerGroupNormalization},
    {LayerKind::kGroupNormalization, LowerGroupNormalization},
};

}  // namespace

absl::Span<const Layer> NormalizationLayers() { return kLayers; }

}  // namespace cairn::cudnn
