// Batch, layer and group normalization.
#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {

// With the Add and the relu behind it, where nothing else reads what stands between. A frozen one uses its moving statistics, as in
// Keras, and its moving statistics' gradients are not written.
void Builder::LowerBatchNormalization(const Node& node, Value* in, Value* out) {
  const DType t = out->type;
  const int64_t channels = node.output.back(), rows = out->numbers / channels;
  const float epsilon = node.layer.batch_normalization().epsilon();
  const Variable* gamma = Find(node, "gamma");
  const Variable* beta = Find(node, "beta");
  const bool frozen = Frozen(node), statistics = training() && !frozen;
  // What joined it.
  Value* residual = nullptr;
  const Node* last = &node;
  const auto next_of = [&](const Node* n) { return consumers_[n->id].size() == 1 ? &graph_.nodes()[consumers_[n->id][0]] : nullptr; };
  if (const Node* next = next_of(last); next != nullptr && next->kind == LayerKind::kAdd && joined_[next->id]) {
    const int other = next->inputs[0] == node.id ? next->inputs[1] : next->inputs[0];
    // The later of the Add's inputs computes it.
    if (other < node.id) {
      residual = node_values_[other];
      last = next;
    }
  }
  const Node* next = next_of(last);
  const bool relu = next != nullptr && next->kind == LayerKind::kActivation && joined_[next->id] && ActivationOf(*next).kind == v1::RELU;

  const Ref x = Read(*in, t), added = residual != nullptr ? Read(*residual, t) : Ref{};
  Ref mean = ValueOf(Find(node, "moving_mean")), variance = ValueOf(Find(node, "moving_variance"));
  if (statistics) {
    mean = NewNumbers(channels, DType::kFloat32);
    variance = NewNumbers(channels, DType::kFloat32);
    const Ref scratch = Scratch(kernels::BatchStatisticsScratch(rows, channels));
    Emit(absl::StrCat("statistics ", rows, "x", channels), {x}, {mean, variance, scratch}, [=](const Run& r) {
      return kernels::BatchStatistics(r.stream(), rows, channels, r.At<>(x), r.At<float>(mean), r.At<float>(variance),
                                      r.At<float>(scratch), t);
    });
    // The gradients of the moving averages do not come from behind.
    const float n = static_cast<float>(examples());
    for (const auto& [statistic, name] : {std::pair{mean, "moving_mean"}, std::pair{variance, "moving_variance"}}) {
      const Ref from = statistic, to = GradientOf(Find(node, name));
      Emit(absl::StrCat("copy * ", n), {from}, {to}, [=](const Run& r) {
        return kernels::Affine(r.stream(), channels, n, 0, r.At<>(from), DType::kFloat32, r.At<>(to), DType::kFloat32, false);
      });
    }
  }
  const Ref scale = ValueOf(gamma), offset = ValueOf(beta), y = NewLike(*out);
  out->data = y;
  Emit(absl::StrCat("normalize", residual != nullptr ? " add" : "", relu ? " relu" : ""), {x, added, mean, variance, scale, offset}, {y},
       [=](const Run& r) {
         return kernels::BatchNormalization(r.stream(), rows, channels, r.At<>(x), r.At<>(added), r.At<float>(mean),
                                            r.At<float>(variance), epsilon, r.At<float>(scale), r.At<float>(offset), relu, r.At<>(y), t);
       });
  if (!training()) return;
  Backward([=, this] {
    const Ref dy = out->gradient, masked = relu ? y : Ref{};
    // Written to the parameter space where the layer has such variables, else to a buffer: dx needs the sums.
    const auto sums = [&](const Variable* v) { return v != nullptr && !frozen ? GradientOf(v) : NewNumbers(channels, DType::kFloat32); };
    const Ref dgamma = sums(gamma), dbeta = sums(beta), scratch = Scratch(kernels::BatchStatisticsScratch(rows, channels));
    if (!frozen) {
      Emit(absl::StrCat("normalize sums", relu ? " relu" : ""), {x, masked, dy, mean, variance}, {dgamma, dbeta, scratch},
           [=](const Run& r) {
             return kernels::BatchNormalizationSums(r.stream(), rows, channels, r.At<>(x), r.At<>(masked), r.At<>(dy), r.At<float>(mean),
                                                    r.At<float>(variance), epsilon, r.At<float>(dgamma), r.At<float>(dbeta),
                                                    r.At<float>(scratch), t);
           });
    }
    const bool to_x = in->needs_gradient, to_residual = residual != nullptr && residual->needs_gradient;
    if (!to_x && !to_residual) return;
    const Sink dx = to_x ? GradientSink(in) : Sink{NewLike(*in), false};
    const Sink dr = to_residual ? GradientSink(residual) : Sink{};
    std::vector<Ref> reads = {x, masked, dy, mean, variance, scale};
    if (!frozen) reads.insert(reads.end(), {dgamma, dbeta});
    if (dx.add) reads.push_back(dx.ref);
    if (dr.add) reads.push_back(dr.ref);
    Emit(absl::StrCat("normalize backward", relu ? " relu" : "", dx.add ? " add" : "", dr.add ? " add" : ""), std::move(reads),
         {dx.ref, dr.ref}, [=](const Run& r) {
           return kernels::BatchNormalizationBackward(
               r.stream(), rows, channels, r.At<>(x), r.At<>(masked), r.At<>(dy), r.At<float>(mean), r.At<float>(variance), epsilon,
               r.At<float>(scale), frozen ? nullptr : r.At<float>(dgamma), frozen ? nullptr : r.At<float>(dbeta), frozen, r.At<>(dx.ref),
               dx.add, r.At<>(dr.ref), dr.add, t);
         });
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
    return kernels::GroupNormalization(r.stream(), outer, positions, channels, groups, epsilon, r.At<>(x), r.At<float>(scale),
                                       r.At<float>(offset), r.At<>(y), r.At<float>(mean), r.At<float>(factor), t);
  });
  if (!training()) return;
  Backward([=, this] {
    const Ref dy = out->gradient, scratch = Scratch(kernels::GroupNormalizationScratch(outer, positions, channels));
    const Ref dgamma = frozen ? Ref{} : GradientOf(gamma), dbeta = frozen ? Ref{} : GradientOf(beta);
    const Sink dx = in->needs_gradient ? GradientSink(in) : Sink{};
    std::vector<Ref> reads = {x, scale, mean, factor, dy};
    if (dx.add) reads.push_back(dx.ref);
    Emit(absl::StrCat("group normalize backward ", text, dx.add ? " add" : ""), std::move(reads), {dx.ref, dgamma, dbeta, scratch},
         [=](const Run& r) {
           return kernels::GroupNormalizationBackward(r.stream(), outer, positions, channels, groups, r.At<>(x), r.At<float>(scale),
                                                      r.At<float>(mean), r.At<float>(factor), r.At<>(dy), r.At<>(dx.ref),
                                                      r.At<float>(dgamma), r.At<float>(dbeta), r.At<float>(scratch), t, dx.add);
         });
  });
}

}  // namespace cairn::cudnn
